"""Real processes on loopback: what survives when one of them is killed."""

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hopline.errors import DeliveryError
from hopline.node.node import Node
from hopline.transport.zmq import ZmqTransport
from tests.e2e.world import Ehhlo, Hello, balanced, domains


def descriptors():
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


class Process:
    """A serving node as a process of its own."""

    def __init__(self, name, bind="tcp://127.0.0.1:0"):
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.world", bind, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.address = self._process.stdout.readline().strip()

    def kill(self):
        self._process.kill()
        self._process.wait(10)
        self._close()

    def stop(self):
        """End its input; returns its books."""
        self._process.stdin.close()
        line = self._process.stdout.read()
        self._process.wait(10)
        self._process.stdout.close()
        return json.loads(line)

    def _close(self):
        self._process.stdin.close()
        self._process.stdout.close()


def client(*processes, **settings):
    return Node(
        transport=ZmqTransport("tcp://127.0.0.1:0", identity=b"client", heartbeat_s=0.5),
        identity=b"client",
        peers=[process.address for process in processes],
        domains=domains(),
        **settings,
    )


@pytest.mark.slow
def test_a_killed_process_fails_its_promises_another_answers_and_its_successor_is_used():
    one, two = Process("one"), Process("two")

    async def test():
        nonlocal one
        async with client(one, two) as node:
            seen = set()
            while seen < {"one", "two"}:
                seen.add((await node.ask(Hello("x"), Ehhlo)).node)
            stuck = [asyncio.create_task(node.ask(Hello("forever"), Ehhlo)) for _ in range(20)]
            load = [asyncio.create_task(node.ask(Hello("load"), Ehhlo)) for _ in range(200)]
            await asyncio.sleep(0)
            address = one.address
            one.kill()
            answers = await asyncio.gather(*load, return_exceptions=True)
            assert all(isinstance(answer, Ehhlo | DeliveryError) for answer in answers)
            done, _ = await asyncio.wait(stuck, timeout=10, return_when=asyncio.FIRST_COMPLETED)
            codes = set()
            for task in done:
                with contextlib.suppress(DeliveryError):
                    await task
                codes.add(task.exception().code)
            assert codes == {"PEER_LOST"}
            for _ in range(20):
                assert (await node.ask(Hello("x"), Ehhlo)).node == "two"
            one = Process("one", address)
            for _ in range(3000):
                if (await node.ask(Hello("x"), Ehhlo)).node == "one":
                    break
                await asyncio.sleep(0.002)
            else:
                raise AssertionError("the successor was not used")
            for task in stuck:
                task.cancel()
            await asyncio.gather(*stuck, return_exceptions=True)
        assert balanced(node)

    asyncio.run(asyncio.wait_for(test(), 50))
    one.stop()
    two.kill()


@pytest.mark.slow
def test_nothing_is_left_behind_and_the_books_of_both_balance():
    before = threading.active_count(), descriptors()
    server = Process("server")

    async def test():
        async with client(server) as node:
            answers = await asyncio.gather(*(node.ask(Hello(str(i)), Ehhlo) for i in range(2000)))
            assert [answer.text for answer in answers] == [f"hi {i}" for i in range(2000)]
        assert balanced(node)
        assert len(asyncio.all_tasks()) == 2  # this one and the one that waits for it

    asyncio.run(asyncio.wait_for(test(), 50))
    books = server.stop()
    assert books["balanced"]
    assert books["handled"] == 2000
    assert (threading.active_count(), descriptors()) == before
