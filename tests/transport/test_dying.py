"""Peers that die: killed or frozen, as processes of their own; and one that only does not read."""

import asyncio
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.transport.harness import MORE_THAN_A_NETWORK_HOLDS, SECONDS, World, bodies, fill_for_good, message

PEER = textwrap.dedent(
    """
    import asyncio, sys
    from hopline.transport import ZmqTransport
    from tests.transport.harness import Recorder

    class Peer(Recorder):
        def on_message(self, frames):
            print(frames[2].decode(), flush=True)

    async def main():
        transport = ZmqTransport(sys.argv[1], heartbeat_s=0.1)
        await transport.start(Peer())
        print(transport.address, flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())
    """
)


class PeerProcess:
    """Another process that prints its address and then the bodies that it gets."""

    def __init__(self, process: subprocess.Popen, lines: asyncio.StreamReader) -> None:
        self._process = process
        self._lines = lines
        self.address = ""

    async def line(self) -> str:
        async with asyncio.timeout(SECONDS):
            return (await self._lines.readline()).decode().strip()

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)


def start_peer(address: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", PEER, address], stdout=subprocess.PIPE)


@asynccontextmanager
async def peer_process(address: str = "tcp://127.0.0.1:0") -> AsyncIterator[PeerProcess]:
    with start_peer(address) as process:
        lines = asyncio.StreamReader()
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), process.stdout
        )
        peer = PeerProcess(process, lines)
        try:
            peer.address = await peer.line()
            yield peer
        finally:
            process.kill()
            pipe.close()
            await asyncio.sleep(0)  # it closes in the next turn


@pytest.mark.slow
def test_a_peer_that_is_killed_is_lost_and_its_successor_is_found(tcp: World):
    @tcp.run
    async def scenario():
        node = await tcp.node()
        async with peer_process() as peer:
            link = await node.link(peer.address)
            link.send(message(1))
            assert await peer.line() == "1"
            peer.send_signal(signal.SIGKILL)
            await node.until(lambda: node.lost)
        assert node.lost == [(link, [])]
        assert link.send(message(2))
        async with peer_process(link.address) as peer:
            assert await peer.line() == "2"
            assert link.is_connected
            assert link.send(message(3))
            assert await peer.line() == "3"


@pytest.mark.slow
def test_a_peer_that_is_frozen_is_lost(tcp: World):
    @tcp.run
    async def scenario():
        node = await tcp.node(heartbeat_s=0.1)
        async with peer_process() as peer:
            link = await node.link(peer.address)
            peer.send_signal(signal.SIGSTOP)
            await node.until(lambda: node.lost)
            peer.send_signal(signal.SIGCONT)
            link.send(message(1))
            assert await peer.line() == "1"


@pytest.mark.slow
def test_a_sender_that_is_held_back_does_not_take_its_peer_for_dead(tcp: World):
    # Who does not read does not answer heartbeats either. To wait long enough without sleeping: a peer that really is
    # dead, with the same heartbeats, is found to be so twice in a row.
    @tcp.run
    async def scenario():
        full = await tcp.node(heartbeat_s=0.3, limits=MORE_THAN_A_NETWORK_HOLDS)
        reader = await tcp.node(heartbeat_s=0.3)
        link = await full.link(reader)
        reader.transport.pause()
        sent = fill_for_good(link)
        for _ in range(2):
            witness = await tcp.node(heartbeat_s=0.3)
            async with peer_process() as dead:
                await witness.link(dead.address)
                dead.send_signal(signal.SIGSTOP)
                await witness.until(lambda witness=witness: witness.lost)
        assert full.lost == []
        reader.transport.resume()
        await reader.got(sent)
        assert reader.bodies == bodies(sent)
