import subprocess
import sys

import pytest
from typer.testing import CliRunner

import hopline
from hopline.cli import app


def test_version(hopline):
    result = hopline("--version")
    assert (result.code, result.lines) == (0, [f"hopline {_version()}"])


def _version():
    return hopline.__version__


@pytest.mark.parametrize("command", ["decode", "encode", "verify", "explain"])
def test_help_has_an_example_and_the_exit_codes(hopline, command):
    text = "\n".join(map(str, hopline(command, "--help").lines))
    assert f"hopline {command}" in text
    assert "Example" in text
    assert "Exit codes" in text


def test_light_commands_import_nothing_heavy():
    probe = (
        "import sys, runpy; sys.argv = ['hopline', '--version']\n"
        "try: runpy.run_module('hopline', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'pyarrow', 'pyspark', 'hypothesis', 'zmq'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=50)
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_interrupt_while_it_starts_is_quiet():
    probe = (
        "import os, runpy, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'hopline.cli.rendezvous': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt()); sys.argv = ['hopline', '--version']\n"
        "runpy.run_module('hopline', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_list_of_commands_fits_a_terminal_of_80_columns():
    shown = CliRunner().invoke(app, ["--help"], prog_name="hopline", terminal_width=80).output
    _, listed = shown.split("Commands:\n")
    assert "pipeline " in listed
    assert "..." not in listed
