"""`hopline tap` on a node that runs."""

import json
import subprocess
import sys

import pytest

from tests.unit.cli.test_node import ANY, HERE, Running


@pytest.fixture(scope="module")
def node():
    running = Running(f"{HERE}:ACTORS", "--bind", ANY)
    yield running
    running.close()


def ask(node, name):
    command = [sys.executable, "-m", "hopline", "ask", node.address, "HELLO", json.dumps({"name": name}), "--reply", "EHHLO"]
    subprocess.run(command, capture_output=True, timeout=50, check=True)


@pytest.mark.slow
def test_shows_messages_as_they_pass(node):
    command = [
        sys.executable,
        "-m",
        "hopline",
        "tap",
        node.address,
        "identity in (HELLO, EHHLO)",
        "--limit",
        "2",
        "--bodies",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tap:
        for _ in range(20):
            ask(node, "bob")
            if tap.poll() is not None:
                break
        out, errors = tap.communicate(timeout=30)
    rows = [json.loads(line) for line in out.splitlines()]
    assert (tap.returncode, errors) == (0, "")
    assert [(row["tap"], row["identity_key"]) for row in rows] == [("scaleout_in", "HELLO"), ("scaleout_out", "EHHLO")]
    assert "bob" in bytes.fromhex(rows[0]["body"]).decode(errors="replace")
    assert rows[0]["correlation_key"] == rows[1]["correlation_key"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["identity ~~ x"], "identity"),
        (["--points", "nowhere"], "no such point: nowhere"),
        (["colour == red"], "colour"),
    ],
)
def test_wrong_usage_is_said_before_anybody_is_visited(hopline, options, said):
    result = hopline("tap", "tcp://127.0.0.1:1", *options)
    assert result.code == 2
    assert said in result.errors
