"""A cluster as its users start it: a rendezvous and nodes as processes on loopback, and the commands that look at it."""

import asyncio
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
from contextlib import ExitStack

import pytest
import zmq
from typer.testing import CliRunner

from hopline import Node
from hopline.assembly import CurveSettings, MemberSettings, NodeSettings, Settings, make_rendezvous
from hopline.cli import app
from hopline.cluster.settings import RendezvousSettings
from tests.e2e.world import Ehhlo, Greeter, Hello
from tests.reference.actors import captured_actors
from tests.reference.node import ReferenceNode
from tests.reference.rendezvous import ReferenceRendezvous

ANY = "tcp://127.0.0.1:0"
ACTORS = "tests.unit.cli.actors"
HELLO = ("HELLO", '{"name": "Ann"}', "--reply", "EHHLO")


class Running:
    """A `hopline` command that goes on until it is told to end."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hopline", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.ready = json.loads(line)

    def end(self, number=signal.SIGINT):
        """Ask it to end; returns the exit code and what it said last."""
        self.process.send_signal(number)
        out, self.errors = self.process.communicate(timeout=30)
        return self.process.returncode, [json.loads(line) for line in out.splitlines()]

    def kill(self):
        self.process.kill()
        self.process.wait(10)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        with contextlib.suppress(ValueError):
            self.process.communicate(timeout=10)


@pytest.fixture(scope="module")
def start():
    running = []

    def make(*arguments):
        running.append(Running(*arguments))
        return running[-1]

    yield make
    for one in running:
        one.close()


@pytest.fixture(scope="module")
def cluster(start):
    """One rendezvous and two nodes, for all tests that only look and ask."""
    rendezvous = start("rendezvous", "--bind", ANY)
    address = rendezvous.ready["unicast"]
    nodes = {
        name: start("node", f"{ACTORS}:{name}", "--bind", ANY, "--cluster", address).ready for name in ("Greeter", "Market")
    }
    return address, nodes


def hopline(*arguments):
    """Run a command in a process; returns its exit code, the lines of its answer and its complaint."""
    done = subprocess.run([sys.executable, "-m", "hopline", *arguments], capture_output=True, timeout=50, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


def complaint(*arguments):
    """Run a command here that is used wrongly; returns its exit code and what it says."""
    done = CliRunner().invoke(app, arguments, prog_name="hopline")
    return done.exit_code, done.stderr


def free_endpoint():
    """An address for a rendezvous that must be known before it starts."""
    with socket.socket() as one, socket.socket() as two:
        for free in (one, two):
            free.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{one.getsockname()[1]}+{two.getsockname()[1]}"


def status(address, wait=10):
    code, (report,), errors = hopline("cluster", "status", "--cluster", address, "--wait", str(wait))
    assert (code, errors) == (0, "")
    return report


def until(look, seconds=30):
    """Look again until something is so: other processes take their time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
    raise AssertionError(f"not so within {seconds} s")


# One rendezvous, two nodes.


@pytest.mark.slow
def test_who_asks_needs_the_address_of_the_rendezvous_alone(cluster):
    address, nodes = cluster
    assert hopline("ask", "--cluster", address, *HELLO) == (0, [{"text": "hi Ann"}], "")
    price = ["PRICE", '{"market": "EU"}', "--partition", "EU", "--reply", "PRICED", "--encoding", "json"]
    assert hopline("ask", *price, "--cluster", address) == (0, [{"price": 3}], "")
    told = {"reached": "handled", "node": nodes["Greeter"]["node"]}
    assert hopline("tell", "NOTICE", "--cluster", address, "--until", "handled") == (0, [told], "")


@pytest.mark.slow
def test_what_nobody_takes_has_no_route(cluster):
    code, lines, errors = hopline("ask", "NOBODY", "--reply", "EHHLO", "--cluster", cluster[0], "--timeout", "2")
    assert (code, lines) == (1, [])
    assert "NO_ROUTE" in errors


@pytest.mark.slow
def test_a_node_is_named_by_its_identity_how_that_begins_or_its_address(cluster):
    address, nodes = cluster
    greeter = nodes["Greeter"]
    for name in (greeter["node"], greeter["node"][:12], greeter["address"]):
        code, (report,), _ = hopline("status", name, "--cluster", address)
        assert (code, report["node"]) == (0, greeter["node"])
    code, (report,), _ = hopline("routes", greeter["node"], "--cluster", address)
    assert code == 0
    assert nodes["Market"]["node"] in {known["node"] for known in report["nodes"]}


