"""A node for a moment: joins a running node as a peer, or a cluster, says one thing and leaves.

What `status`, `routes`, `ask` and `tell` share. There is no other way into a node than the one that all nodes use, with the
same domains and keys.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from hopline.cli.terminal import complaint, failure
from hopline.errors import DeliveryError, HoplineError

if TYPE_CHECKING:
    from hopline.assembly import Node
    from hopline.identity import MessageType

AddressArgument = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS",
        help="Where the node is, such as tcp://127.0.0.1:5101; with --cluster its identity, or how that begins.",
    ),
]
MaybeAddressArgument = Annotated[
    str,
    typer.Argument(
        metavar="[ADDRESS]",
        help="Where the node is, such as tcp://127.0.0.1:5101; with --cluster its identity, or how that begins, unless it "
        "is the only one.",
        show_default=False,
    ),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Domains and keys, as the node has them (hopline.toml).")
]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.01, max=3600, help="Seconds until we give up.")]
BindOption = Annotated[
    str,
    typer.Option("--bind", metavar="ADDRESS", help="Where answers come back to; a free port of this machine by default."),
]
ClusterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="A rendezvous, through which nodes find each other: tcp://HOST:PORT, or tcp://HOST:PORT+PORT with that of its "
        "broadcast; again for more.",
    ),
]
PlainTcpOption = Annotated[bool, typer.Option("--plain-tcp", help="Allow connections off this machine without encryption.")]

_T = TypeVar("_T")

_LOOK_SECONDS: Final = 0.01
"""How often we look whether the node has told us who it is; it does so once, soon after we connect."""

_DRAIN_SECONDS: Final = 1.0


def visit(
    address: str,
    identities: list[str],
    do: Callable[["Node", bytes, float], Awaitable[_T]],
    *,
    config: Path | None,
    timeout: float,
    cluster: list[str] | None = None,
    is_anybody: bool = False,
    bind: str = "",
    plain_tcp: bool = False,
    is_strict: bool = False,
) -> _T:
    """Join the node at an address, do something with it (our node, its identity, the seconds left) and leave.

    With `cluster` join that, and the address is what the node is called there. `is_anybody`: any node of the cluster will
    do, its identity is then empty. `identities` are those that must be allowed where there are domains. `is_strict`: connect
    to nobody else, neither to the peers of the configuration nor to where nodes say that they are. Ends the command if it
    does not work.
    """
    import asyncio

    from msgspec.structs import replace

    from hopline.assembly import Node, Settings, read_settings
    from hopline.cli.joining import be_quiet, find, until_joined, visitor
    from hopline.transport.address import check_to_bind, check_to_connect

    be_quiet()
    if not address and not cluster:
        raise complaint("say where the node is, such as tcp://127.0.0.1:5101, or how to find it: --cluster ADDRESS")
    try:
        check_cluster(cluster)
        if not cluster:
            check_to_connect(address)
        if bind:
            check_to_bind(bind)
        settings = read_settings(config) if config is not None else Settings()
        if missing := missing_identities(settings.domains, identities):
            raise complaint(f"no domain in {config} has {', '.join(missing)}: add what is missing to its identities")
        if settings.node.curve is not None and not cluster and address not in settings.node.curve.server_keys:
            raise complaint(f"no server key for {address} in {config}: add it to [node.curve.server_keys]")
        # Where the node of this file is bound is taken, if it runs.
        settings = visitor(settings)
        settings = replace(settings, node=replace(settings.node, plain_tcp=plain_tcp or settings.node.plain_tcp))
        only = _Only(address) if is_strict else None
        if only is not None:
            settings = replace(settings, node=replace(settings.node, peers=[]))
        peers = [] if cluster else [address]
        node = Node(peers=peers, cluster=cluster or (), config=settings, bind=bind, hold_seconds=timeout, may_connect=only)
    except HoplineError as error:
        raise complaint(str(error)) from None

    async def talk() -> _T:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        try:
            await node.start()
        except HoplineError as error:
            raise complaint(str(error)) from None
        try:
            if cluster:
                if not await until_joined(node, deadline):
                    what = f"nobody who leads a cluster is heard at {', '.join(cluster)} within {timeout:g} s"
                    raise complaint(f"NO_ROUTE: {what}: is a rendezvous running there?", code=1)
                identity = b"" if is_anybody else await find(node, address, deadline)
            else:
                identity = await _found(deadline)
            return await do(node, identity, max(deadline - loop.time(), 0.01))
        finally:
            await node.stop(_DRAIN_SECONDS)

    async def _found(deadline: float) -> bytes:
        identity = await _meet(node, address, deadline, is_alone=not settings.node.peers)
        if identity is None and only is not None and only.refused:
            what = f"it says that it is at {only.refused}, and nothing but {address} is touched; name that address"
            raise complaint(f"NO_ROUTE: a node answers at {address}, but {what}", code=1)
        if identity is None:
            what = "is a node running there, with the same domains and keys (--config)?"
            if settings.node.curve is not None and not bind:
                # It connects back to answer, and with CURVE it must know the key behind every address.
                what += " With CURVE it also needs our address among its server_keys: say which with --bind"
            raise complaint(f"NO_ROUTE: nobody answers at {address} within {timeout:g} s: {what}", code=1)
        return identity

    try:
        return asyncio.run(talk())
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except DeliveryError as error:
        hints = [f"flow {error.correlation}"] if error.correlation else []
        if error.code == "EXPIRED" and settings.domains is not None:
            hints.append(f"if the node is not busy, see that its domains have {', '.join(identities)} too")
        raise failure(error, hint="; ".join(hints)) from None
    except HoplineError as error:
        raise failure(error) from None


class _Only:
    """Lets a node connect to one address, by whatever name, and to no other."""

    def __init__(self, address: str) -> None:
        self.refused = ""
        """The last address that it did not let it connect to."""
        self._address = address
        self._places = _places(address)

    def __call__(self, uri: str) -> bool:
        # Not to 0.0.0.0, whoever says that it is there: that is this machine.
        if uri == self._address or _is_at(uri, self._places, everywhere=False):
            return True
        self.refused = uri
        return False


def check_cluster(cluster: list[str] | None) -> list[str]:
    """The addresses of rendezvous that were given; raises HoplineError if one is none."""
    from hopline.cluster.endpoints import read_endpoint
    from hopline.transport.address import check_to_connect

    for text in cluster or ():
        for address in filter(None, read_endpoint(text)):
            check_to_connect(address)
    return cluster or []


def missing_identities(domains: object, identities: list[str]) -> list[str]:
    """Which identities belong to no domain; none is missing where there are no domains."""
    from hopline.security import Domains

    if not isinstance(domains, Domains):
        return []
    return [identity for identity in identities if not any(identity.encode() in domain.identities for domain in domains)]


async def until_known(node: "Node", identity: bytes, kind: "MessageType", seconds: float) -> None:
    """Wait until a node has told us that it takes a type; raises DeliveryError if it does not.

    A node tells in one message for each domain, so the type may come a little after the node.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        routes = node.routes().get(identity)
        if routes is not None and any(kind in types for types in routes.actors.values()):
            return
        if loop.time() >= deadline:
            partition = f" partition {kind.partition.decode(errors='replace')}" if kind.partition else ""
            name = f"{kind.identity.decode(errors='replace')} version {kind.version!r}{partition}"
            raise DeliveryError("NO_ROUTE", f"no actor of this node handles {name}; `hopline routes` shows what they do")
        await asyncio.sleep(_LOOK_SECONDS)


