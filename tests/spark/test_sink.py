"""Rows into a live network: sent by Spark's own workers over real sockets, and confirmed by a real node."""

import asyncio
import re
import socket
import time

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

from hopline.assembly import Node
from hopline.payload.registry import kind_of
from hopline.security import Domain, Domains
from tests.e2e.world import Ehhlo, Greeter, Hello
from tests.spark.receiver import Once, Order, Orders, Receiver

KEY = b"0123456789abcdef"


def orders_of(spark, numbers, partitions=2):
    rows = [("SINK.ORDER", bytearray(kind_of(Order).encode(Order(number)))) for number in numbers]
    return spark.createDataFrame(rows, "identity string, body binary").repartition(partitions)


def write(rows, address="", **options):
    named = ({"peers": address} if address else {}) | {name: str(value) for name, value in options.items()}
    rows.write.format("hopline").options(**named).mode("append").save()


def reason_of(caught):
    """What the task raised, as a person finds it in what Spark says."""
    found = re.findall(r"hopline\.errors\.(\w+: .*)", str(caught.value))
    assert found, str(caught.value)[-2000:]
    return found[0]


@pytest.fixture
def orders():
    actor = Orders()
    with Receiver(actor) as receiver:
        yield receiver, actor


@pytest.mark.parametrize("until", ["node", "handled"])
def test_every_row_arrives_once(spark, orders, until):
    receiver, actor = orders
    write(orders_of(spark, range(500)), receiver.address, until=until, inFlight=20)
    receiver.stop()  # which waits for what was taken
    assert sorted(actor.taken) == list(range(500))
    assert len({message.correlation_id for message in actor.messages}) == 500
    assert {message.ttl_ticks for message in actor.messages} == {0}


def test_what_was_handled_before_is_not_handled_again(spark):
    actor = Once()
    with Receiver(actor) as receiver:
        for numbers in (range(50), range(100), range(100)):
            write(orders_of(spark, numbers), receiver.address, until="handled")
        assert sorted(actor.taken) == list(range(100))
        assert receiver.node.statistics().repeated == 150


def test_the_fields_of_a_row_are_those_of_its_message(spark, orders):
    receiver, actor = orders
    row = orders_of(spark, [7]).select(
        "identity",
        "body",
        sf.lit(1).alias("version"),
        sf.lit("my flow").alias("correlation_id"),
        sf.lit(receiver.node.identity).alias("receiver_node"),
        sf.lit(60_000).alias("ttl_ms"),
    )
    write(row, receiver.address, until="handled")
    [message] = actor.messages
    assert message.correlation_id == b"my flow"
    assert message.receiver_node_identity == receiver.node.identity
    assert 0 < message.ttl_ticks <= 60_000 * 10_000


def test_a_broadcast_reaches_every_actor(spark):
    first, second = Orders(), Orders()
    with Receiver(first, second) as receiver:
        rows = orders_of(spark, range(5), 1).withColumn("distribution", sf.lit("broadcast"))
        write(rows, receiver.address, until="handled")
        receiver.stop()
        assert sorted(first.taken) == sorted(second.taken) == list(range(5))


def test_what_is_not_confirmed_fails_the_task(spark):
    actor = Orders(fails_at=[13])
    with Receiver(actor) as receiver, pytest.raises(PySparkException) as caught:
        write(orders_of(spark, range(20), 1), receiver.address, until="handled", inFlight=1)
    reason = reason_of(caught)
    assert re.search(r"SparkError: 1 of \d+ messages were not confirmed \(REMOTE_ERROR 1\), and no more were sent", reason)
    assert "no order 13 (SINK.ORDER, flow " in reason


def test_nobody_there_is_said_after_the_timeout(spark):
    with Receiver(Orders()) as receiver:
        address = receiver.address
    with pytest.raises(PySparkException) as caught:
        write(orders_of(spark, [1], 1), address, timeout=0.5)
    assert "1 of 1 messages were not confirmed (NO_ROUTE 1)" in reason_of(caught)


def test_a_rate_is_kept(spark, orders):
    receiver, actor = orders
    began = time.monotonic()
    write(orders_of(spark, range(60), 1), receiver.address, until="handled", rate=40, tasks=2)
    assert time.monotonic() - began >= 59 / 20  # how it is spread is tested where the sender can be looked at
    assert sorted(actor.taken) == list(range(60))


