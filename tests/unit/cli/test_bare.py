"""What commands say that need numpy and pyarrow, where neither is installed."""

import subprocess
import sys

import pytest

BARE = "import sys; sys.modules['numpy'] = sys.modules['pyarrow'] = None; from hopline.cli import main; main()"

COMMANDS = (
    "capture check .",
    "capture import x.jsonl .",
    "capture export .",
    "dump .",
    "flows .",
    "node idle:Idle --bind tcp://127.0.0.1:5999 --capture captures",
    "pipeline run . tables",
    "pipeline stream . tables --until-drained",
    "rendezvous --bind tcp://127.0.0.1:5999 --capture captures",
    "replay . --to tcp://127.0.0.1:5999",
    "report . -o r.html",
    "stats .",
    "tap .",
    "trace some-flow .",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_what_to_install(command, tmp_path):
    (tmp_path / "idle.py").write_text("from hopline import Actor\n\n\nclass Idle(Actor):\n    pass\n")
    done = subprocess.run(
        [sys.executable, "-c", BARE, *command.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "pip install 'hopline[" in done.stderr
