"""`hopline tap`: messages of a running node, as they pass."""

import secrets
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hopline.cli.client import (
    AddressArgument,
    BindOption,
    ClusterOption,
    ConfigOption,
    PlainTcpOption,
    TimeoutOption,
    visit,
)
from hopline.cli.lines import JsonOption, usage_error
from hopline.cli.terminal import complaint
from hopline.errors import HoplineError

if TYPE_CHECKING:
    import pyarrow as pa

    from hopline.assembly import Node
    from hopline.node.live import Seen

_POINTS: Final = ("hub_out", "router_in", "scaleout_out", "scaleout_in", "actor_in", "actor_out", "hub_in")
_DEFAULT: Final = "scaleout_out,scaleout_in,hub_out,hub_in"


def run(
    address: AddressArgument,
    where: Annotated[str, typer.Argument(metavar="[FILTER]", help="Only what passes it.", show_default=False)] = "",
    points: Annotated[
        str, typer.Option("--points", metavar="A,B,...", help=f"Where to look: {', '.join(_POINTS)}, or all.")
    ] = _DEFAULT,
    identities: Annotated[
        list[str] | None,
        typer.Option("--identity", metavar="PATTERN", help="Only such messages leave the node; again for more."),
    ] = None,
    bodies: Annotated[bool, typer.Option("--bodies", help="Show bodies too; they are left out otherwise.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after so many.")] = None,
    cluster: ClusterOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 5.0,
    bind: BindOption = "",
    plain_tcp: PlainTcpOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the messages of a running node as they pass, until Ctrl-C.

    The filter is that of `hopline dump`. It is applied here; on a busy node --identity keeps what does not matter from
    being sent at all, and how many could not be held is said on standard error. The node must have been started with
    `hopline node`, or have Live among its actors. Where it has domains, one of them must hold HOPLINE.WATCH and
    HOPLINE.SEEN.

    Example:  hopline tap tcp://127.0.0.1:5101 'identity ~ ORDER.* and hops > 0'
    """
    try:
        from hopline.capture.filter import parse_filter
    except ModuleNotFoundError as error:
        raise complaint(f"this needs {error.name}: pip install 'hopline[columnar]'") from None
    from hopline.capture.filter import fields_of
    from hopline.capture.messages import sightings
    from hopline.capture.predicate import mask
    from hopline.capture.tables import DEFAULT_COLUMNS
    from hopline.cli.dump import SHOWN, put_rows
    from hopline.node.live import IDENTITIES, Seen, Watch

    try:
        wanted = parse_filter(where)
    except HoplineError as error:
        raise usage_error(str(error)) from None
    chosen = list(_POINTS) if points == "all" else [point.strip() for point in points.split(",")]
    if unknown := set(chosen) - set(_POINTS):
        raise usage_error(f"--points: no such point: {', '.join(sorted(unknown))}; there are {', '.join(_POINTS)}")
    is_json = as_json or not sys.stdout.isatty()
    names = [*(DEFAULT_COLUMNS if is_json else SHOWN), *(["body"] if bodies and is_json else [])]
    watch = Watch(secrets.token_hex(16), chosen, tuple(identities or ()), bodies=bodies)

    async def show(node: "Node", identity: bytes, _seconds: float) -> None:
        seen_rows = shown = 0
        while limit is None or shown < limit:
            seen = await node.ask(watch, Seen, node=identity, timeout=timeout + watch.wait)
            if seen.lost:
                typer.echo(f"hopline: {seen.lost} more could not be held; see --identity", err=True)
            if not seen.messages:
                continue
            columns = list(dict.fromkeys([*names, *fields_of(wanted)]))
            rows = sightings(_records(seen, seen_rows), segment="live", first_row=seen_rows, columns=columns).messages
            seen_rows += len(seen.messages)
            rows = rows.filter(mask(wanted, rows)).select(names)
            rows = rows if limit is None else rows.slice(0, limit - shown)
            shown += len(rows)
            put_rows(rows, is_json=is_json)

    try:
        visit(
            address,
            list(IDENTITIES),
            show,
            cluster=cluster,
            config=config,
            timeout=timeout,
            bind=bind,
            plain_tcp=plain_tcp,
        )
    except BrokenPipeError:  # as in `| head`
        sys.stderr.close()


def _records(seen: "Seen", before: int) -> "pa.RecordBatch":
    from hopline.capture.record import Records, key_of

    messages = seen.messages
    return Records(
        seen_ns=[one.seen_ns for one in messages],
        seq=range(before + 1, before + 1 + len(messages)),
        tap=[one.point for one in messages],
        frames=[one.frames for one in messages],
        node=key_of(seen.node),
        encoded=[one.encoded for one in messages],
        body_kept=["whole" if one.body_size is None else "none" for one in messages],
        body_size=[one.body_size for one in messages],
    ).to_batch()
