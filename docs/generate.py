"""`make docs`: write the pages that are made from the code. `--check` only says whether they are up to date."""

import sys
from pathlib import Path
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from hopline import errors
from hopline.cli import app

HERE = Path(__file__).parent


def errors_page() -> str:
    """The reference of error codes, from `hopline.errors`."""
    tree = (errors.__doc__ or "").split("\n\n")[1]
    rows = [f"| `{code}` | {entry.meaning} | {entry.remedy} |" for code, entry in errors.CODES.items()]
    return "\n".join(
        [
            "# Errors",
            "",
            "Generated from the code by `make docs`.",
            "",
            "Everything raised on purpose is a `HoplineError` with a stable `code`; the command line prints the same codes.",
            "",
            tree,
            "",
            "| code | what happened | what to do |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def commands_page() -> str:
    """The reference of commands, from their own help."""
    lines = ["# Commands", "", "Generated from the code by `make docs`: what `--help` says.", ""]
    for words in [[], *_commands(get_command(app), [])]:
        shown = CliRunner().invoke(app, [*words, "--help"], prog_name="hopline", terminal_width=100, max_content_width=100)
        lines += [f"## {' '.join(['hopline', *words])}", "", "```text", shown.output.strip(), "```", ""]
    return "\n".join(lines)


def _commands(group: Any, words: list[str]) -> list[list[str]]:  # noqa: ANN401 - typer's own classes are not public
    """The words of each command below a group."""
    found = []
    for name, command in getattr(group, "commands", {}).items():
        found += [[*words, name], *_commands(command, [*words, name])]
    return found


def tables_page() -> str:
    """The dictionary of the pipeline's tables, from `hopline.spark.tables`."""
    from hopline.spark.runs import RUNS  # noqa: PLC0415 - needs pyspark, and nothing else here does
    from hopline.spark.tables import TABLES  # noqa: PLC0415

    lines = [
        "# Tables",
        "",
        "Generated from the code by `make docs`. Each table is a folder of Parquet files, cut by `date` where it has one.",
        "",
        "A `_key` is the printable twin of an id: its text if all of it is printable, else `0x` and hex; receivers are",
        "`hub:` or `actor:` and the text. Empty on the wire is empty here, null is not known. Times are UTC.",
        "",
    ]
    for table in (*TABLES, RUNS):
        lines += [f"## {table.name}", "", f"One row is {table.row}.", "", "| column | type | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | {_escaped(kind.simpleString())} | {_escaped(said)} |" for name, kind, said in table.columns]
        lines.append("")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace(">", "&gt;").replace("|", "\\|")


PAGES = {HERE / "errors.md": errors_page, HERE / "commands.md": commands_page, HERE / "tables.md": tables_page}


def main() -> int:
    """Write the pages; with --check return 1 if one is not as the code says."""
    stale = [page for page, make in PAGES.items() if not page.exists() or page.read_text() != make()]
    if "--check" in sys.argv[1:]:
        for page in stale:
            print(f"{page.name} is not up to date: make docs")
        return 1 if stale else 0
    for page in stale:
        page.write_text(PAGES[page]())
        print(f"wrote {page.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
