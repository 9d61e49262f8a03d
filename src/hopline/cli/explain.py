"""`hopline explain`: the annotated byte map."""

from typing import TYPE_CHECKING

import typer

from hopline.cli.decode import FormatOption, TtlOption
from hopline.cli.lines import Answer, FileArgument, JsonOption, answer_lines, error_to_json, read_frames, show_tried
from hopline.wire.explain import explain

if TYPE_CHECKING:
    from rich.console import Console

_LONGEST_SHOWN = 24
_LONGEST_MEANING = 80


def run(
    file: FileArgument = "-",
    format: FormatOption = None,
    v3_ttl: TtlOption = "ms",
    as_json: JsonOption = False,
) -> None:
    """Show where every byte of a message belongs, and where a broken one breaks.

    Each input line is JSON with `frames`. The map has a row for every field: frame, offset in the frame, size, name,
    bytes and meaning.

    Example:  head -1 capture.jsonl | hopline explain
    """

    def answer(line: bytes) -> Answer:
        frames = read_frames(line)
        explanation = explain(frames, format=format, v3_ttl=v3_ttl)
        result: Answer = {"ok": True, "format": explanation.format, "variant": explanation.variant}
        result["map"] = [
            {
                "frame": span.frame,
                "offset": span.offset,
                "size": span.size,
                "field": span.field,
                "bytes": frames[span.frame][span.offset : span.offset + span.size].hex(),
                "meaning": span.meaning,
            }
            for span in explanation.spans
        ]
        if explanation.error is not None:
            result |= error_to_json(explanation.error)
            result["error"] |= {"frame": explanation.error.frame, "offset": explanation.error.offset}
        return result

    if not answer_lines(file, answer, _show, as_json=as_json):
        raise typer.Exit(1)


def _show(console: "Console", number: int, result: Answer) -> None:
    from rich.table import Table
    from rich.text import Text

    layout = f"{result['format']} {result['variant']}".strip() or "no format we know"
    table = Table(title=f"line {number}: {layout}", title_justify="left", box=None, pad_edge=False)
    for name, justify in (("frame", "right"), ("offset", "right"), ("size", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name in ("field", "bytes", "meaning"):
        table.add_column(name, overflow="fold")
    error = result.get("error")
    for row in result["map"]:
        raw = row["bytes"]
        shown = raw if len(raw) <= 2 * _LONGEST_SHOWN else raw[: 2 * _LONGEST_SHOWN] + "..."
        at = (row["frame"], row["offset"])
        is_break = error is not None and at[0] == error["frame"] and error["offset"] in (None, at[1])
        meaning = row["meaning"] if len(row["meaning"]) <= _LONGEST_MEANING else row["meaning"][:_LONGEST_MEANING] + "..."
        cells = (*map(str, (*at, row["size"])), row["field"], shown, meaning)
        table.add_row(*map(Text, cells), style="bold red" if is_break else None)
    console.print(table)
    if error is not None:
        console.print(Text(f"breaks here: {error['code']}  {error['message']}", style="bold red"))
        show_tried(console, error)