def test_signed_rows_are_taken_and_others_refused(spark, tmp_path, caplog):
    identities = frozenset({b"SINK.ORDER"})
    domains = Domains([Domain("orders", keys=(KEY,), scheme="full", identities=identities)])
    keys = tmp_path / "keys.toml"
    keys.write_text(f'[domains.orders]\nkeys = ["{KEY.hex()}"]\nidentities = ["SINK.ORDER"]\n')
    actor = Once()
    with Receiver(actor, domains=domains) as receiver:
        rows = orders_of(spark, range(10))
        write(rows, receiver.address, keys=keys, until="handled")
        write(rows.withColumn("domain", sf.lit("orders")), receiver.address, keys=keys, until="handled")
        assert sorted(actor.taken) == list(range(10))
        with pytest.raises(PySparkException) as caught:
            write(rows.withColumn("domain", sf.lit("other")), receiver.address, keys=keys)
        assert "belongs to 'orders'" in reason_of(caught)
        with pytest.raises(PySparkException) as caught:
            write(rows, receiver.address, timeout=0.5)
        assert "were not confirmed" in reason_of(caught)
    assert KEY.hex() not in caplog.text + str(caught.value)


def test_mistakes_are_said_before_anything_is_sent(spark, orders):
    receiver, actor = orders
    rows = orders_of(spark, [1])
    with pytest.raises(PySparkException, match="peers must say where nodes are"):
        write(rows)
    with pytest.raises(PySparkException, match="there is no column idenity"):
        write(rows.withColumnRenamed("identity", "idenity"), receiver.address)
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        rows.write.format("hopline").option("peers", receiver.address).mode("overwrite").save()
    assert not actor.taken


def test_an_empty_dataframe_needs_no_network(spark):
    write(orders_of(spark, []), "tcp://127.0.0.1:1", timeout=0.1)


def test_nodes_are_found_through_a_cluster(spark):
    rendezvous = f"tcp://127.0.0.1:{free_port()}"
    actor = Orders()
    with Receiver(actor, cluster=rendezvous, embed=True):
        write(orders_of(spark, range(20)), cluster=rendezvous, until="handled")
        assert sorted(actor.taken) == list(range(20))


def test_a_stored_day_is_played_again(spark, tmp_path):
    """The recipe of docs/spark.md, from a capture of one network into another one."""
    captures = tmp_path / "captures"
    record(captures, range(30))
    actor = Once()
    with Receiver(actor, Greeter()) as receiver:
        for _ in range(2):
            seen = (
                spark.read.format("hopline")
                .option("bodies", "true")
                .option("where", "tap == hub_out and not is_system and not is_callback")
                .load(str(captures))
            )
            columns = ["identity", "version", "partition", "body", "correlation_id", "callback_points"]
            begun = seen.where("addressing <> 'all' and body_kept = 'whole'").select(columns)
            assert begun.count() == 33
            write(begun, receiver.address, until="handled", rate=1000, tasks=2)
        assert sorted(actor.taken) == list(range(30))  # once
        books = receiver.node.statistics()
        assert (books.handled - books.repeated, books.repeated, books.dead_lettered) == (30 + 2 * 3, 30, 0)


def record(captures, numbers):
    """A day: somebody tells of orders, and asks for a greeting."""

    async def day():
        async with (
            Node([Orders(), Greeter()], bind="tcp://127.0.0.1:0") as there,
            Node(peers=[there.address], capture=captures) as client,
        ):
            for number in numbers:
                await client.deliver(Order(number))
            for name in ("a", "b", "c"):
                await client.ask(Hello(name), Ehhlo)
            await client.publish(Order(99))

    asyncio.run(day())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_stream_sends_what_comes(spark, orders, tmp_path):
    receiver, actor = orders
    place = tmp_path / "orders"
    for numbers in (range(10), range(10, 25)):
        orders_of(spark, numbers).write.mode("append").parquet(str(place))
        query = (
            spark.readStream.schema("identity string, body binary")
            .parquet(str(place))
            .writeStream.format("hopline")
            .queryName("orders")
            .option("peers", receiver.address)
            .option("until", "handled")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert sorted(actor.taken) == list(range(max(numbers) + 1))