async def _meet(node: "Node", address: str, deadline: float, *, is_alone: bool) -> bytes | None:
    """Wait for the node at an address to tell us who it is; None if it does not in time."""
    import asyncio

    loop = asyncio.get_running_loop()
    places = await loop.run_in_executor(None, _places, address)
    while loop.time() < deadline:
        known = node.routes()
        for identity, routes in known.items():
            if routes.uri == address or _is_at(routes.uri, places):
                return identity
        if is_alone and len(known) == 1:
            # It calls itself something else than we do, as behind a proxy; there is nobody else we have spoken to.
            return next(iter(known))
        await asyncio.sleep(_LOOK_SECONDS)
    return None


def _places(address: str) -> set[tuple[str, int]]:
    """The numeric addresses behind a tcp address; none for others, or if the name is not known."""
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    if parts.scheme != "tcp" or not parts.hostname or not parts.port:
        return set()
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {(str(place[0]), int(place[1])) for *_, place in found}


def _is_at(uri: str, places: set[tuple[str, int]], *, everywhere: bool = True) -> bool:
    """Whether what a node calls itself is one of these places; 0.0.0.0 is all addresses of its machine."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        return False
    is_everywhere = everywhere and parts.hostname in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
    return any(port == place[1] and (is_everywhere or parts.hostname == place[0]) for place in places)
