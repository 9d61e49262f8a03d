"""Running nodes and those who ask them: real processes, real sockets on loopback."""

import contextlib
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
import tomllib

import pytest
import zmq

pytestmark = pytest.mark.slow  # dozens of processes, each an interpreter to start

ANY = "tcp://127.0.0.1:0"
HERE = "tests.unit.cli.actors"


class Running:
    """A `hopline node` of our own."""

    def __init__(self, *arguments, stdout=subprocess.PIPE):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hopline", "node", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
        if stdout is subprocess.PIPE:
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read()
            self.ready = json.loads(line)
            self.address = self.ready["address"]

    def end(self, number=signal.SIGINT):
        """Ask it to end; returns the exit code and what it said last."""
        self.process.send_signal(number)
        out, self.errors = self.process.communicate(timeout=30)
        return self.process.returncode, [json.loads(line) for line in out.splitlines()]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        with contextlib.suppress(ValueError):
            self.process.communicate(timeout=10)


@pytest.fixture
def start():
    running = []

    def make(*arguments, **settings):
        running.append(Running(*arguments, **settings))
        return running[-1]

    yield make
    for one in running:
        one.close()


@pytest.fixture(scope="module")
def node():
    """One node for all tests that only ask."""
    running = Running(f"{HERE}:ACTORS", "--bind", ANY)
    yield running
    running.close()


# Life.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_runs_until_a_signal_and_reports(start, number):
    running = start(f"{HERE}:ACTORS", "--bind", ANY)
    assert running.ready.keys() == {"ready", "address", "node"}
    assert running.ready["ready"] is True
    code, (report,) = running.end(number)
    assert code == 0
    assert running.errors == ""
    assert report["statistics"]["in_flight"] == 0
    assert report["dead_letters"] == {}


def test_a_node_is_called_what_it_was_named(start):
    running = start(f"{HERE}:ACTORS", "--bind", ANY, "--name", "shop")
    assert running.ready["node"] == "shop"


def test_who_asks_with_the_file_of_the_node_does_not_take_its_name(start, hopline, tmp_path):
    config = tmp_path / "hopline.toml"
    config.write_text('[node]\nname = "shop"\n')
    running = start(f"{HERE}:ACTORS", "--bind", ANY, "--config", str(config))
    (report,) = hopline("status", running.address, "--config", str(config)).lines
    assert report["node"] == "shop"


@pytest.mark.parametrize("actors", ["Greeter", "make", "Market"])
def test_actors_are_a_class_or_come_from_a_function(start, hopline, actors):
    running = start(f"{HERE}:{actors}", "--bind", ANY)
    names = [actor["class_name"] for actor in hopline("routes", running.address).lines[0]["actors"]]
    assert names == (["Greeter", "Sleeper", "Control", "Live"] if actors == "make" else [actors, "Control", "Live"])
    assert running.end()[0] == 0


@pytest.mark.slow
def test_what_is_under_way_may_end(start, hopline):
    running = start(f"{HERE}:make", "--bind", ANY)
    assert hopline("tell", running.address, "WAIT", '{"seconds": 0.5}').code == 0
    code, (report,) = running.end()
    assert code == 0
    assert report["statistics"]["handled"] == 1
    assert report["statistics"]["failures"] == 0


@pytest.mark.slow
def test_a_second_interrupt_ends_it_at_once(start, hopline):
    running = start(f"{HERE}:make", "--bind", ANY)
    assert hopline("tell", running.address, "BLOCK", '{"seconds": 40}').code == 0
    running.process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):  # a handler that goes on
        running.process.wait(0.5)
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(5) == 130


@pytest.mark.slow
def test_a_handler_that_does_not_end_does_not_keep_the_process(start, hopline):
    running = start(f"{HERE}:make", "--bind", ANY)
    assert hopline("tell", running.address, "BLOCK", '{"seconds": 40}').code == 0
    code, (report,) = running.end()
    assert code == 0
    assert "statistics" in report
    assert "does not end" in running.errors


def test_on_a_terminal_it_is_readable(start):
    ours, theirs = pty.openpty()
    running = start(f"{HERE}:ACTORS", "--bind", ANY, stdout=theirs)
    os.close(theirs)
    try:
        assert "ready at tcp://127.0.0.1:" in _read_until(ours, "Ctrl-C ends")
        running.process.send_signal(signal.SIGTERM)
        assert "sent_locally" in _read_until(ours, "links")
        assert running.process.wait(10) == 0
    finally:
        os.close(ours)