@pytest.mark.slow
def test_a_name_that_is_nobodys_or_missing_is_a_complaint(cluster):
    address, nodes = cluster
    code, _, errors = hopline("status", "nobody", "--cluster", address)
    assert code == 1
    assert "NO_ROUTE: the cluster has no node 'nobody'" in errors
    code, _, errors = hopline("status", "--cluster", address)
    assert code == 2
    assert all(node["node"] in errors for node in nodes.values())


@pytest.mark.slow
def test_tap_finds_its_node_too(cluster):
    address, nodes = cluster
    command = ["tap", nodes["Greeter"]["address"], "--cluster", address, "-n", "1", "--identity", "HELLO", "--json"]
    tap = subprocess.Popen([sys.executable, "-m", "hopline", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        until(lambda: hopline("ask", "--cluster", address, *HELLO) and tap.poll() is not None)
        assert json.loads(tap.stdout.readline())["identity_key"] == "HELLO"
    finally:
        tap.kill()
        tap.communicate(timeout=10)


@pytest.mark.slow
def test_status_of_the_cluster(cluster):
    address, nodes = cluster
    report = status(address)
    assert report["joined"] == report["leader"] == address
    assert report["complete"] is True
    assert report["formats"] == ["v6"]
    (rendezvous,) = report["rendezvous"]
    assert rendezvous["state"] == "leads"
    assert rendezvous["relayed"] > 0
    assert rendezvous["refused"] == 0
    rows = {row["node"]: row for row in report["nodes"]}
    assert rows.keys() == {node["node"] for node in nodes.values()}
    greeter = rows[nodes["Greeter"]["node"]]
    assert greeter == {
        "node": nodes["Greeter"]["node"],
        "address": nodes["Greeter"]["address"],
        "kind": "hopline",
        "format": "v6",
        "actors": 1,
        "types": 2,
        "hubs": 1,
        "health": "reachable",
    }
    assert [(row["identity"], row["partition"]) for row in report["routes"]] == [
        ("HELLO", ""),
        ("NOTICE", ""),
        ("PRICE", "EU"),
    ]
    assert report["routes"][0]["nodes"] == [nodes["Greeter"]["node"]]
    assert report["silent"] == []


@pytest.mark.slow
def test_status_on_a_terminal(cluster):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "hopline", "cluster", "status", "--cluster", cluster[0]]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env={**os.environ, "COLUMNS": "160"})
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # its end
        while select.select([ours], [], [], 30)[0]:
            text += os.read(ours, 4096)
    os.close(ours)
    assert process.wait(10) == 0
    for word in ("leader", "1 rendezvous", "leads", "2 nodes", "reachable", "PRICE", "3 routes"):
        assert word in text.decode()


# Ends.


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_rendezvous_runs_until_a_signal_and_says_what_it_did(start, number):
    rendezvous = start("rendezvous", "--bind", ANY)
    assert rendezvous.ready.keys() == {"ready", "unicast", "broadcast", "rendezvous"}
    address = rendezvous.ready["unicast"]
    node = start("node", f"{ACTORS}:Greeter", "--bind", ANY, "--cluster", address)
    assert hopline("ask", "--cluster", address, *HELLO)[0] == 0
    assert node.end()[0] == 0
    code, (report,) = rendezvous.end(number)
    assert (code, rendezvous.errors) == (0, "")
    books = report["books"]
    assert books["relayed"] == sum(books["by_identity"].values())
    assert books["by_identity"]["KINO.UNREGNODE"] == 2  # the node and who asked
    assert books["refused"] == 0


@pytest.mark.slow
def test_a_node_that_was_killed_is_silent(start):
    address = start("rendezvous", "--bind", ANY).ready["unicast"]
    one, _two = (start("node", f"{ACTORS}:{name}", "--bind", ANY, "--cluster", address) for name in ("Greeter", "Market"))
    until(lambda: len(status(address)["nodes"]) == 2)
    one.kill()
    report = status(address)
    assert [row["known_by"] for row in report["silent"] if row["node"] == one.ready["node"]] == [1]
    assert one.ready["node"] not in {row["node"] for row in report["nodes"]}


@pytest.mark.slow
def test_the_first_node_is_enough_and_another_takes_its_place(start):
    address = free_endpoint()
    first, second = (start("node", f"{ACTORS}:Greeter", "--bind", ANY, "--cluster", address, "--embed") for _ in range(2))
    until(lambda: len(status(address)["nodes"]) == 2)
    assert first.end()[0] == 0
    # It takes some seconds until the second one notices, and who asks before that is told so.
    until(lambda: hopline("ask", "--cluster", address, *HELLO, "--timeout", "10")[0] == 0)
    report = status(address)
    assert [row["node"] for row in report["nodes"]] == [second.ready["node"]]
    assert report["leader"] == address.partition("+")[0]


