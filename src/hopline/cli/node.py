"""`hopline node`: actors of a module as a running node."""

import importlib
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hopline.cli.client import ClusterOption, ConfigOption, PlainTcpOption, check_cluster, missing_identities
from hopline.cli.terminal import JsonOption, complaint, put
from hopline.errors import HoplineError

if TYPE_CHECKING:
    from rich.console import Console

    from hopline.assembly import Node
    from hopline.node.actor import Actor

DRAIN_SECONDS: Final = 5.0
"""How long what is under way may take to end."""

_GRACE_SECONDS: Final = 3.0
"""What closing may take after that. A handler that is a plain function cannot be stopped, and we do not wait for it."""


def run(
    actors: Annotated[
        str, typer.Argument(metavar="MODULE:ACTORS", help="Where the actors are: a class, an instance, a list, a function.")
    ],
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="What this node is called in traces and tables; no other node's name."),
    ] = None,
    bind: Annotated[
        str | None, typer.Option("--bind", metavar="ADDRESS", help="Where others reach us: tcp://127.0.0.1:5101.")
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option("--peer", metavar="ADDRESS", help="Another node; again for more.")
    ] = None,
    cluster: ClusterOption = None,
    embed: Annotated[
        bool, typer.Option("--embed", help="Be the rendezvous of the cluster while nobody else on this machine is.")
    ] = False,
    config: ConfigOption = None,
    capture: Annotated[
        str | None, typer.Option("--capture", metavar="DIR", help="Record messages into this folder: see `hopline dump`.")
    ] = None,
    plain_tcp: PlainTcpOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run actors as a node until Ctrl-C or SIGTERM.

    MODULE is looked for in the current folder first. ACTORS in it is an Actor class or instance, a list of those, or a
    function that returns them. One line says when the node is ready, another one at the end how many messages there were.
    To stop, it lets what is under way end for up to 5 seconds; a second Ctrl-C ends it at once.

    Nodes find each other by address (--peer), or all together through a rendezvous (--cluster): see `hopline rendezvous`.
    With --embed the first node of a machine is that too, and another one takes over when it ends.

    Example:  hopline node orders:Orders --bind tcp://127.0.0.1:5101 --cluster tcp://127.0.0.1:8011 --embed
    """
    import asyncio
    import logging

    from hopline.assembly import Node, Settings, read_settings
    from hopline.node.control import IDENTITIES
    from hopline.transport.address import check_to_bind, check_to_connect

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        settings = read_settings(config) if config is not None else Settings()
        where = bind or settings.node.bind
        if not where:
            raise complaint("say where others reach this node, such as --bind tcp://127.0.0.1:5101")
        check_to_bind(where)
        for address in [*settings.node.peers, *(peer or ())]:
            check_to_connect(address)
        if not [*settings.cluster.rendezvous, *check_cluster(cluster)] and embed:
            raise complaint("say at which address to be the rendezvous, such as --cluster tcp://127.0.0.1:8011")
        found = _import(actors)
    except HoplineError as error:
        raise complaint(str(error)) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if missing := missing_identities(settings.domains, list(IDENTITIES)):
        typer.echo(
            f"hopline: warning: `hopline status` and `hopline routes` will not work: no domain in {config} has "
            f"{', '.join(missing)}",
            err=True,
        )

    def make(living: "list[Actor]") -> Node:
        return Node(
            living,
            bind=where,
            peers=peer or (),
            cluster=cluster or (),
            embed=embed or None,
            config=config,
            capture=capture,
            plain_tcp=plain_tcp or None,
            identity=name.encode() if name else None,
        )

    try:
        asyncio.run(_serve(make, found, actors, as_json=as_json))
    except HoplineError as error:
        raise complaint(str(error)) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


async def _serve(make: "Callable[[list[Actor]], Node]", found: object, name: str, *, as_json: bool) -> None:
    """Start, wait for a signal, stop. Actors are made here, so that they may ask for the event loop."""
    from hopline.cli.ending import Ending
    from hopline.node.control import Control, as_text
    from hopline.node.live import Live

    node = make(_actors(found, name))

    def report() -> None:
        books: dict[str, Any] = {"statistics": asdict(node.statistics()), "dead_letters": node.dead_letters.counts}
        if node.capture is not None:
            books["capture"] = node.capture_report()
        put(books, _show_end, as_json=as_json)

    ending = Ending(report, seconds=DRAIN_SECONDS + _GRACE_SECONDS, why="a handler does not end; leaving it")
    await node.start()
    node.add_actor(Control(node, node.capture_report))
    node.add_actor(Live(node))
    put({"ready": True, "address": node.address, "node": as_text(node.identity)}, _show_ready, as_json=as_json)
    await ending.asked.wait()
    await node.stop(DRAIN_SECONDS)
    ending.report()


def _import(name: str) -> object:
    """What MODULE:ACTORS names."""
    module_name, separator, attribute = name.partition(":")
    if not (separator and module_name and attribute):
        raise complaint(f"{name!r} is not MODULE:ACTORS, such as orders:Orders")
    sys.path.insert(0, str(os.getcwd()))  # noqa: PTH109 - as python -m does
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise complaint(f"there is no module {error.name!r} in this folder, and none is installed") from None
        raise complaint(f"cannot import {module_name}: {error}") from None
    except Exception as error:  # noqa: BLE001 - whatever that module does
        raise complaint(f"cannot import {module_name}: {type(error).__qualname__}: {error}") from None
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise complaint(f"{module_name} has no {attribute!r}")
        found = getattr(found, part)
    return found


def _actors(found: Any, name: str) -> "list[Actor]":  # noqa: ANN401 - whatever the module holds
    """The actors that a class, an instance, a list of them or a function stands for."""
    from hopline.node.actor import Actor

    if isinstance(found, Actor):
        return [found]
    if isinstance(found, type) and not issubclass(found, Actor):
        raise complaint(f"{name} is a class, and no Actor")
    if callable(found):
        try:
            found = found()
        except Exception as error:  # noqa: BLE001 - whatever that function does
            raise complaint(f"cannot make the actors of {name}: {type(error).__qualname__}: {error}") from None
        if isinstance(found, Actor):
            return [found]
    if not isinstance(found, Iterable) or isinstance(found, str | bytes):
        raise complaint(f"{name} gives {type(found).__qualname__}, which is no Actor and no list of them")
    living: list[Actor] = []
    for item in found:
        if not (isinstance(item, Actor) or (isinstance(item, type) and issubclass(item, Actor))):
            raise complaint(f"{name} holds {item!r}, which is no Actor")
        living += _actors(item, name)
    if not living:
        raise complaint(f"{name} holds no actors")
    return living


def _show_ready(console: "Console", ready: dict[str, Any]) -> None:
    console.print(f"ready at {ready['address']}, node {ready['node']}; Ctrl-C ends", markup=False)


def _show_end(console: "Console", report: dict[str, Any]) -> None:
    from hopline.cli.status import show_status

    show_status(console, report)
