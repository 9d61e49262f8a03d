"""`hopline report`: the tables of the pipeline as one page that people look at."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from hopline.cli.lines import usage_error
from hopline.cli.looking import SinceOption, UntilOption, query_of
from hopline.cli.terminal import JsonOption, complaint, failure, put
from hopline.errors import TablesError

if TYPE_CHECKING:
    from rich.console import Console

REPORT_EXIT_CODES: Final = """
Exit codes: 0 the page is written, whatever it says; 1 it cannot be written; 2 wrong usage, or there are no tables that can
be read; 130 interrupted.
"""

_MOST: Final = 100
"""Flows that are drawn at most: the page stays one that a browser opens at once."""

_SIGNS: Final = {"bad": ("✕", "red"), "note": ("i", "dim"), "good": ("✓", "green")}


def run(
    tables: Annotated[
        Path,
        typer.Argument(metavar="TABLES", help="The folder of the tables, as pipeline run makes it.", show_default=False),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page; one that is there is replaced.")
    ] = Path("report.html"),
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="The title of the page.")] = "What the network did",
    top: Annotated[
        int, typer.Option("--top", metavar="N", min=1, max=_MOST, help="Flows that are drawn, and rows of long lists.")
    ] = 10,
    since: SinceOption = "",
    until: UntilOption = "",
    as_json: JsonOption = False,
) -> None:
    """Make one page of the tables: traffic, who talks to whom, latency, slow flows, failures, losses, signatures.

    The page is one file that needs no network and runs no script; any browser shows it, and it prints well. Tables are
    read as they are at one moment, also while the pipeline is writing to them, and in bounded memory, whatever their size.
    A section without anything to show says why. Neither Spark nor Java is needed.

    Example:  hopline report tables/ -o report.html --title 'Orders, last night' --since 12h
    """
    if output.is_dir():
        raise usage_error(f"-o must be a file, and {output} is a folder")
    try:
        from hopline.report.making import make_report

        query = query_of("", since, until, "ms")
        if query.since and query.until and query.since >= query.until:
            raise usage_error(f"--since must be before --until, and {since} is not before {until}")
        made = make_report(tables, output, title=title, top=top, since=query.since, until=query.until)
    except ModuleNotFoundError as error:
        if error.name not in ("numpy", "pyarrow"):
            raise
        raise complaint("the report needs numpy and pyarrow: pip install 'hopline[columnar]'") from None
    except TablesError as error:
        hint = "make them: hopline pipeline run CAPTURES TABLES" if error.code == "TABLES_NOT_FOUND" else ""
        raise failure(error, hint=hint, code=2) from None
    except OSError as error:
        raise complaint(f"cannot write {output}: {error.strerror or error}", code=1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    put({"ok": True, **msgspec.to_builtins(made)}, show_made, as_json=as_json)


def show_made(console: "Console", made: dict[str, Any]) -> None:
    """Tell a person what was found, and where the page is."""
    from rich.text import Text

    for found in made["found"]:
        sign, style = _SIGNS[found["grade"]]
        console.print(Text.assemble((sign, style), " ", found["text"]))
    console.print(Text(f"\n{made['report']}", style="bold"), soft_wrap=True)
