"""`hopline stats`: what is in a capture, counted."""

from typing import TYPE_CHECKING, Any, Final

from hopline.cli.decode import TtlOption
from hopline.cli.looking import CaptureArgument, SinceOption, UntilOption, WhereOption, clock, looking_at, query_of
from hopline.cli.terminal import JsonOption, put
from hopline.errors import clean

if TYPE_CHECKING:
    from rich.console import Console

_MOST_SHOWN: Final = 40
"""Rows of a table that a person is shown; as JSON all of them come."""


def run(
    folder: CaptureArgument = "captures",
    where: WhereOption = "",
    since: SinceOption = "",
    until: UntilOption = "",
    v3_ttl: TtlOption = "ms",
    as_json: JsonOption = False,
) -> None:
    """Count what was seen: by message type, node, tap, format, domain, and by error what is no message.

    Sightings are counted: a message that was seen by its sender and by its receiver counts twice.

    Example:  hopline stats captures/ --where 'not is_system'
    """
    with looking_at(folder) as capture:
        from hopline.capture.stats import count

        put(count(capture, query_of(where, since, until, v3_ttl)), show_stats, as_json=as_json)


def show_stats(console: "Console", stats: dict[str, Any]) -> None:
    """Show counts to a person, the most frequent first."""
    rejected = f", {stats['rejected']} of them no messages" if stats["rejected"] else ""
    console.print(f"{stats['sightings']} sightings{rejected}, {stats['body_bytes']} bytes of bodies", markup=False)
    if stats["first_ns"] is not None:
        console.print(f"from {clock(stats['first_ns'])} to {clock(stats['last_ns'])} UTC", style="dim")
    types = {_type_name(row): (row["sightings"], "dim" if row["is_system"] else "") for row in stats["types"]}
    formats = {f"{row['format']} {row['variant']}".strip(): row["sightings"] for row in stats["formats"]}
    _show(console, "type", types)
    for title, counts in (
        ("node", stats["nodes"]),
        ("tap", stats["taps"]),
        ("format", formats),
        ("domain", {clean(name, 60) or "none": number for name, number in stats["domains"].items()}),
        ("error", stats["errors"]),
    ):
        _show(console, title, {name: (number, "red" if title == "error" else "") for name, number in counts.items()})


def _type_name(row: dict[str, Any]) -> str:
    return f"{row['identity']} v{row['version']}"


def _show(console: "Console", title: str, counts: dict[str, tuple[int, str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    if not counts:
        return
    table = Table(box=None, pad_edge=False, title=None)
    table.add_column(title)
    table.add_column("sightings", justify="right")
    for name, (number, style) in list(counts.items())[:_MOST_SHOWN]:
        table.add_row(Text(name, style=style), str(number))
    if len(counts) > _MOST_SHOWN:
        table.add_row(Text(f"{len(counts) - _MOST_SHOWN} more; --json shows all", style="dim"), "")
    console.print()
    console.print(table)
