"""`make docs`: write the pages that are made from the code. `--check` only says whether they are up to date."""

import inspect
import json
import re
import sys
import types
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from typer.main import get_command
from typer.testing import CliRunner

from hopline import assembly, errors
from hopline.cli import app
from hopline.cluster.settings import RendezvousSettings
from hopline.security.keyring import DOMAIN_SETTINGS

HERE = Path(__file__).parent

TABLES: dict[str, type[msgspec.Struct]] = {
    "node": assembly.NodeSettings,
    "node.curve": assembly.CurveSettings,
    "cluster": assembly.MemberSettings,
    "rendezvous": RendezvousSettings,
    "capture": assembly.CaptureSettings,
}
"""The tables of a configuration."""

MORE = {
    "node": "[security.md](security.md#the-running-node) says more.",
    "node.curve": "[security.md](security.md#curve) says who needs whose keys.",
    "cluster": "[cluster-operations.md](cluster-operations.md#times) says what the times mean. Times are in seconds.",
    "rendezvous": "For `hopline rendezvous`: [cluster-operations.md](cluster-operations.md). Times are in seconds.",
    "capture": "[capture.md](capture.md#record) says what the points are, [privacy.md](privacy.md) what to leave out.",
}

DOMAIN_MEANINGS = {
    "keys": (
        "array of strings",
        "`[]`",
        "in hex; the first signs, every one is accepted. Needed unless all are unsigned",
    ),
    "scheme": ('`"full"` or `"kino"`', '`"full"`', "how it is signed; kino where there are nodes of the reference"),
    "algorithm": ('`"md5"` or `"sha256"`', "that of the scheme", "md5 for kino if it is not said; full is sha256"),
    "identities": ("array of strings", "`[]`", "the messages that belong to it; each belongs to one domain"),
    "unsigned": ("array of strings or boolean", "`false`", "which of them may go unsigned; true for all"),
}
"""The table of a domain is read by hand, so that no error shows a key."""


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


def configuration_page() -> str:
    """The reference of hopline.toml, from the classes that it is read into."""
    example = dedent("    " + (assembly.__doc__ or "").split("\n\n    ", 1)[1]).strip()
    lines = [
        "# Configuration",
        "",
        "Generated from the code by `make docs`.",
        "",
        "Every table and setting of `hopline.toml`, for `--config` of the commands and for `Node(config=...)`.",
        "Nothing is needed but what says so. What is said on the command line or in code counts more than the file; what is",
        "not known is refused, at the start.",
        "",
        "```toml",
        example,
        "```",
        "",
    ]
    for name, kind in TABLES.items():
        title, meanings = (inspect.getdoc(kind) or "").partition("\n")[0], _meanings(kind)
        said = re.sub(r"The table \[\w+\] of a configuration[:.] ?", "", title)
        rows = [
            (field.name, _kind(field.type), _default(field), meanings[field.name])
            # Its own before those that it inherits.
            for field in sorted(msgspec.structs.fields(kind), key=lambda field: field.name not in kind.__annotations__)
            if f"{name}.{field.name}" not in TABLES
        ]
        lines += _settings_table(name, f"{said[:1].upper()}{said[1:]} {MORE[name]}".strip(), rows)
    said = "A security domain, by its name: which messages belong to it, and with which keys they are signed."
    rows = [(setting, *DOMAIN_MEANINGS[setting]) for setting in DOMAIN_SETTINGS]
    lines += _settings_table("domains.NAME", f"{said} [security.md](security.md#the-key-file) says more.", rows)
    return "\n".join(lines)


def _settings_table(name: str, said: str, rows: list[tuple[str, str, str, str]]) -> list[str]:
    head = [f"## [{name}]", "", said, "", "| setting | type | default | meaning |", "|---|---|---|---|"]
    return [*head, *(f"| `{setting}` | {kind} | {default} | {meaning} |" for setting, kind, default, meaning in rows), ""]


def _meanings(kind: type) -> dict[str, str]:
    """What the docstrings of a class and of those below it say of its attributes."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        _, _, attributes = (inspect.cleandoc(each.__doc__ or "")).partition("Attributes:\n")
        for name, text in re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", attributes, re.MULTILINE):
            found[name] = " ".join(text.split()).rstrip(".")
    return found


def _kind(annotation: Any) -> str:  # noqa: ANN401 - an annotation is anything
    """A type in the words of TOML."""
    inner = get_args(annotation)
    match get_origin(annotation):
        case None:
            return {str: "string", int: "integer", float: "number", bool: "boolean"}[annotation]
        case origin if origin is Literal:
            return " or ".join(f"`{json.dumps(value)}`" for value in inner if value != "")
        case origin if origin in (list, tuple):
            return f"array of {_kind(inner[0])}{'s' if inner[0] is str else ''}"
        case origin if origin is dict:
            return f"table of {_kind(inner[1])}s"
        case origin if origin in (Union, types.UnionType):
            return " or ".join(dict.fromkeys(filter(None, (_kind(each) for each in inner if each is not type(None)))))
    raise TypeError(f"no words for {annotation}")


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "needed"
    made = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return "none" if made is None else f"`{json.dumps(made)}`"


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
        "An id whose own text is `0x` and hex, or begins with `hub:` where others have a byte, has the key of another one:",
        "two such flows are one flow here. Where there may be any, tell sightings apart by the columns of bytes.",
        "",
    ]
    for table in (*TABLES, RUNS):
        lines += [f"## {table.name}", "", f"One row is {table.row}.", "", "| column | type | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | {_escaped(kind.simpleString())} | {_escaped(said)} |" for name, kind, said in table.columns]
        lines.append("")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace(">", "&gt;").replace("|", "\\|")


PAGES = {
    HERE / "errors.md": errors_page,
    HERE / "commands.md": commands_page,
    HERE / "configuration.md": configuration_page,
    HERE / "tables.md": tables_page,
}


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