# Several rendezvous.


@pytest.mark.slow
def test_three_rendezvous_have_one_leader(start):
    synods = [free_endpoint().partition("+")[0] for _ in range(3)]
    members = [argument for synod in synods for argument in ("--member", synod)]
    found = [start("rendezvous", "--bind", ANY, "--synod", synod, *members).ready["unicast"] for synod in synods]
    everybody = [argument for address in found for argument in ("--cluster", address)]

    def states():
        code, lines, _ = hopline("cluster", "status", *everybody, "--wait", "5")
        return lines[0] if code == 0 else None

    report = until(states)
    assert sorted(row["state"] for row in report["rendezvous"]) == ["follows", "follows", "leads"]
    assert {row["leader"] for row in report["rendezvous"]} == {report["leader"]}
    # One that follows names the one that leads, so the address of any will do.
    (follower, *_) = (row["unicast"] for row in report["rendezvous"] if row["state"] == "follows")
    assert status(follower)["joined"] == report["leader"]


@pytest.mark.slow
def test_without_a_majority_nobody_leads_and_status_says_so(start):
    synods = [free_endpoint().partition("+")[0] for _ in range(3)]
    members = [argument for synod in synods for argument in ("--member", synod)]
    address = start("rendezvous", "--bind", ANY, "--synod", synods[0], *members).ready["unicast"]
    code, (report,), errors = hopline("cluster", "status", "--cluster", address)
    assert code == 1
    assert "NO_ROUTE" in errors
    assert (report["joined"], report["leader"]) == (None, None)
    assert [row["state"] for row in report["rendezvous"]] == ["no leader"]


@pytest.mark.slow
def test_on_sighup_nodes_are_told_of_other_rendezvous(start, tmp_path):
    new = start("rendezvous", "--bind", ANY).ready
    config = tmp_path / "rendezvous.toml"
    config.write_text(f'[rendezvous]\nbind = "{ANY}"\n')
    old = start("rendezvous", "--config", str(config))
    node = start("node", f"{ACTORS}:Greeter", "--bind", ANY, "--cluster", old.ready["unicast"])
    assert status(old.ready["unicast"])["nodes"]

    config.write_text("[rendezvous]\nnodes = ['nowhere']\n")
    old.process.send_signal(signal.SIGHUP)
    assert "nothing is changed" in old.process.stderr.readline()

    port = new["broadcast"].rpartition(":")[2]
    config.write_text(f"[rendezvous]\nnodes = ['{new['unicast']}+{port}']\n")
    old.process.send_signal(signal.SIGHUP)
    assert "nodes are told of 1 rendezvous" in old.process.stderr.readline()
    until(lambda: [row["node"] for row in status(new["unicast"])["nodes"]] == [node.ready["node"]])
    assert status(old.ready["unicast"])["nodes"] == []


def test_on_sighup_without_a_file_nothing_is_changed(start):
    rendezvous = start("rendezvous", "--bind", ANY)
    rendezvous.process.send_signal(signal.SIGHUP)
    assert rendezvous.process.stderr.readline() == "hopline: no file to read; nothing is changed\n"
    assert rendezvous.end()[0] == 0


# Captures.


