"""kill -9 of a capturing node under load: what was written is there, what is missing is said.

HOPLINE_KILLS says how often; 5 by default, 100 before a release.
"""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hopline.capture.folder import open_folder
from hopline.capture.reading import Reading
from hopline.capture.store import open_capture

KILLS = int(os.environ.get("HOPLINE_KILLS", "5"))

NODE = """
import asyncio
import sys

from hopline import Actor, Node, Payload, message
from hopline.assembly import CaptureSettings


@message("KILL.ASK")
class Ask(Payload):
    data: bytes


@message("KILL.ANSWER")
class Answer(Payload):
    data: bytes


class Answerer(Actor):
    async def answer(self, ask: Ask) -> Answer:
        return Answer(ask.data)


async def main() -> None:
    settings = CaptureSettings(sys.argv[1], points=("all",), segment_bytes=100_000)
    async with Node([Answerer()], capture=settings) as node:
        while True:
            for _ in range(5):
                await asyncio.gather(*(node.ask(Ask(b"x" * 100), Answer) for _ in range(200)))
            await asyncio.to_thread(node.capture.flush)
            done = node.capture.statistics()
            print(done.seen, sum(done.lost.values()), flush=True)  # all but these are with the operating system now


asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.timeout(20 * KILLS)
def test_a_killed_node_leaves_all_it_had_recorded(tmp_path: Path) -> None:
    chance = random.Random(4)
    for kill in range(KILLS):
        folder = tmp_path / str(kill)
        with subprocess.Popen([sys.executable, "-c", NODE, str(folder)], stdout=subprocess.PIPE, text=True) as process:
            try:
                for _ in range(chance.randint(1, 4)):
                    seen, lost = map(int, process.stdout.readline().split())
                # Some hundred writes later, in the middle of whatever it is doing.
                enough = size_of(folder) + chance.randint(0, 300_000)
                while size_of(folder) < enough and process.poll() is None:
                    pass
            finally:
                process.send_signal(signal.SIGKILL)
        judge(folder, seen - lost)


def size_of(folder: Path) -> int:
    return sum(file.size for file in open_folder(str(folder)).files())


def judge(folder: Path, at_least: int) -> None:
    capture = open_capture(str(folder))
    open_ones = 0
    for segment in capture.segments():
        reading = Reading(segment).look()
        codes = [problem.code for problem in reading.problems]
        if segment.is_sealed:
            assert codes == []
        else:
            open_ones += 1
            assert codes in ([], ["CAPTURE_TORN"])
    assert open_ones <= 2, "the next one is begun before the last one is sealed"
    report = capture.check()
    assert sum(stream.rows for stream in report.streams) == report.rows >= at_least
    assert 1 <= [problem.code for problem in report.problems].count("CAPTURE_UNCLEAN") <= open_ones
    for stream in report.streams:
        # Whatever is missing in the middle was lost by the writer itself, and it says so.
        assert stream.first_seq == 1
        assert stream.missing <= stream.lost
        assert stream.rows + stream.missing == stream.last_seq
