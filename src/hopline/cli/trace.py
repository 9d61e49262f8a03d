"""`hopline trace`: where did my message go?"""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hopline.cli.decode import TtlOption
from hopline.cli.looking import CaptureArgument, SinceOption, UntilOption, looking_at, query_of
from hopline.cli.terminal import JsonOption, complaint, put
from hopline.errors import clean

if TYPE_CHECKING:
    from rich.console import Console
    from rich.tree import Tree

_DEEPEST: Final = 40
"""Steps inside each other that are shown as such: what is deeper is shown as if it were not."""

_MOST_CANDIDATES: Final = 10


def run(
    correlation: Annotated[
        str,
        typer.Argument(
            metavar="CORRELATION", help="The correlation id of the flow, or how it begins; 0x and hex if shown so."
        ),
    ],
    folder: CaptureArgument = "captures",
    since: SinceOption = "",
    until: UntilOption = "",
    v3_ttl: TtlOption = "ms",
    as_json: JsonOption = False,
) -> None:
    """Show one flow as a tree: who sent what to whom, when, how long it took, what failed, and what is missing.

    A message is shown with all its sightings: at the node that sent it and at the one that received it. Times count from
    the first of them. What was not seen is said, and so are clocks that disagree.

    Example:  hopline trace 7efde67d captures/
    """
    with looking_at(folder) as capture:
        from hopline.capture.search import find_flow, id_of
        from hopline.capture.trace import TRACE_COLUMNS, build_trace

        wanted = id_of(correlation)
        if not wanted:
            raise complaint("say which flow: its correlation id, or how it begins")
        found = find_flow(capture, wanted, query_of("", since, until, v3_ttl), TRACE_COLUMNS)
        if found.flow is None:
            raise _not_found(correlation, folder, found.candidates)
        rows = [row for batch in found.flow.messages for row in batch.to_pylist()]
        put(build_trace(rows, sightings=found.flow.sightings), show_trace, as_json=as_json)


def _not_found(correlation: str, folder: str, candidates: dict[str, int]) -> typer.Exit:
    if not candidates:
        hint = "`hopline flows` lists the flows, `hopline capture check` says what is missing"
        return complaint(f"no message of a flow {clean(correlation, 80)} was seen in {folder}; {hint}", code=1)
    some = ", ".join(f"{key} ({count})" for key, count in list(candidates.items())[:_MOST_CANDIDATES])
    more = f" and {len(candidates) - _MOST_CANDIDATES} more" if len(candidates) > _MOST_CANDIDATES else ""
    return complaint(f"{len(candidates)} flows begin with {clean(correlation, 80)}: {some}{more}; write more of it", code=1)


def show_trace(console: "Console", trace: dict[str, Any]) -> None:
    """Show a flow to a person."""
    from rich.text import Text
    from rich.tree import Tree

    console.print(Text.assemble("flow ", (trace["correlation"], "bold"), "  ", _outcome(trace["outcome"])))
    messages = f"{trace['messages']} message{'s' if trace['messages'] > 1 else ''}"
    sightings = f"{trace['sightings']} sighting{'' if trace['sightings'] == 1 else 's'}"
    counts = f"{messages}, {sightings} at {', '.join(trace['nodes'])}"
    console.print(f"{trace['started_at']}, {trace['duration_ms']:.3f} ms; {counts}", markup=False, style="dim")
    tree = Tree("", hide_root=True, guide_style="dim")
    path: list[Tree] = [tree]
    for step in trace["steps"]:
        depth = min(step["depth"], _DEEPEST)
        del path[depth + 1 :]
        path.append(_add_step(path[-1], step))
    console.print(tree)
    for text in trace["missing"]:
        console.print(Text(clean(text), style="yellow"))


def _outcome(outcome: str) -> tuple[str, str]:
    return outcome, {"ok": "green", "exception": "bold red", "pending": "yellow"}.get(outcome, "")


def _add_step(above: "Tree", step: dict[str, Any]) -> "Tree":
    from rich.text import Text

    partition = f" {step['partition']}" if step["partition"] else ""
    title = Text.assemble((f"{step['identity']} v{step['version']}{partition}", "bold"), f"  {step['kind']}")
    if step["addressing"] == "all":
        title.append(" to all")
    elif step["receiver"] or step["receiver_node"]:
        title.append(f" to {step['receiver'] or step['receiver_node']}")
    if step["kind"] == "request":
        title.append(f", waits for {', '.join(step['waits_for'])}")
    details = [f"{step['body_size']} bytes", step["format"]]
    if step["ttl_ms"]:
        details.append(f"ttl {step['ttl_ms']:g} ms")
    if step["times"] > 1:
        details.append(f"sent {step['times']} times")
    if step["made_after_ms"] is not None:
        details.append(f"made {step['made_after_ms']:.3f} ms after that arrived")
    title.append(f"  {', '.join(details)}", "dim")
    if step["failure"]:
        title.append(f"\n{clean(step['failure']['type'])}: {clean(step['failure']['text'], 500)}", "red")
    wide = max(len(sighting["node"]) for sighting in step["sightings"])
    for sighting in step["sightings"]:
        took = ""
        if sighting["latency_ms"] is not None:
            took = f"  {sighting['latency_ms']:.3f} ms {'on the way' if sighting['is_network'] else 'inside'}"
        line = f"\n{sighting['at_ms']:>12.3f} ms  {sighting['node']:<{wide}}  {sighting['tap']:<12}{took}"
        title.append(line, "red" if (sighting["latency_ms"] or 0) < 0 else "")
    for text in step["missing"]:
        title.append(f"\n{clean(text)}", "yellow")
    if len(step["trail"]) > 1:
        title.append(f"\ntrail {' > '.join(step['trail'])}", "dim")
    return above.add(title)
