"""The table `signatures`: an audit, and keys that show nowhere."""

from base64 import b64encode
from collections import Counter

import pytest
from pyspark.sql import functions as sf

from hopline.security import Keyring
from hopline.spark import signatures
from hopline.spark.news import find_news
from hopline.spark.tables import SIGNATURES
from hopline.wire import decode
from tests.spark import reference as real
from tests.spark.generator import DOMAINS
from tests.spark.made import REFERENCE_DOMAINS, assert_same, made, reference_tables


@pytest.mark.parametrize("seed", [1, 2])
def test_every_signature_of_a_world_is_judged(spark, seed):
    world = made(spark, seed)
    found = signatures.signatures(world.verdicts)
    assert found.columns == list(SIGNATURES.names)
    assert_same(found, world.truth.signatures())


def counts(found) -> Counter[tuple[str, str]]:
    rows = found.groupBy("domain", "status").agg(sf.sum("messages").alias("messages")).collect()
    return Counter({(row.domain, row.status): row.messages for row in rows})


def test_without_keys_nothing_is_checked(spark):
    world = made(spark)
    found = counts(signatures.signatures(signatures.judge(world.records)))
    assert {status for _, status in found} == {"unsigned", "unchecked"}
    assert found["", "unsigned"] == sum(seen.encoded and not seen.message.signature for seen in world.truth.sightings)


def test_a_body_that_was_cut_leaves_a_signature_unchecked(spark):
    world = made(spark)
    cut = world.records.withColumn("body_kept", sf.lit("cut"))
    found = counts(signatures.signatures(signatures.judge(cut, DOMAINS)))
    assert {status for _, status in found} == {"unsigned", "unchecked", "unknown-domain"}


def test_verdicts_are_few_where_nothing_has_to_be_told_apart(spark):
    world = made(spark)
    rows = world.verdicts.where("nonce is null and correlation_key is null")
    assert rows.groupBy().sum("messages").collect()[0][0] > 5 * rows.count()
    assert world.verdicts.where("status = 'invalid' and (messages != 1 or correlation_key is null)").count() == 0


def test_no_key_is_in_a_plan(spark):
    world = made(spark)
    found = signatures.signatures(signatures.judge(world.records, DOMAINS))
    plans = found._jdf.queryExecution().toString() + found._jdf.queryExecution().logical().toJSON()  # noqa: SLF001
    for key in (key for domain in DOMAINS for key in domain.keys):
        assert key.decode() not in plans
        assert key.hex() not in plans.lower()


def as_base64(key):
    """How a key looks within base64, wherever it begins there."""
    for before in range(3):
        text = b64encode(bytes(before) + key).decode()
        yield text[-(-before * 8 // 6) : (before + len(key)) * 8 // 6]


def test_no_key_is_in_a_log_that_has_everything(spark, caplog):
    world = made(spark)
    news = find_news(world.path)
    caplog.set_level("DEBUG")
    caplog.clear()
    signatures.judge(world.records, DOMAINS)
    news.verdicts(spark, DOMAINS)
    spark.range(1)
    assert "Command to send: " in caplog.text  # of all else
    for key in (key for domain in DOMAINS for key in domain.keys):
        assert not any(text in caplog.text for text in (key.decode(), key.hex(), *as_base64(key)))


def test_the_reference_network_signed_well(spark, reference):
    tables = reference_tables(spark, reference)
    ring = Keyring(REFERENCE_DOMAINS)
    true = Counter()
    for file in sorted(real.FILES.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            frames = [bytes.fromhex(frame) for frame in real.json.loads(line)["frames"]]
            decoded = decode(frames)
            true[decoded.message.domain, ring.verify(decoded).value] += 1
    assert counts(signatures.signatures(tables.verdicts)) == true
    assert {status for _, status in true} == {"valid", "unsigned"}
