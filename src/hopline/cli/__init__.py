"""The command line. One file a command; what is heavy is imported inside the command that needs it."""

from types import ModuleType
from typing import Annotated, Final

import typer

from hopline import __version__
from hopline.cli import (
    ask,
    capture,
    cluster,
    decode,
    doctor,
    dump,
    encode,
    explain,
    flows,
    keys,
    node,
    pipeline,
    rendezvous,
    replay,
    report,
    routes,
    stats,
    status,
    tap,
    tell,
    trace,
    verify,
)
from hopline.cli.looking import LOOKING_EXIT_CODES
from hopline.cli.replay import REPLAY_EXIT_CODES
from hopline.cli.report import REPORT_EXIT_CODES

EXIT_CODES = """
Exit codes: 0 all is well, 1 at least one line was rejected (or, with verify, is not valid), 2 wrong usage,
130 interrupted.
"""

RUNNING_EXIT_CODES = """
Exit codes: 0 it ran until it was told to end, 2 it could not begin, 130 interrupted before it ran.
"""

NODE_EXIT_CODES = """
Exit codes: 0 all is well, 1 the message came to a bad end (its code is on standard error), 2 wrong usage,
130 interrupted.
"""

_SHORT: Final = {
    "explain": "Show where every byte of a message belongs.",
    "rendezvous": "Run a rendezvous, through which nodes find each other.",
    "routes": "Show the actors of a running node, and of those it knows.",
    "ask": "Send a request, and print the body of the answer.",
    "tell": "Send a message, and wait for its receipt.",
    "tap": "Show the messages of a running node as they pass.",
    "doctor": "Show what works on this machine, and what to install.",
    "trace": "Show one flow as a tree: who sent what to whom, and when.",
    "flows": "List flows: when they began, how long they took.",
    "stats": "Count what was seen, by type, node, tap and format.",
    "replay": "Play a capture into a running node, and compare.",
    "report": "Make one page of the tables, for people to look at.",
    "pipeline": "Make tables of captures, with Spark.",
}
"""What stands in the list of commands, where the first sentence of one is too long for a terminal of 80 columns."""

app = typer.Typer(
    name="hopline",
    help="Read, write and check messages that carry their own itinerary; run nodes, and ask them.",
    epilog="Each command says its exit codes: hopline COMMAND --help.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: it wraps paragraphs to the width of the terminal, and starts sooner
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
_COMMANDS: Final[tuple[tuple[str | None, dict[str, ModuleType]], ...]] = (
    (EXIT_CODES, {"decode": decode, "encode": encode, "verify": verify, "explain": explain}),
    (RUNNING_EXIT_CODES, {"node": node, "rendezvous": rendezvous}),
    (NODE_EXIT_CODES, {"status": status, "routes": routes, "ask": ask, "tell": tell, "tap": tap}),
    (None, {"doctor": doctor}),
    (LOOKING_EXIT_CODES, {"trace": trace, "dump": dump, "flows": flows, "stats": stats}),
    (REPLAY_EXIT_CODES, {"replay": replay}),
    (REPORT_EXIT_CODES, {"report": report}),
)
"""Commands, by what their exit codes mean."""

for exit_codes, commands in _COMMANDS:
    for name, command in commands.items():
        app.command(name, epilog=exit_codes, short_help=_SHORT.get(name))(command.run)
app.add_typer(keys.app)
app.add_typer(cluster.app)
app.add_typer(capture.app)
app.add_typer(pipeline.app, short_help=_SHORT["pipeline"])


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hopline {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Read, write and check messages that carry their own itinerary; run nodes, and ask them."""


def main() -> None:
    """Run the command line."""
    app(prog_name="hopline")
