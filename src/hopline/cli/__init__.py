"""The command line. One file a command; what is heavy is imported inside the command that needs it."""

from typing import Annotated

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

NODE_EXIT_CODES = """
Exit codes: 0 all is well, 1 the message came to a bad end (its code is on standard error), 2 wrong usage,
130 interrupted.
"""

app = typer.Typer(
    name="hopline",
    help="Read, write and check messages that carry their own itinerary; run nodes, and ask them.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: it wraps paragraphs to the width of the terminal, and starts sooner
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, command in {"decode": decode, "encode": encode, "verify": verify, "explain": explain}.items():
    app.command(name, epilog=EXIT_CODES)(command.run)
for name, command in {
    "node": node,
    "rendezvous": rendezvous,
    "status": status,
    "routes": routes,
    "ask": ask,
    "tell": tell,
    "tap": tap,
    "doctor": doctor,
}.items():
    app.command(name, epilog=NODE_EXIT_CODES)(command.run)
for name, command in {"trace": trace, "dump": dump, "flows": flows, "stats": stats}.items():
    app.command(name, epilog=LOOKING_EXIT_CODES)(command.run)
app.command("replay", epilog=REPLAY_EXIT_CODES)(replay.run)
app.command("report", epilog=REPORT_EXIT_CODES)(report.run)
app.add_typer(keys.app)
app.add_typer(cluster.app)
app.add_typer(capture.app)
app.add_typer(pipeline.app)


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