def _read_until(descriptor, text):
    read, deadline = "", time.monotonic() + 30
    while text not in read and time.monotonic() < deadline:
        if select.select([descriptor], [], [], 1)[0]:
            try:
                read += os.read(descriptor, 4096).decode()
            except OSError:  # the other end is closed
                break
    return read


# Mistakes: one line, exit code 2.


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nowhere_at_all:ACTORS", "--bind", ANY], "no module 'nowhere_at_all'"),
        (["tests.unit.cli.nowhere:ACTORS", "--bind", ANY], "no module 'tests.unit.cli.nowhere'"),
        ([f"{HERE}:NOWHERE", "--bind", ANY], "no 'NOWHERE'"),
        ([HERE, "--bind", ANY], "MODULE:ACTORS"),
        ([f"{HERE}:Idle", "--bind", ANY], "Idle has no handler"),
        ([f"{HERE}:Picky", "--bind", ANY], "wanted"),
        ([f"{HERE}:NOTHING", "--bind", ANY], "no actors"),
        ([f"{HERE}:NUMBER", "--bind", ANY], "int, which is no Actor"),
        ([f"{HERE}:Price", "--bind", ANY], "Price is a class, and no Actor"),
        ([f"{HERE}:MIXED", "--bind", ANY], "'Market', which is no Actor"),
        ([f"{HERE}:ACTORS"], "--bind"),
        ([f"{HERE}:ACTORS", "--bind", "127.0.0.1:5101"], "tcp://HOST:PORT"),
        ([f"{HERE}:ACTORS", "--bind", "tcp://[::1:5"], "tcp://HOST:PORT"),
        ([f"{HERE}:ACTORS", "--bind", ANY, "--peer", "tcp://nobody"], "tcp://HOST:PORT"),
        ([f"{HERE}:ACTORS", "--bind", "tcp://0.0.0.0:0"], "without encryption"),
        ([f"{HERE}:ACTORS", "--bind", ANY, "--config", "nowhere.toml"], "cannot read nowhere.toml"),
    ],
)
def test_a_mistake_is_one_line(hopline, arguments, text):
    result = hopline("node", *arguments)
    assert result.code == 2
    assert result.lines == []
    assert text in result.errors
    assert result.errors.count("\n") == 1


def test_a_module_that_fails(hopline, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "lacking.py").write_text("import nowhere_at_all")
    result = hopline("node", "broken:ACTORS", "--bind", ANY)
    assert (result.code, result.errors) == (2, "hopline: cannot import broken: ZeroDivisionError: division by zero\n")
    result = hopline("node", "lacking:ACTORS", "--bind", ANY)
    assert (result.code, result.errors) == (2, "hopline: cannot import lacking: No module named 'nowhere_at_all'\n")


def test_a_busy_port(hopline, node):
    result = hopline("node", f"{HERE}:ACTORS", "--bind", node.address)
    assert result.code == 2
    assert result.errors == f"hopline: {node.address} is in use: choose another, or port 0 for any free one\n"


# Control.


def test_status(hopline, node):
    result = hopline("status", node.address)
    assert (result.code, result.errors) == (0, "")
    (report,) = result.lines
    assert report["node"] == node.ready["node"]
    assert report["address"] == node.address
    assert report["statistics"]["received"] > 0
    assert isinstance(report["dead_letters"], dict)


def test_routes(hopline, node):
    (report,) = hopline("routes", node.address).lines
    own = {actor["class_name"]: [kind["identity"] for kind in actor["types"]] for actor in report["actors"]}
    assert own == {
        "Greeter": ["HELLO", "NOTICE"],
        "Market": ["PRICE"],
        "Control": ["HOPLINE.ROUTES", "HOPLINE.STATUS"],
        "Live": ["HOPLINE.WATCH"],
    }
    assert [kind["partition"] for kind in report["actors"][1]["types"]] == ["EU"]
    assert report["node"] == node.ready["node"]
    assert len(report["nodes"]) >= 1  # the one who asks


def test_by_a_name_of_the_address(hopline, node):
    port = node.address.rpartition(":")[2]
    assert hopline("status", f"tcp://localhost:{port}").lines[0]["node"] == node.ready["node"]


