"""The type checker knows what `ask` returns."""

import subprocess
import sys
from pathlib import Path

import pytest

SNIPPET = """
from hopline import Actor, Node, Payload, SyncNode, message

@message("A")
class A(Payload):
    text: str

@message("B")
class B(Payload):
    text: str

async def main(node: Node) -> None:
    reveal_type(await node.ask(A(""), B))
    reveal_type(await node.ask(A(""), A, B))
    reveal_type(await node.ask_all(A(""), B, seconds=1))
    reveal_type(await node.deliver(A("")))

def script(node: SyncNode) -> None:
    reveal_type(node.ask(A(""), B))
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_replies_are_typed(tmp_path):
    path = tmp_path / "snippet.py"
    path.write_text(SNIPPET)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "--config-file", "", str(path)],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
        cwd=Path(__file__).parents[3] / "src",
    )
    revealed = [line.partition('"')[2].rstrip('"') for line in done.stdout.splitlines() if "Revealed" in line]
    assert revealed == [
        "snippet.B",
        "snippet.A | snippet.B",
        "list[snippet.B]",
        "hopline.node.node.Receipt",
        "snippet.B",
    ], done.stdout + done.stderr
