"""The times of a capture: what leaves has the time before it left, what comes the time when it came.

Compared is the monotonic clock, which is one for all processes of a machine. The clock on the wall is derived from it, in
each process by itself: there two of them may be a microsecond apart, or some more if somebody else runs between two looks.
"""

import asyncio
import json
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from hopline import Node
from hopline.assembly import CaptureSettings
from hopline.capture.store import open_capture
from hopline.capture.tap import CaptureTap
from hopline.wire import decode
from tests.e2e.world import Ehhlo, Greeter, Hello, domains

SERVER = """
import asyncio
import json
import sys

from hopline.assembly import CaptureSettings
from hopline import Node
from tests.e2e.world import Greeter, domains


async def main() -> None:
    capture = CaptureSettings(sys.argv[1], **json.loads(sys.argv[2]))
    async with Node([Greeter()], bind="tcp://127.0.0.1:0", identity=b"server", domains=domains(), capture=capture) as node:
        print(node.address, flush=True)
        await asyncio.to_thread(sys.stdin.read)


asyncio.run(main())
"""

CHOICES = [{}, {"identities": ["HELLO", "EHHLO"]}, {"body": "none"}]
"""Bytes as they pass the network; messages of which some are chosen; messages that are kept in part."""


def rows(path: Path) -> list[dict]:
    return [row for _, _, batch in open_capture(str(path)).batches() for row in batch.to_pylist()]


@pytest.mark.slow
@pytest.mark.parametrize("choice", CHOICES, ids=["bytes", "some", "parts"])
def test_between_two_processes_nothing_comes_before_it_was_sent(choice: dict, tmp_path: Path) -> None:
    capture = CaptureSettings(str(tmp_path), **choice)

    async def ask(address: str) -> None:
        client = Node(bind="tcp://127.0.0.1:0", identity=b"client", peers=[address], domains=domains(), capture=capture)
        async with client:
            for number in range(300):  # one by one: each goes straight to the network
                await client.ask(Hello(str(number)), Ehhlo)
            for _ in range(10):  # together: in bundles
                await asyncio.gather(*(client.ask(Hello(str(number)), Ehhlo) for number in range(100)))

    command = [sys.executable, "-c", SERVER, str(tmp_path), json.dumps(choice)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        asyncio.run(asyncio.wait_for(ask(server.stdout.readline().strip()), 40))
        server.stdin.close()

    times: dict[str, dict[tuple[bytes, ...], int]] = {"scaleout_out": {}, "scaleout_in": {}}
    for row in rows(tmp_path):
        if row["tap"] in times and decode(row["frames"]).message.identity in {b"HELLO", b"EHHLO"}:
            times[row["tap"]][tuple(row["frames"][1:])] = row["mono_ns"]  # frame 0 is another one at each end
    sent, received = times.values()
    assert len(sent) == len(received) == 2600
    assert sent.keys() == received.keys()
    early = [received[message] - sent[message] for message in sent if received[message] < sent[message]]
    assert not early, f"{len(early)} came before they were sent, the earliest {-min(early) / 1e6} ms"


@pytest.mark.parametrize("choice", CHOICES[1:], ids=["some", "parts"])
def test_what_came_together_has_the_time_when_it_came_however_long_others_took(choice: dict, tmp_path: Path) -> None:
    points = {"scaleout_in", "actor_in"}
    taps = {
        "whole": CaptureTap(str(tmp_path / "whole"), owner=b"server", points=points),
        "chosen": CaptureTap(str(tmp_path / "chosen"), owner=b"server", points=points, **choice),
    }

    async def test() -> None:
        async with (
            Node([Greeter()], bind="tcp://127.0.0.1:0", domains=domains(), taps=taps.values()) as server,
            Node(bind="tcp://127.0.0.1:0", peers=[server.address], domains=domains()) as client,
        ):
            for _ in range(3):
                await asyncio.gather(*(client.ask(Hello(str(number)), Ehhlo) for number in range(100)))

    for tap in taps.values():
        tap.start()
    asyncio.run(asyncio.wait_for(test(), 20))
    for tap in taps.values():
        tap.close()
    times: dict[tuple[str, str], dict[bytes, int]] = defaultdict(dict)
    for name in taps:
        for row in rows(tmp_path / name):
            message = decode(row["frames"]).message
            if message.identity == b"HELLO":
                times[name, row["tap"]][message.correlation_id] = row["mono_ns"]
    bundles: dict[int, list[bytes]] = defaultdict(list)
    for correlation_id, mono_ns in times["whole", "scaleout_in"].items():
        bundles[mono_ns].append(correlation_id)
    assert sum(map(len, bundles.values())) == 300
    assert Counter(map(len, bundles.values())).keys() - {1}, "some came together"
    for together in bundles.values():
        arrivals = {times["chosen", "scaleout_in"][correlation_id] for correlation_id in together}
        assert len(arrivals) == 1
        assert arrivals.pop() <= min(times["chosen", "actor_in"][correlation_id] for correlation_id in together)