@pytest.mark.slow
def test_a_capture_of_the_rendezvous_is_read_with_those_of_nodes(start, tmp_path):
    folder = str(tmp_path / "capture")
    rendezvous = start("rendezvous", "--bind", ANY, "--capture", folder)
    address = rendezvous.ready["unicast"]
    node = start("node", f"{ACTORS}:Greeter", "--bind", ANY, "--cluster", address, "--capture", folder)
    assert hopline("ask", "--cluster", address, *HELLO)[0] == 0
    assert node.end()[0] == 0
    code, (report,) = rendezvous.end()
    assert code == 0
    recorded = report["capture"]
    assert recorded["written"] == recorded["seen"] > 0
    assert recorded["lost"] == {}

    assert hopline("capture", "check", folder)[0] == 0
    (counts,) = hopline("stats", folder)[1]
    assert counts["nodes"][rendezvous.ready["rendezvous"]] == recorded["written"]
    assert counts["taps"].keys() == {"wire_in", "wire_out", "scaleout_in", "scaleout_out"}
    where = f"node_key = {rendezvous.ready['rendezvous']} and identity = KINO.REGEXTROUTE"
    rows = hopline("dump", folder, where)[1]
    # Each announcement comes in, and goes out to all.
    assert [row["tap"] for row in rows] == ["wire_in", "wire_out"] * (len(rows) // 2)
    own = hopline("dump", folder, f"node_key = {node.ready['node']} and identity = KINO.REGEXTROUTE and tap = scaleout_out")[
        1
    ]
    assert {row["message_uid"] for row in own} < {row["message_uid"] for row in rows}


# Wrong usage.


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["rendezvous", "--bind", "nowhere"], "tcp://HOST:PORT"),
        (["rendezvous", "--bind", "tcp://127.0.0.1:99999"], "tcp://HOST:PORT"),
        (["rendezvous", "--bind", "tcp://10.0.0.1:8011"], "leaves this machine without encryption"),
        (["rendezvous", "--bind", "tcp://10.0.0.1:8011"], "--plain-tcp"),
        (["rendezvous", "--bind", "tcp://0.0.0.0:8011", "--plain-tcp"], "at which nodes reach it"),
        (["rendezvous", "--member", "tcp://127.0.0.1:7002"], "--synod"),
        (["rendezvous", "--synod", "tcp://127.0.0.1:7001", "--member", "tcp://10.0.0.1:7001"], "without encryption"),
        (["rendezvous", "--synod", "tcp://127.0.0.1:7001", "--member", "tcp://127.0.0.1:0"], "Cannot connect to"),
        (["rendezvous", "--format", "v9"], "v5 or v6"),
        (["rendezvous", "--config", "nowhere.toml"], "cannot read nowhere.toml"),
        (["node", f"{ACTORS}:Greeter", "--bind", ANY, "--embed"], "at which address to be the rendezvous"),
        (["node", f"{ACTORS}:Greeter", "--bind", ANY, "--cluster", "nowhere"], "is no rendezvous"),
        (["node", f"{ACTORS}:Greeter", "--bind", ANY, "--cluster", "tcp://127.0.0.1"], "is no rendezvous"),
        (["node", f"{ACTORS}:Greeter", "--bind", ANY, "--cluster", "tcp://127.0.0.1:0"], "Cannot connect to"),
        (["cluster", "status", "--cluster", "nowhere"], "is no rendezvous"),
        (["cluster", "status", "--cluster", "tcp://10.0.0.1:8011"], "leaves this machine without encryption"),
        (["status"], "say where the node is"),
        (["status", "--cluster", "nowhere"], "is no rendezvous"),
        (["status", "--cluster", "tcp://10.0.0.1:8011", "--plain-tcp"], "--bind tcp://THIS-HOST:0"),
        (["status", "tcp://10.0.0.1:5101", "--plain-tcp"], "--bind tcp://THIS-HOST:0"),
        (["ask", "HELLO", "--reply", "EHHLO"], "write ADDRESS, IDENTITY"),
        (["ask", "A", "B", "C", "D", "--reply", "EHHLO"], "write ADDRESS, IDENTITY"),
        (["ask", "A", "B", "C", "--reply", "EHHLO", "--cluster", "tcp://127.0.0.1:8011"], "with --cluster write IDENTITY"),
        (["tell", "A", "B", "C", "--cluster", "tcp://127.0.0.1:8011"], "with --cluster write IDENTITY"),
    ],
)
def test_wrong_usage_is_one_line(arguments, text):
    code, errors = complaint(*arguments)
    assert code == 2
    assert text in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("[rendezvous]\nnodes = ['tcp://10.0.0.1:8011']", "leaves this machine without encryption"),
        ("[rendezvous]\nsynod = 'tcp://127.0.0.1:7001'\nmembers = ['tcp://127.0.0.1:7002']", "must be one of the members"),
        ("[rendezvous]\nheartbeat_s = 0", "above 0"),
        ("[rendezvous]\nlease_s = 0.1", "lease"),
        ("[rendezvous]\nport = 8011", "`port`; there are bind, "),
        ("[rendezvous]\nbnd = 'x'", "`bnd`; did you mean bind?"),
        ("[node.curve]\npublic_keys = 'x'\nsecret_key = 'x'", "did you mean public_key?"),
        ("[cluster]\nheartbeat_s = -1", "above 0"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, table, text):
    config = tmp_path / "rendezvous.toml"
    config.write_text(table)
    code, errors = complaint("rendezvous", "--config", str(config))
    assert code == 2
    assert text in errors
    assert errors.count("\n") == 1


def test_a_taken_address_is_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, lines, errors = hopline("rendezvous", "--bind", f"tcp://127.0.0.1:{taken.getsockname()[1]}")
    assert (code, lines) == (2, [])
    assert "is in use: choose another, or port 0" in errors
    assert errors.count("\n") == 1