def test_control_is_not_announced(hopline, start, node):
    other = start(f"{HERE}:Market", "--bind", ANY, "--peer", node.address)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        (report,) = hopline("routes", other.address).lines
        known = {row["node"]: row for row in report["nodes"]}.get(node.ready["node"])
        if known and known["actors"]:
            break
    types = {kind["identity"] for actor in known["actors"] for kind in actor["types"]}
    assert types == {"HELLO", "NOTICE", "PRICE"}
    assert known["address"] == node.address
    assert other.end()[0] == 0


@pytest.mark.parametrize("command", [["status"], ["routes"], ["ask", "HELLO", "--reply", "EHHLO"], ["tell", "NOTICE"]])
def test_nobody_there(hopline, command):
    result = hopline(command[0], _free_address(), *command[1:], "--timeout", "0.3")
    assert result.code == 1
    assert result.lines == []
    assert "NO_ROUTE: nobody answers" in result.errors
    assert result.errors.count("\n") == 1


def _free_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize("address", ["nowhere", "tcp://127.0.0.1:0", "tcp://10.0.0.1:5101"])
def test_a_bad_address(hopline, address):
    result = hopline("status", address)
    assert result.code == 2
    assert result.errors.count("\n") == 1


# Asking and telling.


def test_ask(hopline, node):
    result = hopline("ask", node.address, "HELLO", '{"name": "Ann"}', "--reply", "EHHLO")
    assert (result.code, result.lines, result.errors) == (0, [{"text": "hi Ann"}], "")


def test_ask_without_a_body_and_from_standard_input(hopline, node):
    assert hopline("ask", node.address, "HELLO", "--reply", "EHHLO").lines == [{"text": "hi you"}]
    result = hopline("ask", node.address, "HELLO", "-", "--reply", "EHHLO", text='{"name": "Bob"}')
    assert result.lines == [{"text": "hi Bob"}]


def test_ask_in_json_with_a_partition(hopline, node):
    options = ["--reply", "PRICED", "--encoding", "json"]
    question = ["ask", node.address, "PRICE", '{"market": "EU"}']
    assert hopline(*question, *options, "--partition", "EU").lines == [{"price": 3}]
    result = hopline(*question, *options, "--partition", "US")
    assert result.code == 1
    assert "NO_ROUTE" in result.errors


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["NOBODY", "--reply", "EHHLO"], "NO_ROUTE: no actor of this node handles NOBODY version 1"),
        (["HELLO", "--version", "2", "--reply", "EHHLO"], "NO_ROUTE"),
        (["HELLO", '{"name": "bad"}', "--reply", "EHHLO"], "REMOTE_ERROR: ValueError: a bad name"),
        (["HELLO", '{"name": "silent"}', "--reply", "EHHLO", "--timeout", "0.5"], "EXPIRED"),
        (["HELLO", '{"name": 5}', "--reply", "EHHLO", "--timeout", "2"], "REJECTED"),
    ],
)
def test_an_answer_that_does_not_come(hopline, node, arguments, text):
    result = hopline("ask", node.address, *arguments)
    assert result.code == 1
    assert result.lines == []
    assert result.errors.startswith("hopline: " + text)
    assert result.errors.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["HELLO"],
        ["HELLO", "{", "--reply", "EHHLO"],
        ["HELLO", str(2**70), "--reply", "EHHLO"],
        ["HELLO", "--reply", "EHHLO", "--timeout", "0"],
        ["HELLO", "--reply", "EHHLO", "--version", "70000"],
        ["HELLO", "--reply", "EHHLO", "--encoding", "xml"],
    ],
)
def test_a_wrong_question(hopline, node, arguments):
    result = hopline("ask", node.address, *arguments)
    assert (result.code, result.lines) == (2, [])
    assert "Traceback" not in result.errors


def test_tell(hopline, node):
    result = hopline("tell", node.address, "NOTICE", '{"text": "hi"}')
    assert (result.code, result.errors) == (0, "")
    assert result.lines == [{"reached": "node", "node": node.ready["node"]}]


def test_tell_until_handled(hopline, node):
    assert hopline("tell", node.address, "NOTICE", "--until", "handled").lines[0]["reached"] == "handled"
    result = hopline("tell", node.address, "NOTICE", '{"text": "bad"}', "--until", "handled")
    assert result.code == 1
    assert "REMOTE_ERROR: ValueError: a bad notice" in result.errors


def test_tell_nobody(hopline, node):
    result = hopline("tell", node.address, "NOBODY")
    assert result.code == 1
    assert "NO_ROUTE" in result.errors


# Domains.


