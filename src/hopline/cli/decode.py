"""`hopline decode`: frames in, fields out."""

from typing import TYPE_CHECKING, Annotated

import typer

from hopline.cli.lines import Answer, FileArgument, JsonOption, answer_lines, read_frames
from hopline.wire import FormatName, TtlUnit, decode, warnings_of
from hopline.wire.fields import extra_to_json, message_to_json
from hopline.wire.primitives import show

if TYPE_CHECKING:
    from rich.console import Console

FormatOption = Annotated[FormatName | None, typer.Option("--format", help="Read as this format instead of detecting it.")]
TtlOption = Annotated[
    TtlUnit, typer.Option("--v3-ttl", help="Unit of TTL in v3: ms as documented, ticks as old senders wrote it.")
]


def run(
    file: FileArgument = "-",
    format: FormatOption = None,
    v3_ttl: TtlOption = "ms",
    as_json: JsonOption = False,
) -> None:
    """Decode messages of any format.

    Each input line is JSON with `frames`, a list of hex texts; frame 0 is the socket identity. The answer holds the format,
    its variant, the number read and all fields.

    Example:  hopline decode capture.jsonl | head -1
    """

    def answer(line: bytes) -> Answer:
        decoded = decode(read_frames(line), format=format, v3_ttl=v3_ttl)
        for warning in warnings_of(decoded.message):
            typer.echo(f"warning: {warning} in flow {show(decoded.message.correlation_id)}", err=True)
        result: Answer = {
            "ok": True,
            "format": decoded.format,
            "variant": decoded.variant,
            "wire_version": decoded.wire_version,
            "fields": message_to_json(decoded.message),
        }
        if decoded.extra is not None:
            result["extra"] = extra_to_json(decoded.extra)
        return result

    if not answer_lines(file, answer, show_message, as_json=as_json):
        raise typer.Exit(1)


_TICKS_PER_SECOND = 10_000_000


def show_message(console: "Console", number: int, result: Answer) -> None:
    """Show a decoded message to a person: what it is, then each field that is not empty."""
    from rich.markup import escape
    from rich.tree import Tree

    fields = result["fields"]
    layout = f"{result['format']} {result['variant']}".strip()
    title = f"[bold]{escape(_readable(fields['identity']))}[/bold] version {fields['version']}"
    tree = Tree(f"{title}  [dim]line {number}, {layout}[/dim]")
    for name, value in fields.items():
        if name in ("identity", "version") or not value:
            continue
        if name == "callback_points":
            branch = tree.add("callback_points")
            for point in value:
                partition = f" partition {_readable(point['partition'])}" if point["partition"] else ""
                branch.add(escape(f"{_readable(point['identity'])} version {point['version']}{partition}"))
        elif name == "routing":
            branch = tree.add("routing")
            for entry in value:
                branch.add(escape(f"{show(entry['uri'].encode())} {_readable(entry['identity'])}"))
        elif name == "ttl_ticks":
            tree.add(f"ttl_ticks {value} ({value / _TICKS_PER_SECOND:g} s)")
        elif name == "domain":
            tree.add(escape(f"domain {show(value.encode())}"))
        elif isinstance(value, str) and name != "distribution":
            tree.add(escape(f"{name} {_readable(value)}"))
        else:
            tree.add(escape(f"{name} {value}"))
    if "extra" in result:
        tree.add(escape(f"extra {result['extra']}"))
    console.print(tree)


def _readable(text: str) -> str:
    raw = bytes.fromhex(text)
    return show(raw) if len(raw) <= 80 else f"{show(raw[:64])} ... {len(raw)} bytes"
