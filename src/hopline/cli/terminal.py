"""One answer, or one line of complaint: what the commands about running nodes share.

As JSON when piped or asked for, else as something a person likes to read.
"""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from hopline.errors import HoplineError

if TYPE_CHECKING:
    from rich.console import Console

JsonOption = Annotated[bool, typer.Option("--json", help="JSON, also on a terminal.")]

Show = Callable[["Console", Any], None]


def put(answer: object, show: Show, *, as_json: bool) -> None:
    """Write one answer, at once. That its reader has gone, or that there never was one, is no reason to fail."""
    if sys.stdout is None:
        return
    try:
        if as_json or not sys.stdout.isatty():
            sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
            sys.stdout.buffer.flush()
        else:
            from rich.console import Console

            show(Console(highlight=False), msgspec.to_builtins(answer))
    except BrokenPipeError:
        # What the interpreter flushes at exit needs somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complaint(text: str, *, code: int = 2) -> typer.Exit:
    """Say in one line why it did not work; the answer is to be raised."""
    typer.echo(f"hopline: {' '.join(text.split())}", err=True)
    return typer.Exit(code)


def failure(error: HoplineError, *, hint: str = "", code: int = 1) -> typer.Exit:
    """Say in one line, with its code, how a message ended badly; the answer is to be raised."""
    return complaint(f"{error.code}: {error}{'; ' if hint else ''}{hint}", code=code)