@pytest.fixture
def config(hopline, tmp_path):
    """Makes a configuration with a domain, from what `hopline keys new` prints."""
    text = "\n".join(hopline("keys", "new", "--domain", "world").lines)

    def write(name, *identities):
        path = tmp_path / f"{name}.toml"
        path.write_text(text.replace("identities = []", f"identities = {json.dumps(identities)}"))
        assert tomllib.loads(path.read_text())["domains"]["world"]["identities"] == list(identities)
        return str(path)

    return write


CONTROL = ["HOPLINE.STATUS", "HOPLINE.STATUSREPORT", "HOPLINE.ROUTES", "HOPLINE.ROUTESREPORT"]
WORLD = ["HELLO", "EHHLO", "NOTICE", "PRICE", "PRICED"]


def test_with_domains(start, hopline, config):
    file = config("all", *WORLD, *CONTROL)
    running = start(f"{HERE}:ACTORS", "--bind", ANY, "--config", file)
    assert hopline("status", running.address, "--config", file).lines[0]["node"] == running.ready["node"]
    assert hopline("routes", running.address, "--config", file).code == 0
    assert hopline("ask", running.address, "HELLO", "--reply", "EHHLO", "--config", file).lines == [{"text": "hi you"}]
    assert hopline("tell", running.address, "NOTICE", "--config", file).code == 0
    # Who has no key does not even learn who is there.
    result = hopline("status", running.address, "--timeout", "0.5")
    assert result.code == 1
    assert "--config" in result.errors
    assert running.end()[0] == 0


def test_a_domain_that_lacks_control(start, hopline, config):
    poor, rich = config("poor", *WORLD), config("rich", *WORLD, *CONTROL)
    result = hopline("status", ANY.replace(":0", ":5101"), "--config", poor)
    assert result.code == 2
    assert "HOPLINE.STATUS, HOPLINE.STATUSREPORT: add" in result.errors
    running = start(f"{HERE}:ACTORS", "--bind", ANY, "--config", poor)
    result = hopline("status", running.address, "--config", rich, "--timeout", "1")
    assert result.code == 1
    assert "EXPIRED" in result.errors
    assert "HOPLINE.STATUS, HOPLINE.STATUSREPORT too" in result.errors
    assert running.end()[0] == 0
    assert "warning" in running.errors
    assert "HOPLINE.ROUTESREPORT" in running.errors


# Encryption.


def test_with_curve(start, hopline, tmp_path):
    ours, theirs, back = zmq.curve_keypair(), zmq.curve_keypair(), _free_address()

    def write(name, pair, allowed, address):
        (tmp_path / name).write_text(
            f'[node.curve]\npublic_key = "{pair[0].decode()}"\nsecret_key = "{pair[1].decode()}"\n'
            f'allowed_keys = ["{allowed.decode()}"]\nserver_keys = {{"{address}" = "{allowed.decode()}"}}\n'
        )
        return str(tmp_path / name)

    running = start(f"{HERE}:ACTORS", "--bind", ANY, "--config", write("node.toml", theirs, ours[0], back))
    config = write("client.toml", ours, theirs[0], running.address)
    result = hopline("ask", running.address, "HELLO", "--reply", "EHHLO", "--config", config, "--bind", back)
    assert (result.code, result.lines) == (0, [{"text": "hi you"}])
    # From another address the node has no key to answer to, and without a key nobody comes in.
    result = hopline("status", running.address, "--config", config, "--timeout", "0.5")
    assert result.code == 1
    assert "--bind" in result.errors
    assert hopline("status", running.address, "--timeout", "0.5").code == 1
    result = hopline("status", "tcp://127.0.0.1:1", "--config", config)
    assert result.code == 2
    assert "server_keys" in result.errors
    assert running.end()[0] == 0


# Help.


@pytest.mark.parametrize(
    "command",
    [
        ["node"],
        ["rendezvous"],
        ["cluster", "status"],
        ["status"],
        ["routes"],
        ["ask"],
        ["tell"],
        ["doctor"],
        ["keys", "new"],
    ],
)
def test_help_has_an_example_and_imports_nothing_heavy(command):
    probe = (
        f"import sys, runpy; sys.argv = ['hopline', *{command!r}, '--help']\n"
        "try: runpy.run_module('hopline', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print(sorted({'asyncio', 'numpy', 'pyarrow', 'pyspark', 'rich', 'zmq'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=50)
    assert f"Example:  hopline {' '.join(command)}" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
