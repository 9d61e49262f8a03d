"""`hopline dump`: what was seen, message by message."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
import typer

from hopline.cli.decode import TtlOption
from hopline.cli.lines import JsonOption, usage_error
from hopline.cli.looking import CaptureArgument, SinceOption, UntilOption, WhereOption, clock, looking_at, query_of
from hopline.errors import clean

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.text import Text

SHOWN: Final = (
    "seen_ns",
    "node_key",
    "tap",
    "identity_key",
    "version",
    "partition_key",
    "addressing",
    "receiver_key",
    "is_callback",
    "is_system",
    "domain",
    "body_size",
    "correlation_key",
    "hops",
    "warnings",
)
"""What a person is shown if no columns are asked for."""


def run(
    folder: CaptureArgument = "captures",
    also: Annotated[str, typer.Argument(metavar="[FILTER]", help="Only what passes it.", show_default=False)] = "",
    where: WhereOption = "",
    since: SinceOption = "",
    until: UntilOption = "",
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="At most so many.")] = None,
    order: Annotated[
        Literal["time", "file"],
        typer.Option("--sort", help="By time; or as they stand in the files, at once and however many there are."),
    ] = "time",
    columns: Annotated[
        str, typer.Option("--columns", metavar="A,B,...", help="These columns of the table messages; body too if named.")
    ] = "",
    rejects: Annotated[bool, typer.Option("--rejects", help="Show what is no message instead.")] = False,
    v3_ttl: TtlOption = "ms",
    as_json: JsonOption = False,
) -> None:
    """Show what was seen, message by message.

    A filter asks for fields, which are the columns of the table messages or short names of them: identity, node, tap,
    direction, correlation (or flow), receiver, origin, domain, hops, ttl, size, time, is_callback, is_system ...
    Operators are == != < <= > >= and ~ for a pattern with * and ?; in (a, b); is empty; and, or, not, brackets. Texts with
    spaces or operators in them are quoted.

    Example:  hopline dump captures/ 'identity ~ ORDER.* and not is_callback and size > 100' --limit 20
    """
    with looking_at(folder) as capture:
        from hopline.capture.filter import And
        from hopline.capture.query import Dump
        from hopline.capture.tables import DEFAULT_COLUMNS, MESSAGES

        query = query_of(also, since, until, v3_ttl)
        if where:
            query = replace(query, where=And((query.where, query_of(where, since, until, v3_ttl).where)))
        is_json = as_json or not sys.stdout.isatty()
        names = [name.strip() for name in columns.split(",")] if columns else list(DEFAULT_COLUMNS if is_json else SHOWN)
        if len(set(names) & set(MESSAGES.names)) != len(names):
            known = ", ".join(MESSAGES.names)
            raise usage_error(f"--columns must name some of {known}, each once, and not {columns}")
        if rejects:
            left = limit
            for found in query.read(capture, ["event_id"]):
                put_rows(found.rejects.slice(0, left), is_json=is_json, is_chosen=True)
                left = None if left is None else max(left - len(found.rejects), 0)
            return
        dump = Dump(capture, query, names, order=order, limit=limit)
        for batch in dump:
            put_rows(batch, is_json=is_json, is_chosen=bool(columns))
        if dump.rejected:
            typer.echo(f"hopline: {dump.rejected} more are no messages; --rejects shows them", err=True)


def put_rows(batch: "pa.RecordBatch", *, is_json: bool, is_chosen: bool = False) -> None:
    """Write rows, at once: as JSON lines, or a line each for a person, of SHOWN or of the columns that were chosen."""
    rows = _rows(batch)
    if is_json:
        sys.stdout.buffer.write(msgspec.json.Encoder().encode_lines(rows))
        sys.stdout.buffer.flush()
        return
    from rich.console import Console

    console = Console(highlight=False)
    for row in rows:
        text = "  ".join(f"{name} {clean(str(value))}" for name, value in row.items()) if is_chosen else _line(row)
        console.print(text, soft_wrap=True, markup=False)


def _rows(batch: "pa.RecordBatch") -> list[dict[str, Any]]:
    """The rows as JSON can hold them: bytes in hex."""
    import pyarrow as pa

    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = column.to_pylist()
        columns[name] = (
            [None if value is None else value.hex() for value in values] if pa.types.is_binary(column.type) else values
        )
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _line(row: dict[str, Any]) -> "Text":
    """A sighting in one line: when, who, where, what, to whom, how much, of which flow."""
    from rich.text import Text

    version = "" if row["version"] is None else f" v{row['version']}"
    partition = f" {row['partition_key']}" if row["partition_key"] else ""
    style = "dim" if row["is_system"] else "green" if row["is_callback"] else "bold"
    line = Text.assemble(
        (clock(row["seen_ns"]), "dim"),
        f"  {row['node_key']}  {row['tap']:<12}  ",
        (f"{row['identity_key']}{version}{partition}", style),
    )
    if row["addressing"] != "any":
        line.append(f"  to {row['receiver_key'] or row['addressing']}")
    line.append(f"  {row['body_size']} bytes")
    if row["domain"]:
        line.append(f"  domain {clean(row['domain'], 40)}")
    if row["hops"] > 1:
        line.append(f"  hop {row['hops']}")
    if row["correlation_key"]:
        line.append(f"  flow {row['correlation_key']}", "dim")
    for warning in row["warnings"]:
        line.append(f"  {clean(warning)}", "yellow")
    return line
