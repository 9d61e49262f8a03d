"""`hopline replay`: a capture, played again into a running node."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from hopline.cli.capture import FolderArgument
from hopline.cli.client import (
    BindOption,
    ConfigOption,
    PlainTcpOption,
    missing_identities,
    until_known,
    visit,
)
from hopline.cli.decode import TtlOption
from hopline.cli.lines import usage_error
from hopline.cli.looking import SinceOption, UntilOption, WhereOption, looking_at, query_of
from hopline.cli.terminal import complaint, put
from hopline.errors import clean
from hopline.wire import TtlUnit

if TYPE_CHECKING:
    from types import FrameType

    from rich.console import Console

    from hopline.assembly import Node
    from hopline.replay import Outcome, Plan, Play, Player, Result

REPLAY_EXIT_CODES: Final = """
Exit codes: 0 everything came back as it did then, 1 something did not, or there is nothing to play, 2 wrong usage, or the
capture cannot be read, 130 interrupted.
"""

_MOST_SHOWN: Final = 20
"""Differences that a person is shown one by one; as JSON all messages come."""

_PROGRESS_S: Final = 0.2
"""How often progress is shown."""

_PATIENCE_S: Final = 1.0
"""How long the target may take to tell which types it takes: one message for each domain, soon after we meet."""


def run(
    folder: FolderArgument,
    to: Annotated[
        str, typer.Option("--to", metavar="ADDRESS", help="The node to play into, such as tcp://127.0.0.1:5101.")
    ] = "",
    speed: Annotated[
        str,
        typer.Option("--speed", metavar="1|10|max", help="The original pace, so many times faster, or as fast as it goes."),
    ] = "1",
    where: WhereOption = "",
    since: SinceOption = "",
    until: UntilOption = "",
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="At most so many, the first ones.")] = None,
    broadcasts: Annotated[bool, typer.Option("--broadcasts", help="Play broadcasts too.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.01, max=3600, help="Seconds that each answer may take.")
    ] = 10.0,
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=1, max=100_000, help="At most so many are under way at once.")
    ] = 100,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be played.")] = False,
    config: ConfigOption = None,
    bind: BindOption = "",
    plain_tcp: PlainTcpOption = False,
    v3_ttl: TtlOption = "ms",
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines, also on a terminal.")] = False,
) -> None:
    """Play a capture into a running node, and compare what comes back with what came back then.

    Played is what began at a hub: requests and one-way messages, with their bodies as they were. Answers, and what actors
    sent on, the network makes anew, and messages of nodes (KINO.*, HOPLINE.*) are left alone. Correlation ids and
    signatures are new, with the keys of --config; answers come to us, and nothing is sent to any other node than the one
    named by --to. A type that it does not take is counted as NO_ROUTE, and not sent.

    As JSON there is a line for each message, as soon as it is known what came of it, and the summary as the last one.
    Ctrl-C stops sending, waits for what is under way and reports; a second one ends at once.

    Example:  hopline replay captures/ --to tcp://127.0.0.1:5101 --speed max --where 'identity ~ ORDER.*'
    """
    pace = _pace(speed)
    if not to and not dry_run:
        raise usage_error("say into which node: --to tcp://HOST:PORT; --dry-run says what would be played")
    with looking_at(folder) as capture:
        from hopline.replay import make_plan

        plan = make_plan(capture, query_of(where, since, until, v3_ttl), limit=limit, broadcasts=broadcasts)
        if dry_run:
            put({"plan": _plan_answer(plan, pace)}, _show_plan, as_json=as_json)
        if not len(plan):
            raise complaint(f"nothing to play in {folder}{_reasons(plan.skipped)}", code=1)
        if dry_run:
            return
        replay = _Replay(plan, pace=pace, timeout=timeout, in_flight=in_flight, v3_ttl=v3_ttl, is_json=as_json)
        identities = sorted({kind.identity.decode(errors="replace") for kind in plan.types()})
        visit(to, identities, replay.play, config=config, timeout=timeout, bind=bind, plain_tcp=plain_tcp, is_strict=True)
        put({"summary": replay.summary(to)}, replay.show, as_json=as_json)
        if config is not None:
            _complain_of_domains(config, replay.unheard)
    if replay.player.is_stopped:
        raise typer.Exit(130)
    if not replay.is_good:
        raise typer.Exit(1)


def _pace(text: str) -> float | None:
    if text == "max":
        return None
    try:
        pace = float(text)
    except ValueError:
        pace = 0.0
    if not 0 < pace <= 1e6:
        raise usage_error(f"--speed must be max or a number above 0, such as 1 or 10, and not {text}")
    return pace


class _Replay:
    """One replay: what is played, and what came of it so far."""

    player: "Player"

    def __init__(
        self, plan: "Plan", *, pace: float | None, timeout: float, in_flight: int, v3_ttl: TtlUnit, is_json: bool
    ) -> None:
        from hopline.replay import Report, Script

        self.plan = plan
        self.script = Script(plan, v3_ttl=v3_ttl)
        self.report = Report()
        self.seconds = 0.0
        self.unheard: set[str] = set()
        """Identities that were waited for in vain."""
        self._pace = pace
        self._timeout = timeout
        self._in_flight = in_flight
        self._is_json = is_json or not sys.stdout.isatty()
        self._differences: list[Result] = []
        self._progress = _Progress(len(plan))

    async def play(self, node: "Node", target: bytes, _seconds: float) -> None:
        """Play into a node that we have met."""
        import asyncio

        from hopline.replay import Player

        self.player = Player(node, self._played, speed=self._pace, timeout=self._timeout, in_flight=self._in_flight)
        with _Interrupt(self.player):
            waits = (until_known(node, target, kind, _PATIENCE_S) for kind in self.plan.types())
            await asyncio.gather(*waits, return_exceptions=True)  # what it does not take is not sent
            began = time.monotonic()
            await self.player.play(self.script.windows())
        self.seconds = time.monotonic() - began
        self._progress.clear()

    def _played(self, play: "Play", outcome: "Outcome") -> None:
        result = self.report.add(play, outcome)
        if outcome.end == "EXPIRED":
            self.unheard.update(kind.identity.decode(errors="replace") for kind in play.replies)
        if self._is_json:
            put({"message": result}, self.show, as_json=True)
        elif result.difference and len(self._differences) < _MOST_SHOWN:
            self._differences.append(result)
        self._progress.show(self.report.played, self.report.different)

    @property
    def is_good(self) -> bool:
        """Whether all that was planned was played, and came back as it did then."""
        return not (self.report.different or self.script.gone or self.player.is_stopped)

    def summary(self, target: str) -> dict[str, Any]:
        """All of it in numbers."""
        skipped = self.plan.skipped | ({"gone": self.script.gone} if self.script.gone else {})
        numbers: dict[str, Any] = msgspec.to_builtins(self.report.summary())
        about = {
            "ok": self.is_good,
            "target": target,
            "planned": len(self.plan),
            "skipped": skipped,
            "interrupted": self.player.is_stopped,
            "seconds": self.seconds,
            "behind_ms": self.player.behind_ms,
        }
        return about | {name: value for name, value in numbers.items() if name != "ok"}

    def show(self, console: "Console", answer: dict[str, Any]) -> None:
        """Show the summary to a person."""
        _show_summary(console, answer["summary"])
        for result in self._differences:
            console.print(_difference_line(result), style="yellow", markup=False, soft_wrap=True)
        if self.report.different > len(self._differences):
            more = self.report.different - len(self._differences)
            console.print(f"{more} more differ; --json shows all of them", style="dim")


class _Interrupt:
    """While it holds, the first Ctrl-C stops the player, and the second one ends the process whatever it does."""

    def __init__(self, player: "Player") -> None:
        self._player = player
        self._is_heard = False

    def __enter__(self) -> None:
        import asyncio
        import signal

        self._loop = asyncio.get_running_loop()
        self._before = signal.signal(signal.SIGINT, self._hear)

    def __exit__(self, *_: object) -> None:
        import signal

        signal.signal(signal.SIGINT, self._before)

    def _hear(self, _number: int, _frame: "FrameType | None") -> None:
        if self._is_heard:
            os._exit(130)
        self._is_heard = True
        self._loop.call_soon_threadsafe(self._player.stop)


class _Progress:
    """How far it is, on a terminal only."""

    def __init__(self, planned: int) -> None:
        self._planned = planned
        self._is_on = sys.stderr is not None and sys.stderr.isatty()
        self._shown_at = 0.0

    def show(self, played: int, different: int) -> None:
        if self._is_on and time.monotonic() - self._shown_at >= _PROGRESS_S:
            self._shown_at = time.monotonic()
            typer.echo(f"\r\x1b[K{played} of {self._planned} played, {different} different", err=True, nl=False)

    def clear(self) -> None:
        if self._is_on:
            typer.echo("\r\x1b[K", err=True, nl=False)


def _complain_of_domains(config: Path, unheard: set[str]) -> None:
    """An answer in no domain of ours is refused, and so looks like none."""
    from hopline.assembly import read_settings

    if missing := missing_identities(read_settings(config).domains, sorted(unheard)):
        names = ", ".join(missing)
        typer.echo(f"hopline: no domain in {config} has {names}, so such answers were refused: add them", err=True)


# Showing.


def _reasons(skipped: dict[str, int]) -> str:
    from hopline.replay.plan import SKIPS

    return "".join(f"; {count} not played: {SKIPS[why]}" for why, count in skipped.items())


def _plan_answer(plan: "Plan", pace: float | None) -> dict[str, Any]:
    from hopline.replay.outcome import name_of

    return {
        "messages": len(plan),
        "skipped": plan.skipped,
        "seconds_then": plan.seconds,
        "seconds": plan.seconds / pace if pace is not None else None,
        "types": {name_of(kind): count for kind, count in plan.types().items()},
    }


def _show_plan(console: "Console", answer: dict[str, Any]) -> None:
    plan = answer["plan"]
    took = "as fast as possible" if plan["seconds"] is None else f"in {plan['seconds']:.1f} s"
    console.print(f"{plan['messages']} messages would be played {took}{_reasons(plan['skipped'])}", markup=False)
    _show_rows(console, ["type", "messages"], [[name, str(count)] for name, count in plan["types"].items()])


def _show_summary(console: "Console", summary: dict[str, Any]) -> None:
    played, planned = summary["played"], summary["planned"]
    pace = f"{played / summary['seconds']:.0f} a second" if summary["seconds"] else ""
    behind = f", at most {summary['behind_ms']:.0f} ms late" if summary["behind_ms"] >= 1 else ""
    line = f"{played} of {planned} messages played into {summary['target']} in {summary['seconds']:.1f} s, {pace}{behind}"
    console.print(f"{line}{_reasons(summary['skipped'])}", markup=False, soft_wrap=True)
    ends = dict.fromkeys([*summary["then"], *summary["now"]])
    counts = [[end, str(summary["then"].get(end, 0)), str(summary["now"].get(end, 0))] for end in ends]
    _show_rows(console, ["end", "then", "now"], counts)
    waits = summary["wait_ms"]
    if waits["messages"]:
        rows = [[when, *(f"{value:.2f}" for value in waits[when].values())] for when in ("then", "now")]
        _show_rows(console, [f"ms, {waits['messages']} messages", *waits["now"]], rows)
    answers, bodies = summary["answers"], summary["bodies"]
    console.print()
    if any(answers.values()):
        console.print(
            f"answers: {answers['same_type']} of the same type, {answers['other_type']} of another, "
            f"{answers['no_answer_then']} where there was none; "
            f"bodies: {bodies['equal']} equal, {bodies['different']} different, {bodies['unknown']} not known",
            markup=False,
        )
    if summary["interrupted"]:
        console.print("interrupted", style="bold yellow")
    if summary["different"]:
        by = ", ".join(f"{count} in {what}" for what, count in summary["differences"].items())
        console.print(f"{summary['different']} differ ({by}), {summary['alike']} are alike", style="bold red")
    else:
        console.print(f"all {summary['alike']} are alike", style="green")


def _show_rows(console: "Console", head: list[str], rows: list[list[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for number, title in enumerate(head):
        table.add_column(title, justify="right" if number else "left")
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    console.print()
    console.print(table)


def _difference_line(result: "Result") -> str:
    then, now = (clean(f"{outcome.end} {outcome.type}".strip()) for outcome in (result.then, result.now))
    what = f"then {then}, now {now}" if result.difference != "body" else f"{now} with another body"
    return f"{clean(result.type)}  {what}  flow {result.flow}"
