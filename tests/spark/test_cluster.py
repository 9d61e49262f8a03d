"""The pipeline on a real Spark cluster: a master and two workers as processes, captures and tables in shared folders."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter

import pytest

from hopline.spark.run import Asked, Pipeline
from tests.spark.generator import DOMAINS
from tests.spark.lake import all_rows
from tests.spark.receiver import Receiver, Shop
from tests.spark.standalone import Standalone, until
from tests.spark.world import make_world

LONG = pytest.mark.timeout(900)
"""JVMs start and warm up, several at once, beside the other tests."""

HALFWAY = 15
"""Tasks that an executor has done when it is killed: about a fifth of what it would do."""


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    path = tmp_path_factory.mktemp("captures")
    make_world(seed=11, rounds=2).network.write(str(path))
    return path


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys.toml"
    tables = []
    for domain in DOMAINS:
        names = ", ".join(json.dumps(identity.decode()) for identity in sorted(domain.identities))
        hexes = ", ".join(json.dumps(key.hex()) for key in domain.keys)
        tables.append(f'[domains.{domain.name}]\nkeys = [{hexes}]\nscheme = "{domain.scheme}"\nidentities = [{names}]\n')
    path.write_text("\n".join(tables))
    return path


@pytest.fixture(scope="module")
def local(spark, captures, tmp_path_factory):
    """The tables, as one machine makes them."""
    tables = tmp_path_factory.mktemp("local")
    Pipeline(str(captures), str(tables), Asked(domains=DOMAINS), session=lambda _: spark).run()
    return all_rows(tables)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    standalone = Standalone(tmp_path_factory.mktemp("cluster"))
    yield standalone
    standalone.stop()


class Driver:
    """A process that works on a cluster: Python with some words."""

    def __init__(self, cluster, *words):
        self.process = subprocess.Popen(
            [sys.executable, *map(str, words)],
            env=cluster.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self):
        return self

    def end(self):
        """Wait for its end; returns what it printed."""
        out, errors = self.process.communicate(timeout=600)
        assert self.process.returncode == 0, errors
        return out

    @property
    def is_running(self):
        return self.process.poll() is None

    def __exit__(self, *_):
        if self.is_running:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()


def pipeline_run(cluster, captures, tables, keys):
    words = ["pipeline", "run", captures, tables, "--keys", keys, "--master", cluster.address, "--json"]
    return Driver(cluster, "-m", "hopline", *words)


@LONG
def test_a_cluster_makes_the_same_tables(cluster, captures, keys, local, tmp_path):
    with pipeline_run(cluster, captures, tmp_path / "tables", keys) as run:
        summary = json.loads(run.end().splitlines()[-1])
    assert summary["changed"]
    assert all_rows(tmp_path / "tables") == local
    assert cluster.done_by(0)  # both had a part in it
    assert cluster.done_by(1)


@LONG
def test_a_worker_that_is_killed_changes_nothing(cluster, captures, keys, local, tmp_path):
    before = cluster.done_by(1)
    with pipeline_run(cluster, captures, tmp_path / "tables", keys) as run:
        until(lambda: cluster.done_by(1) >= before + HALFWAY, 300, "tasks of the second worker")
        cluster.kill(1)
        assert run.is_running  # it was in the midst of it
        run.end()
    assert all_rows(tmp_path / "tables") == local
    cluster.revive(1)


SHARE = 600
"""Rows of a task. It sends 100 a second."""

SENDING = """
import sys
from hopline.spark.run import JVM_FOR_LITTLE
from hopline.spark.session import spark_session
master, peers, count = sys.argv[1:]
spark = spark_session(master, conf=JVM_FOR_LITTLE)
rows = spark.range(0, int(count), 1, 4).selectExpr("'ORDER.PLACE' AS identity", "string(id) AS body")
options = {"peers": peers, "until": "handled", "rate": "200", "tasks": "2", "inFlight": "20"}
rows.write.format("hopline").options(**options).mode("append").save()
"""


@LONG
def test_rows_are_handled_once_although_their_executor_is_killed(cluster):
    """A task that is run again sends its rows again; whoever had them before knows them."""
    shop = Shop()
    before = len(cluster.said_by(1))
    with Receiver(shop) as receiver, Driver(cluster, "-c", SENDING, cluster.address, receiver.address, 4 * SHARE) as driver:
        until(lambda: is_amidst(cluster.said_by(1)[before:], shop.taken), 300, "orders sent by the second worker")
        cluster.kill(1)
        assert driver.is_running
        driver.end()
        assert sorted(shop.taken, key=int) == [b"%d" % number for number in range(4 * SHARE)]
        assert receiver.node.statistics().repeated > 0
    cluster.revive(1)


def is_amidst(log, taken):
    """Whether some of the rows of a task were taken and others were not, of those tasks that a log tells of."""
    counts = Counter(int(body) // SHARE for body in list(taken))
    begun = {int(number) for number in re.findall(r"Running task (\d+)\.0 in stage", log)}
    return any(SHARE / 10 <= counts[number] <= SHARE / 2 for number in begun)
