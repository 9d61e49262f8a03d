"""A capture of a real network, played into another one by the command: real sockets, real processes."""

import asyncio
import contextlib
import json
import os
import pty
import signal
import sys

import pytest

from hopline.assembly import Node
from hopline.errors import RemoteError
from hopline.identity import MessageType
from hopline.node.actor import Actor
from tests.e2e.world import Ehhlo, Greeter, Hello, Listener, Notice, Worker, domains
from tests.unit.capture.story import Story, request

pytestmark = pytest.mark.slow  # processes, each an interpreter to start

ANY = "tcp://127.0.0.1:0"
KEY = b"0123456789abcdef"
IDENTITIES = ["HELLO", "EHHLO", "NOTICE", "WORK"]


class Changed(Actor):
    """Answers otherwise than the Greeter."""

    async def greet(self, hello: Hello) -> Ehhlo | None:
        match hello.name:
            case "n0":
                return Ehhlo("hi n0", "server")
            case "n1":
                return Ehhlo("good morning", "server")
            case "n2":
                raise KeyError("n2")
        return None


def server(*actors, **settings):
    """A node with a known identity: its answers name it."""
    return Node(actors, bind=ANY, identity=b"server", **settings)


async def record(folder, *, secrets=None, names=("n0", "n1", "n2")):
    """Let a client ask, tell, deliver and publish, and capture what it does."""
    listener = Listener()
    async with (
        server(Greeter(), listener, domains=secrets) as there,
        Node(peers=[there.address], domains=secrets, capture=folder) as client,
    ):
        for name in names:
            await client.ask(Hello(name), Ehhlo)
        with pytest.raises(RemoteError):
            await client.ask(Hello("bad"), Ehhlo)
        await client.tell(Notice("told"))
        await client.deliver(Notice("delivered"))
        await client.deliver(Notice("handled"), until="handled")
        await client.publish(Notice("published"))
        await until(lambda: len(listener.heard) == 4)


async def until(condition):
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen")