def test_a_taken_broadcast_port_is_called_so():
    with socket.socket() as taken, socket.socket() as free:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        free.bind(("127.0.0.1", 0))
        bind = f"tcp://127.0.0.1:{free.getsockname()[1]}+{taken.getsockname()[1]}"
        free.close()
        code, lines, errors = hopline("rendezvous", "--bind", bind)
    assert (code, lines) == (2, [])
    unicast, _, port = bind.partition("+")
    assert f"tcp://127.0.0.1:{port} is in use, the broadcast port of {unicast}" in errors
    assert f"--bind {unicast}+PORT" in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    "command", [["status"], ["routes"], ["tell", "NOTICE"], ["ask", *HELLO]], ids=lambda command: command[0]
)
@pytest.mark.slow
def test_no_rendezvous_there(command):
    code, lines, errors = hopline(*command, "--cluster", free_endpoint(), "--timeout", "0.5")
    assert (code, lines) == (1, [])
    assert "NO_ROUTE: nobody who leads a cluster is heard" in errors
    assert errors.count("\n") == 1


def test_no_rendezvous_there_for_status():
    code, errors = complaint("cluster", "status", "--cluster", free_endpoint(), "--wait", "0.2")
    assert code == 1
    assert "NO_ROUTE: no rendezvous can be reached" in errors
    assert errors.count("\n") == 1


# Among reference nodes.


@pytest.mark.slow
@pytest.mark.parametrize("format", ["v5", "v6"])
def test_a_network_of_reference_nodes_is_seen_and_not_disturbed(format):
    with ExitStack() as stack:
        point = stack.enter_context(ReferenceRendezvous(format=format, heart_beat_s=0.5))
        point.wait_for(lambda: point.leads)
        server = stack.enter_context(ReferenceNode([point.endpoint], actors=captured_actors(), format=format))
        client = stack.enter_context(ReferenceNode([point.endpoint], hub=True, format=format))
        client.wait_for_route(b"HELLO")
        address = f"{point.endpoint.unicast}+{point.endpoint.broadcast.rpartition(':')[2]}"
        report = status(address, wait=20)
        receipt = hopline("tell", "HELLO", "--cluster", address, "--timeout", "20")
        assert [station.complaints for station in (point, server, client)] == [[], [], []]
    assert report["joined"] == report["leader"] == point.endpoint.unicast
    assert report["formats"] == [format]
    assert [row["state"] for row in report["rendezvous"]] == ["leads"]
    rows = {row["node"]: row for row in report["nodes"]}
    assert rows.keys() == {server.identity.decode(), client.identity.decode()}
    assert {(row["kind"], row["format"], row["health"]) for row in rows.values()} == {("other", format, "reachable")}
    assert "HELLO" in {row["identity"] for row in report["routes"]}
    assert receipt == (0, [{"reached": "node", "node": server.identity.decode()}], "")


# With encryption.


@pytest.mark.slow
def test_with_curve_nodes_find_each_other_and_who_cannot_be_heard_is_not_taken_for_dead(tmp_path):
    rendezvous, *places = (free_endpoint() for _ in range(3))
    unicast, _, port = rendezvous.partition("+")
    one, two = (place.partition("+")[0] for place in places)
    keys = [[key.decode() for key in zmq.curve_keypair()] for _ in range(3)]
    behind = {unicast: keys[0], f"tcp://127.0.0.1:{port}": keys[0], one: keys[1], two: keys[2]}

    def settings(number):
        public, secret = keys[number]
        allowed = [public for public, _ in keys]
        curve = CurveSettings(public, secret, allowed, {address: public for address, (public, _) in behind.items()})
        # Their heart beats are at free ports, for which nobody has a key.
        times = MemberSettings(rendezvous=(rendezvous,), heartbeat_s=0.1, most_missed=1)
        return Settings(NodeSettings(curve=curve), cluster=times, rendezvous=RendezvousSettings(bind=rendezvous))

    async def test():
        point = make_rendezvous(settings(0))
        await point.start()
        async with Node([Greeter()], bind=one, config=settings(1)) as server, Node(bind=two, config=settings(2)) as client:
            await client.ask(Hello("Ann"), Ehhlo, timeout=10)
            until = client.clock.now_ns() + 1.5e9  # beats are looked for every half second
            while client.clock.now_ns() < until:
                assert (await client.ask(Hello("Ann"), Ehhlo, timeout=10)).text == "hi Ann"
                assert server.identity in client.routes()
        await point.close()

    asyncio.run(asyncio.wait_for(test(), 50))
