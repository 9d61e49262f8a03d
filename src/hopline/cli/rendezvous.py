"""`hopline rendezvous`: the meeting point of a cluster, as a process."""

import signal
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hopline.cli.client import PlainTcpOption
from hopline.cli.terminal import JsonOption, complaint, put
from hopline.errors import HoplineError, InputError, TransportError

if TYPE_CHECKING:
    from rich.console import Console

    from hopline.assembly import Settings
    from hopline.capture.tap import CaptureTap
    from hopline.cluster.rendezvous import Rendezvous
    from hopline.wire import FormatName

_END_SECONDS: Final = 5.0
"""What closing may take: nobody is waited for, but a capture waits for its disk."""


def run(
    bind: Annotated[
        str | None,
        typer.Option(
            "--bind",
            metavar="ADDRESS",
            help="Where nodes send to, and with +PORT where they listen; else that is 10 ports below.",
            show_default="tcp://127.0.0.1:8011+8001",
        ),
    ] = None,
    synod: Annotated[
        str | None,
        typer.Option("--synod", metavar="ADDRESS", help="Where the other rendezvous listen to this one, if there are any."),
    ] = None,
    member: Annotated[
        list[str] | None,
        typer.Option("--member", metavar="ADDRESS", help="The --synod of another rendezvous; again for more."),
    ] = None,
    format: Annotated[
        list[str] | None,
        typer.Option(
            "--format", metavar="v5|v6", help="What nodes of another make here read; else it is learned from them."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Settings: the tables [rendezvous], [node.curve] and [capture]."),
    ] = None,
    capture: Annotated[
        str | None, typer.Option("--capture", metavar="DIR", help="Record what passes into this folder: see `hopline dump`.")
    ] = None,
    plain_tcp: PlainTcpOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a rendezvous, through which the nodes of a cluster find each other, until Ctrl-C or SIGTERM.

    Nodes need its address alone: `hopline node ... --cluster tcp://127.0.0.1:8011`. It sees what nodes say about
    themselves, never what their actors say to each other. Several rendezvous choose a leader among them: give each its own
    --synod and those of the others as --member. One line says when it is ready, another one at the end what it did.

    On SIGHUP it reads its file again and tells all nodes which rendezvous there are now: `nodes` in [rendezvous]. All other
    settings are those of its start. Without --config there is nothing to read, and nothing changes.

    Example:  hopline rendezvous --bind tcp://127.0.0.1:8011
    """
    import asyncio
    import logging

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        settings = _settings(config, bind, synod, member, format, capture, plain_tcp=plain_tcp)
        asyncio.run(_serve(settings, config, as_json=as_json))
    except HoplineError as error:
        raise complaint(str(error)) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _settings(
    config: Path | None,
    bind: str | None,
    synod: str | None,
    member: list[str] | None,
    formats: list[str] | None,
    capture: str | None,
    *,
    plain_tcp: bool,
) -> "Settings":
    """What the file says, and what the options say instead."""
    from msgspec import structs

    from hopline.assembly import CaptureSettings, Settings, read_settings
    from hopline.cluster.settings import RendezvousSettings
    from hopline.transport.address import check_to_bind, check_to_connect

    settings = read_settings(config) if config is not None else Settings()
    rendezvous = settings.rendezvous or RendezvousSettings()
    if member and not (synod or rendezvous.synod):
        raise complaint("several rendezvous need to hear each other: say where they hear this one, with --synod")
    own = synod or rendezvous.synod
    # Who is a member itself need not say so.
    members = tuple(dict.fromkeys([*(member or rendezvous.members), own])) if own else rendezvous.members
    if unknown := set(formats or ()) - {"v5", "v6"}:
        raise complaint(f"--format is v5 or v6, and not {', '.join(sorted(unknown))}")
    spoken: tuple[FormatName, ...] = tuple(formats) if formats else rendezvous.formats  # type: ignore[arg-type]
    rendezvous = structs.replace(rendezvous, bind=bind or rendezvous.bind, synod=own, members=members, formats=spoken)
    for address in filter(None, (*rendezvous.bind_addresses, rendezvous.partner_bind, own)):
        check_to_bind(address)
    for address in (*members, *rendezvous.partners):
        check_to_connect(address)
    return structs.replace(
        settings,
        rendezvous=rendezvous,
        node=structs.replace(settings.node, plain_tcp=plain_tcp or settings.node.plain_tcp),
        capture=CaptureSettings(capture) if capture is not None else settings.capture,
    )


async def _serve(settings: "Settings", config: Path | None, *, as_json: bool) -> None:
    """Start, wait for a signal, stop."""
    import asyncio

    from hopline.assembly import make_recorder, make_rendezvous
    from hopline.cli.ending import Ending
    from hopline.node.control import as_text
    from hopline.node.ids import Ids

    identity = Ids().guid()
    recorder = make_recorder(settings.capture, identity) if settings.capture is not None else None
    rendezvous = make_rendezvous(settings, identity=identity, recorders=[recorder] if recorder is not None else [])
    ending = Ending(
        lambda: put(_books(rendezvous, recorder), _show_end, as_json=as_json),
        seconds=_END_SECONDS,
        why="what was recorded does not reach its disk; leaving it",
    )
    loop = asyncio.get_running_loop()
    if recorder is not None:
        recorder.start()
    try:
        await _start(rendezvous)
        if hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(signal.SIGHUP, _reconfigure, rendezvous, settings, config)
        ready = {
            "ready": True,
            "unicast": rendezvous.endpoint.unicast,
            "broadcast": rendezvous.endpoint.broadcast,
            "rendezvous": as_text(identity),
        }
        put(ready, _show_ready, as_json=as_json)
        await ending.asked.wait()
        await rendezvous.close()
    finally:
        if recorder is not None:
            # It waits for a thread that waits for a disk.
            await loop.run_in_executor(None, recorder.close)
    ending.report()


async def _start(rendezvous: "Rendezvous") -> None:
    """Start it. Its second port was perhaps never named: who reads that it is taken is told whose it is."""
    from hopline.transport.address import taken

    unicast, broadcast = rendezvous.settings.bind_addresses
    try:
        await rendezvous.start()
    except TransportError as error:
        if str(error) != str(taken(broadcast)):
            raise
        reason = f"{broadcast} is in use, the broadcast port of {unicast}: choose another with +PORT: --bind {unicast}+PORT"
        raise TransportError(error.code, reason) from None


def _reconfigure(rendezvous: "Rendezvous", settings: "Settings", config: Path | None) -> None:
    """Read the file again and tell nodes the new list; a file that is no good changes nothing."""
    from msgspec import structs

    from hopline.assembly import make_rendezvous, read_settings
    from hopline.cluster.rendezvous import named_nodes
    from hopline.cluster.settings import RendezvousSettings

    try:
        if config is None:
            raise InputError("INPUT_BAD_CONFIG", "no file to read")
        named = (read_settings(config).rendezvous or RendezvousSettings()).nodes
        if not named:
            raise InputError("INPUT_BAD_CONFIG", f"{config} has no nodes in [rendezvous]")
        # Made to be checked, as at the start.
        changed = make_rendezvous(
            structs.replace(settings, rendezvous=structs.replace(rendezvous.settings, nodes=named))
        ).settings
    except HoplineError as error:
        typer.echo(f"hopline: {error}; nothing is changed", err=True)
        return
    rendezvous.reconfigure(named_nodes(changed))
    typer.echo(f"hopline: nodes are told of {len(named)} rendezvous: {', '.join(named)}", err=True)


def _books(rendezvous: "Rendezvous", recorder: "CaptureTap | None") -> dict[str, Any]:
    books = rendezvous.books
    # Not asdict alone: of a Counter it makes one of pairs.
    counts = asdict(replace(books, by_identity=Counter())) | {"by_identity": dict(books.by_identity)}
    report: dict[str, Any] = {"books": counts}
    if recorder is not None:
        report["capture"] = asdict(recorder.statistics())
    return report


def _show_ready(console: "Console", ready: dict[str, Any]) -> None:
    text = f"rendezvous at {ready['unicast']}, heard at {ready['broadcast']}; Ctrl-C ends"
    console.print(text, markup=False)


def _show_end(console: "Console", report: dict[str, Any]) -> None:
    from hopline.cli.status import show_status

    books = dict(report["books"])
    told = {f"relayed {name}": count for name, count in sorted(books.pop("by_identity").items())}
    show_status(console, {"statistics": books | told, "dead_letters": {}, "capture": report.get("capture")})