class Command:
    """A `hopline replay` of our own."""

    def __init__(self, process):
        self.process = process

    @classmethod
    async def start(cls, *words, **settings):
        known = {"stdin": asyncio.subprocess.DEVNULL, "stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
        arguments = [sys.executable, "-m", "hopline", "replay", *map(str, words)]
        return cls(await asyncio.create_subprocess_exec(*arguments, **known | settings))

    async def end(self):
        """Wait for its end: exit code, messages, summary, and what it complained of."""
        out, errors = await self.process.communicate()
        lines = [json.loads(line) for line in out.splitlines()]
        summary = lines.pop()["summary"] if lines else None
        return self.process.returncode, [line["message"] for line in lines], summary, errors.decode()


async def replay(*words):
    return await (await Command.start(*words)).end()


def run(test):
    asyncio.run(asyncio.wait_for(test, 50))


def config_of(path, scheme, *, key=KEY, more=""):
    names = ", ".join(f'"{name}"' for name in IDENTITIES)
    path.write_text(f'{more}\n[domains.world]\nkeys = ["{key.hex()}"]\nscheme = "{scheme}"\nidentities = [{names}]\n')
    return path


@pytest.mark.parametrize("scheme", ["", "kino", "full"])
def test_what_came_back_comes_back_again(tmp_path, scheme):
    folder, config = tmp_path / "captures", config_of(tmp_path / "hopline.toml", scheme or "full")

    async def test():
        secrets = domains(scheme, KEY) if scheme else None
        await record(folder, secrets=secrets)
        listener = Listener()
        async with server(Greeter(), listener, domains=secrets) as target:
            keys = ["--config", config] if scheme else []
            words = [folder, "--to", target.address, "--speed", "max", "--in-flight", 1, "--broadcasts", *keys]
            code, messages, summary, errors = await replay(*words)
            assert (code, errors) == (0, "")
            await until(lambda: len(listener.heard) == 4)
            assert listener.heard == ["told", "delivered", "handled", "published"]
            assert target.statistics().rejected == 0
        assert [(one["type"], one["way"], one["now"]["end"], one["difference"]) for one in messages] == [
            *[("HELLO v1", "ask", "answer", "")] * 3,
            ("HELLO v1", "ask", "exception", ""),
            ("NOTICE v1", "tell", "sent", ""),
            ("NOTICE v1", "deliver", "receipt", ""),
            ("NOTICE v1", "handled", "receipt", ""),
            ("NOTICE v1", "publish", "sent", ""),
        ]
        assert (summary["ok"], summary["planned"], summary["played"], summary["alike"]) == (True, 8, 8, 8)
        assert (summary["skipped"], summary["interrupted"]) == ({}, False)
        assert summary["now"] == summary["then"] == {"answer": 3, "receipt": 2, "sent": 2, "exception": 1}
        assert summary["bodies"] == {"equal": 3, "different": 0, "unknown": 0}
        assert summary["wait_ms"]["messages"] == 6
        assert all(one["then"]["wait_ms"] > 0 for one in messages if one["way"] == "ask")

    run(test())


def test_what_comes_back_otherwise_is_told(tmp_path):
    folder = tmp_path / "captures"

    async def test():
        await record(folder, names=["n0", "n1", "n2", "n3"])
        async with server(Changed()) as target:
            words = [folder, "--to", target.address, "--speed", 1000, "--timeout", 0.5]
            code, messages, summary, errors = await replay(*words)
        assert (code, errors) == (1, "")
        messages.sort(key=lambda one: int(one["event_id"].rpartition(":")[2]))  # they ended in another order
        assert [(one["now"]["end"], one["now"]["type"], one["difference"]) for one in messages] == [
            ("answer", "EHHLO v1", ""),
            ("answer", "EHHLO v1", "body"),
            ("exception", "KeyError", "end"),
            ("EXPIRED", "", "end"),
            ("EXPIRED", "", "end"),
            *[("NO_ROUTE", "", "end")] * 3,
        ]
        assert summary["differences"] == {"end": 6, "body": 1}
        assert (summary["exceptions"], summary["expired"], summary["no_route"]) == (1, 2, 3)
        assert summary["skipped"] == {"broadcast": 1}

    run(test())


def test_nothing_but_the_named_node_is_touched(tmp_path):
    folder = tmp_path / "captures"

    async def test():
        await record(folder)
        listener = Listener()
        async with (
            Node([listener, Greeter()], bind=ANY, identity=b"other") as other,
            server(Greeter(), peers=[other.address]) as target,
        ):
            await until(lambda: b"other" in target.routes() and b"server" in other.routes())
            await until(lambda: other.statistics().served == 3)  # the last of the two nodes' introduction
            more = f'[node]\npeers = ["{other.address}"]\n[capture]\npath = "{tmp_path / "mine"}"'
            config = tmp_path / "hopline.toml"
            config.write_text(more)
            words = [folder, "--to", target.address, "--speed", "max", "--config", config]
            code, _, summary, errors = await replay(*words)
            assert (code, errors) == (1, "")
            assert (summary["no_route"], summary["played"], summary["now"]["answer"]) == (3, 7, 3)
            assert listener.heard == []
            assert other.statistics().received == 3
        assert not (tmp_path / "mine").exists()

    run(test())


def test_a_node_by_another_of_its_names(tmp_path):
    folder = tmp_path / "captures"

    async def test():
        await record(folder)
        async with server(Greeter(), Listener()) as target:
            port = target.address.rpartition(":")[2]
            words = [folder, "--to", f"tcp://localhost:{port}", "--speed", "max", "--where", "identity == HELLO", "-n", 2]
            code, messages, summary, errors = await replay(*words)
        assert (code, errors, len(messages)) == (0, "", 2)
        assert summary["skipped"] == {"limit": 2}

    run(test())


def test_a_node_that_says_it_is_elsewhere_is_not_played_into(tmp_path):
    folder = tmp_path / "captures"

    async def test():
        await record(folder)
        async with server(Greeter()) as target, proxy(target.address) as address:
            code, messages, _, errors = await replay(folder, "--to", address, "--speed", "max", "--timeout", 1)
            assert (code, messages) == (1, [])
            assert f"it says that it is at {target.address}, and nothing but {address} is touched" in errors
            assert target.statistics().handled == 0

    run(test())


@contextlib.asynccontextmanager
async def proxy(address):
    """Another address, behind which is the first."""
    port = int(address.rpartition(":")[2])

    async def pipe(source, sink):
        with contextlib.suppress(OSError):
            while data := await source.read(4096):
                sink.write(data)
        sink.close()

    async def take(source, sink):
        far_source, far_sink = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pipe(source, far_sink), pipe(far_source, sink))

    listening = await asyncio.start_server(take, "127.0.0.1", 0)
    async with listening:
        yield f"tcp://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("key", [KEY, b"another one"])
