"""The table `messages`: occurrences of equal messages, and trails put back in order."""

import msgspec
import pytest
from pyspark.sql import functions as sf

from hopline.spark import messages, trails
from hopline.spark.repeated import repeated, sift
from hopline.spark.tables import MESSAGES
from hopline.wire import Distribution, RoutingEntry, encode
from tests.spark.generator import Network, Node, Parcel
from tests.spark.made import Made, assert_same, made, rows_of
from tests.spark.stories import ZEROS, World


@pytest.mark.parametrize("seed", [1, 2])
def test_every_sighting_of_a_world_is_a_row(spark, seed):
    world = made(spark, seed)
    assert world.messages.columns == list(MESSAGES.names)
    assert_same(world.messages.drop("body", "seen_at"), world.truth.messages())


def test_the_body_is_there_only_if_it_was_asked_for(spark):
    world = made(spark)
    without = messages.finish(world.sightings.drop("body"))
    assert without.columns == [name for name in MESSAGES.names if name != "body"]
    assert world.messages.where("length(body) != body_size").count() == 0


@pytest.mark.parametrize("stands", ["alone", "in halves"])
def test_what_stands_wrong_is_found_and_put_right(spark, stands, tmp_path):
    world = made(spark)
    if stands == "alone":
        alone = {name: sf.lit(value).cast(MESSAGES.schema[name].dataType) for name, value in messages.ALONE.items()}
        before = trails.unrestored(world.messages).withColumns(alone)
    else:
        middle = world.sightings.select(sf.percentile("seen_ns", 0.5).cast("bigint")).head()[0]
        halves = [world.sightings.where(f"seen_ns < {middle}"), world.sightings.where(f"seen_ns >= {middle}")]
        before = messages.finish(halves[0]).unionByName(messages.finish(halves[1]))
    number, trail = (
        ("event_id", "occurrence"),
        ("event_id", "trail_order", "wire_trail", "trail", "origin_key", "parent_trail"),
    )
    before.repartition(3).write.parquet(str(tmp_path / "before"))
    parts = [sift(str(path)) for path in (tmp_path / "before").glob("*.parquet")]
    assert len(parts) > 1
    uids = spark.createDataFrame([(uid,) for uid in repeated(parts).to_pylist()], "uid binary")
    found = {
        number: messages.renumbered(before, uids),
        trail: trails.reread(before),
    }
    for columns, changed in found.items():
        wrong = world.messages.select(*columns).exceptAll(before.select(*columns))
        assert wrong.count()
        assert_same(changed.select(*columns), rows_of(wrong))


def test_without_peers_copies_of_a_broadcast_count_as_equal_messages(spark):
    world = made(spark)
    found = messages.finish(world.sightings.drop("peer_key"))
    assert found.where("peer_key is not null").count() == 0
    spread = found.where("identity_key = 'PRICE' and tap = 'scaleout_out' and node_key = 'ada-id'")
    assert {row.occurrence for row in spread.collect()} == {0, 1, 2}
    inside = found.where("identity_key = 'PRICE' and tap = 'actor_in'")
    assert {row.occurrence for row in inside.collect()} == {0}


def test_no_sightings_give_no_messages(spark):
    world = made(spark)
    assert messages.finish(world.sightings.limit(0)).count() == 0


# --- trails that cannot be put in order -------------------------------------------------------------------------------


