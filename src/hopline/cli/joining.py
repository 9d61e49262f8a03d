"""A node for a moment, in a cluster: where to join, who is there, and which node somebody means."""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from hopline.cli.terminal import complaint

if TYPE_CHECKING:
    from hopline.assembly import Node, Settings

QUIET_S: Final = 1.0
"""When so long nobody has told anything new, all have told. Nodes answer within a quarter of that, unless they are busy."""

_SILENCE_S: Final = 0.5
"""How long a rendezvous that cannot be reached is waited for, before the next one is tried."""

_LOOK_S: Final = 0.02
"""How often we look whether something has changed."""

_MOST_SHOWN: Final = 10


def visitor(settings: "Settings") -> "Settings":
    """The settings of a node that stays for a moment.

    What the node of this file records is its own affair, and so are its name and its place in a cluster.
    """
    from msgspec.structs import replace

    from hopline.assembly import MemberSettings

    cluster = MemberSettings(silence_s=_SILENCE_S, format=settings.cluster.format)
    return replace(settings, node=replace(settings.node, name=""), capture=None, cluster=cluster)


def be_quiet() -> None:
    """Let nothing be logged of the cluster: what is to be known of it is said in the end, in one line."""
    logging.getLogger("hopline.cluster").addHandler(logging.NullHandler())


async def until_joined(node: "Node", deadline: float) -> bool:
    """Wait until a rendezvous is heard; False if none is in time."""
    loop = asyncio.get_running_loop()
    while not node.is_joined:
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(_LOOK_S)
    return True


async def until_quiet(node: "Node", deadline: float) -> bool:
    """Wait until nobody tells us anything new; False if that did not happen in time."""
    loop = asyncio.get_running_loop()
    known, since = None, loop.time()
    while True:
        now = {identity: (len(routes.actors), len(routes.hubs)) for identity, routes in node.routes().items()}
        if now != known:
            known, since = now, loop.time()
        elif loop.time() - since >= QUIET_S:
            return True
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(_LOOK_S)


async def find(node: "Node", name: str, deadline: float) -> bytes:
    """The node that somebody means: by address, identity or how that begins; the only one there is, if by nothing."""
    from hopline.node.control import as_text

    loop = asyncio.get_running_loop()
    quiet = asyncio.ensure_future(until_quiet(node, deadline))
    try:
        while True:
            names = {identity: as_text(identity) for identity in node.routes()}
            exact = [one for one, text in names.items() if name in (text, node.routes()[one].uri)]
            if exact:
                return exact[0]
            if quiet.done() or loop.time() >= deadline:
                break
            await asyncio.sleep(_LOOK_S)
    finally:
        quiet.cancel()
    like = [identity for identity, text in names.items() if text.startswith(name)]
    if len(like) == 1:
        return like[0]
    shown = ", ".join(sorted(names[identity] for identity in like or names)[:_MOST_SHOWN]) or "none"
    if not names:
        raise complaint("NO_ROUTE: the cluster has no nodes", code=1)
    if not like:
        raise complaint(f"NO_ROUTE: the cluster has no node {name!r}; it has {shown}", code=1)
    raise complaint(f"say which node: {shown}")