def test_without_the_right_keys_nothing_is_played(tmp_path, key):
    folder = tmp_path / "captures"

    async def test():
        await record(folder)
        async with server(Greeter(), domains=domains("full", KEY)) as target:
            config = config_of(tmp_path / "hopline.toml", "full", key=key)
            keys = ["--config", config] if key != KEY else []
            code, messages, _, errors = await replay(folder, "--to", target.address, "--timeout", 0.5, *keys)
            assert (code, messages) == (1, [])
            assert errors.startswith("hopline: NO_ROUTE: nobody answers at")
            assert target.statistics().handled == 0

    run(test())


def test_a_domain_must_hold_what_is_played_and_should_hold_what_answers(tmp_path):
    folder = tmp_path / "captures"

    async def test():
        await record(folder)
        async with server(Greeter(), domains=domains("full", KEY)) as target:
            config = tmp_path / "hopline.toml"
            config.write_text(f'[domains.world]\nkeys = ["{KEY.hex()}"]\nidentities = ["HELLO"]\n')
            words = [folder, "--to", target.address, "--config", config, "--speed", "max", "--timeout", 0.5]
            code, messages, _, errors = await replay(*words)
            assert (code, messages) == (2, [])
            assert "has NOTICE" in errors
            code, messages, summary, errors = await replay(*words, "--where", "identity == HELLO", "-n", 1)
            assert (code, summary["expired"]) == (1, 1)
            assert "has EHHLO, so such answers were refused" in errors

    run(test())


def test_the_pace_is_that_of_the_capture(tmp_path):
    story = Story()
    for number in range(4):
        asked = request(b"WORK", b"flow-%d" % number, body=b"\x81\xa6number\x01")
        story.see("client", "hub_out", asked, number * 100)
    story.write(tmp_path)

    async def test():
        worker = Worker()
        async with server(worker) as target:
            code, _, summary, _ = await replay(tmp_path, "--to", target.address, "--timeout", 0.1)
            assert (code, worker.done) == (0, 4)
            assert 0.3 <= summary["seconds"] < 10

    run(test())


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_waits_for_what_is_under_way_and_reports(tmp_path, times):
    story = Story()
    for number, (name, at_ms) in enumerate([("bob", 0), ("forever", 1), ("late", 600_000)]):
        body = b"\x81\xa4name" + bytes([0xA0 + len(name)]) + name.encode()
        asked = request(b"HELLO", b"flow-%d" % number, MessageType(b"EHHLO", 1), body=body)
        story.see("client", "hub_out", asked, at_ms)
    story.write(tmp_path)

    async def test():
        async with server(Greeter()) as target:
            words = [tmp_path, "--to", target.address, "--timeout", 1 if times == 1 else 600]
            command = await Command.start(*words)
            await until(lambda: target.statistics().received and target.statistics().handled >= 1)
            first = json.loads(await command.process.stdout.readline())["message"]
            assert first["flow"] == "flow-0"
            await until(lambda: target.statistics().in_flight == 1)
            command.process.send_signal(signal.SIGINT)
            while times == 2 and command.process.returncode is None:  # two at the same time are heard as one
                await asyncio.sleep(0.01)
                with contextlib.suppress(ProcessLookupError):
                    # Not by `send_signal`: that may take the exit code away from asyncio, which then says 255.
                    os.kill(command.process.pid, signal.SIGINT)
            code, messages, summary, errors = await command.end()
            assert code == 130
            if times == 1:
                assert [(one["flow"], one["now"]["end"]) for one in messages] == [("flow-1", "EXPIRED")]
                assert (summary["interrupted"], summary["played"], summary["planned"]) == (True, 2, 3)
                assert not summary["ok"]
                assert summary["now"] == {"answer": 1, "EXPIRED": 1}
            else:
                assert summary is None
            assert errors == ""
            await target.stop(0)

    run(test())


def test_a_person_sees_progress_and_a_table(tmp_path):
    folder = tmp_path / "captures"

    async def test():
        await record(folder)
        async with server(Greeter()) as target:
            ours, theirs = pty.openpty()
            words = [folder, "--to", target.address, "--speed", "max"]
            command = await Command.start(*words, stdout=theirs, stderr=theirs)
            os.close(theirs)
            shown = await asyncio.get_running_loop().run_in_executor(None, read_all, ours)
            assert await command.process.wait() == 1
        assert "of 7 played" in shown
        assert "7 of 7 messages played into tcp://127.0.0.1:" in shown
        assert "1 not played: broadcasts are only played if asked for" in shown
        assert "3 differ (3 in end), 4 are alike" in shown
        assert "NOTICE v1  then sent, now NO_ROUTE  flow " in shown

    run(test())


def read_all(terminal):
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while chunk := os.read(terminal, 4096):
            shown += chunk
    os.close(terminal)
    return shown.decode()