class Trails:
    """Sightings with trails as one likes, of one flow."""

    def __init__(self) -> None:
        self.world = World(Network())
        self.nodes = {name: self.world.network.add(Node(name, "reference", "v5")) for name in ("p", "q", "r", "s")}
        self.flow = b"one flow"

    def see(self, node: str, tap: str, trail: str, *, format: str = "v5", flow: bytes | None = None, peers: int = 0) -> None:
        """One that was sent to one node; or the copy for the last of several peers of a reference broadcast."""
        entries = tuple(RoutingEntry(f"tcp://{name}:1", f"{name}-id".encode()) for name in trail)
        message = self.world.message(b"NEWS", correlation_id=self.flow if flow is None else flow)
        sent = {"hops": peers, "distribution": Distribution.BROADCAST} if peers else {"hops": 1}
        message = msgspec.structs.replace(message, routing=entries, **sent)
        variant = "int32-stamp" if format == "v5" else ""
        parcel = Parcel(message, entries, self.nodes[node], 0)
        frames = encode(message, format, variant or None)
        self.world.network.wait(1)
        self.world.network.see(self.nodes[node], tap, parcel, frames=frames, format=format, variant=variant)

    def orders(self, spark) -> list[tuple[str, str]]:
        """Order and trail of each long one, as they were seen."""
        found = Made(spark, self.world).messages.where(sf.size("trail") > 2).orderBy("seen_ns")
        return [
            ("".join(entry.node_key[0] for entry in row.trail), row.trail_order)
            for row in found.select("trail", "trail_order").collect()
        ]


def test_without_other_sightings_a_long_trail_of_an_old_format_is_ambiguous(spark):
    trails = Trails()
    trails.see("r", "scaleout_out", "qpr")
    trails.see("s", "scaleout_in", "qpr")
    trails.see("s", "scaleout_in", "qpr", flow=ZEROS)
    assert trails.orders(spark) == [("qpr", "ambiguous")] * 3


def test_a_trail_that_was_reversed_is_restored_and_one_that_was_not_is_exact(spark):
    trails = Trails()
    trails.see("q", "scaleout_in", "p")
    trails.see("q", "scaleout_out", "pq")
    trails.see("r", "scaleout_in", "pq")
    trails.see("r", "scaleout_out", "qpr")
    trails.see("s", "scaleout_in", "qpr")
    trails.see("r", "scaleout_out", "pqr")
    trails.see("s", "scaleout_in", "pqr", format="v6")
    assert trails.orders(spark) == [("pqr", "restored")] * 2 + [("pqr", "exact")] * 2


def test_entries_that_repeat_a_neighbour_come_from_a_broadcast_and_stay_beside_it(spark):
    trails = Trails()
    trails.see("q", "scaleout_in", "p")
    trails.see("q", "scaleout_out", "pqqq", peers=3)
    assert trails.orders(spark) == [("pqqq", "exact")]


def test_two_nodes_that_talk_with_each_other_repeat_nobody(spark):
    """Both of them reference nodes, or none."""
    trails = Trails()
    for flow, sent in ((b"reversed", ("p", "pq", "qpp", "ppqq")), (b"as it was", ("p", "pq", "pqp", "pqpq"))):
        for number, trail in enumerate(sent):
            trails.see("pq"[number % 2], "scaleout_out", trail, flow=flow)
            trails.see("qp"[number % 2], "scaleout_in", trail, flow=flow)
    assert trails.orders(spark) == [
        *[("pqp", "restored")] * 2,
        *[("pqpq", "restored")] * 2,
        *[("pqp", "exact")] * 2,
        *[("pqpq", "exact")] * 2,
    ]


def test_a_trail_that_fits_no_other_sighting_is_only_a_set(spark):
    trails = Trails()
    trails.see("r", "scaleout_in", "pq")
    trails.see("r", "scaleout_out", "psr")
    assert trails.orders(spark) == [("psr", "set")]


def test_both_ends_of_a_trail_may_have_been_the_last(spark):
    trails = Trails()
    trails.see("r", "scaleout_in", "pq")
    trails.see("r", "scaleout_in", "qp")
    trails.see("r", "scaleout_out", "pqr")
    assert trails.orders(spark) == [("pqr", "ambiguous")]


def test_a_later_format_is_taken_at_its_word(spark):
    trails = Trails()
    trails.see("s", "scaleout_in", "qpr", format="v6")
    assert trails.orders(spark) == [("qpr", "exact")]
