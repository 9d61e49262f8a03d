"""The nodes of a capture: what is said of messages that were not seen, where it is known what was captured and what not."""

import pytest

from hopline.capture.record import Records
from hopline.capture.writer import CaptureWriter
from hopline.spark import callbacks, expiries, hops
from hopline.wire import TICKS_PER_MS, Message, RoutingEntry, encode
from tests.spark.made import Tables
from tests.spark.small import request

START_NS = 1_794_787_200_000_000_000
MS = 1_000_000
SECONDS = range(10)


def message(source: str, target: str, number: int) -> Message:
    return Message(
        socket_identity=target.encode(),
        identity=b"TELL",
        version=1,
        correlation_id=f"{source}-{target}-{number}".encode(),
        hops=1,
        routing=(RoutingEntry(f"tcp://{source}:1", source.encode()),),
        ttl_ticks=100 * TICKS_PER_MS,
    )


def record(path, node: str, tap: str, seen: dict[int, Message], *, numbers=None, mark: str = "") -> None:
    """A run of a node: what it saw at one tap, by milliseconds from the start."""
    writer = CaptureWriter(str(path), owner=node.encode(), mark=mark, wall_ns=lambda: START_NS)
    writer.start()
    writer.write(
        Records(
            seen_ns=[START_NS + at_ms * MS for at_ms in seen],
            seq=numbers or [*range(1, len(seen) + 1)],
            tap=[tap] * len(seen),
            frames=[encode(each) for each in seen.values()],
            node=node,
        )
    )
    writer.close()


@pytest.fixture(scope="module")
def tables(spark, tmp_path_factory):
    """Each second a node sends a message to each of several others, and all but one are seen to come."""
    path = tmp_path_factory.mktemp("capture")
    targets = ("whole", "torn", "killed", "part", "some", "most", "renamed", "deaf")
    sent = {
        1000 * second + place: message("from", target, second) for second in SECONDS for place, target in enumerate(targets)
    }
    record(path, "from", "scaleout_out", sent, mark="s500")

    def came(target, seconds=SECONDS):
        return {1000 * second + 20: message("from", target, second) for second in seconds if second != 5}

    record(path, "whole", "scaleout_in", came("whole"))
    numbers = [1, 2, 3, 4, 5, 7, 8, 9, 10]  # the sixth was seen, and not written
    record(path, "torn", "scaleout_in", came("torn"), numbers=numbers)
    record(path, "killed", "scaleout_in", came("killed", range(5)))
    record(path, "killed", "scaleout_in", came("killed", range(6, 10)))
    record(path, "part", "scaleout_in", came("part"), mark="p")
    record(path, "some", "scaleout_in", came("some"), mark="s499")
    record(path, "most", "scaleout_in", came("most"), mark="s500")
    record(path, "renamed", "scaleout_in", came("renamed"))
    (written,) = path.glob("*-renamed-*")
    written.rename(path / "kept-backup-2.arrows")  # which does not mean a part of them
    record(path, "deaf", "scaleout_in", came("deaf", range(5)))
    record(path, "deaf", "scaleout_out", {at_ms: message("deaf", "somebody", at_ms) for at_ms in (5000, 9999)})
    record(path, "asker", "hub_out", {0: request("asked", ttl_ms=5000), 1000: request("asked", ttl_ms=5000, key=2)})
    record(path, "asker", "hub_in", {60_000: message("somebody", "asker", 0)})
    return Tables(spark, str(path), ())


def test_a_message_is_lost_only_where_somebody_looked_for_it(tables):
    found = hops.hops(tables.moves).where("received_at is null").collect()
    assert {row.to_node_key: row.lost for row in found} == {
        "whole": True,
        "torn": False,
        "killed": False,
        "part": False,
        "some": False,
        "most": True,
        "renamed": True,
        "deaf": False,  # it was captured to the end, and what came to it only for a while
        "somebody": False,
    }
    assert len(found) == 7 + 5 + 2


def test_nothing_has_expired_where_it_may_have_come(tables):
    (row,) = expiries.expiries(tables.fates).groupBy().sum("sent", "in_time", "expired_in_flight").collect()
    assert tuple(row) == (85, 68, 3)  # to those who were captured all the time, and get what the others get


def test_a_request_waits_as_long_as_its_own_run_of_the_node_was_captured(tables):
    """And nothing that came was captured then: an answer may have been there."""
    found = callbacks.callbacks(tables.answers).where("correlation_key = 'asked'").collect()
    assert [(row.outcome, row.asker_captured) for row in found] == [("pending", False)] * 2
