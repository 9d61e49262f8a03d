"""`hopline flows`: which flows were slow, failed, or are still waiting?"""

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
import typer

from hopline.cli.decode import TtlOption
from hopline.cli.lines import JsonOption
from hopline.cli.looking import CaptureArgument, SinceOption, UntilOption, WhereOption, clock, looking_at, query_of
from hopline.errors import clean

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN: Final = {"failed": "latest that failed", "unanswered": "oldest without an answer"}
_STYLES: Final = {"exception": "red", "pending": "yellow", "ok": "green"}


def run(
    folder: CaptureArgument = "captures",
    show: Annotated[
        Literal["slowest", "failed", "unanswered", "latest"],
        typer.Option("--show", help="Which ones: failed are the latest of those, unanswered the oldest."),
    ] = "slowest",
    where: WhereOption = "",
    since: SinceOption = "",
    until: UntilOption = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="At most so many; 0 for all.")] = 20,
    v3_ttl: TtlOption = "ms",
    as_json: JsonOption = False,
) -> None:
    """List flows: when they began, how long they took, what came of them.

    A flow is what has one correlation id. The outcome is ok (who waits got an answer), exception, pending (somebody got
    none) or one-way (nobody waits). With a filter those flows are listed of which one message passes it.

    Example:  hopline flows captures/ --show failed --where 'identity ~ ORDER.*'
    """
    with looking_at(folder) as capture:
        from hopline.capture.flows import find_flows

        query = query_of(where, since, until, v3_ttl)
        found = find_flows(capture, query, show=show, limit=limit or None)
        if as_json or not sys.stdout.isatty():
            sys.stdout.buffer.write(msgspec.json.Encoder().encode_lines(found.shown))
        else:
            from rich.console import Console

            show_flows(Console(highlight=False), msgspec.to_builtins(found), show)


def show_flows(console: "Console", found: dict[str, Any], show: str) -> None:
    """Show a list of flows to a person."""
    from rich.text import Text

    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(found["outcomes"].items()))
    console.print(f"{found['flows']} flows{': ' if outcomes else ''}{outcomes}", markup=False)
    if not found["shown"]:
        return
    console.print(f"The {len(found['shown'])} {_SHOWN.get(show, show)}:", markup=False)
    # By hand, and not as a table that fits the terminal: an id that is cut short cannot be copied.
    wide = max(len(row["correlation"]) for row in found["shown"])
    head = (
        f"{'flow':<{wide}}  {'began (UTC)':<26}  {'ms':>12}  {'outcome':<9}  {'messages':>8}  {'sightings':>9}  {'nodes':>5}"
    )
    console.print(f"{head}  first message", style="bold", markup=False, soft_wrap=True)
    for row in found["shown"]:
        numbers = f"{row['messages']:>8}  {row['sightings']:>9}  {row['nodes']:>5}"
        line = Text(f"{row['correlation']:<{wide}}  {clock(row['started_ns'])}  {row['duration_ms']:>12.3f}  ")
        line.append(f"{row['outcome']:<9}", _STYLES.get(row["outcome"], ""))
        line.append(f"  {numbers}  {row['root_identity']} at {row['root_node']}")
        if row["failure"]:
            line.append(f"  {clean(row['failure']['type'])}: {clean(row['failure']['text'])}", "red")
        console.print(line, soft_wrap=True)
