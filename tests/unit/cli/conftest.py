"""The command line as its users call it: a process with pipes."""

import json
import subprocess
import sys
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

from hopline.cli import app


@dataclass
class Result:
    code: int
    lines: list
    errors: str


@pytest.fixture
def hopline():
    def run(*arguments, text="", objects=None):
        if objects is not None:
            text = "".join(json.dumps(item) + "\n" for item in objects)
        done = subprocess.run(
            [sys.executable, "-m", "hopline", *arguments],
            input=text.encode() if isinstance(text, str) else text,
            capture_output=True,
            timeout=50,
            check=False,
        )
        out = done.stdout.decode()
        try:
            lines = [json.loads(line) for line in out.splitlines()]
        except ValueError:
            lines = out.splitlines()
        return Result(done.returncode, lines, done.stderr.decode())

    return run


@pytest.fixture
def here():
    """The same without a process of its own, for commands that import much."""

    def run(*arguments):
        done = CliRunner().invoke(app, arguments, prog_name="hopline", terminal_width=200)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        try:
            lines = [json.loads(line) for line in done.stdout.splitlines()]
        except ValueError:
            lines = done.stdout.splitlines()
        return Result(done.exit_code, lines, done.stderr)

    return run


def hexed(frames):
    return {"frames": [frame.hex() for frame in frames]}
