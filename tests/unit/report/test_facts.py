"""Facts: the numbers that another engine finds in the same tables."""

import itertools
import json
import shutil
from datetime import timedelta

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hopline.errors import TablesError
from hopline.identity import EXCEPTION, RECEIPT
from hopline.node.guard import HANDLED
from hopline.report.read import facts as facts_module
from hopline.report.read.facts import read_facts
from hopline.report.read.moves import offsets_ms
from hopline.report.read.system import ANSWERS
from tests.report.tables import EVIL, START, Shop, at, is_system, shop, write_tables


@pytest.fixture(scope="module")
def facts(tables):
    return read_facts(tables, top=5)


@pytest.fixture(scope="module")
def ask(tables):
    """A question in SQL: `{flows}` is the table flows."""

    def ask(sql):
        names = {name: f"read_parquet('{tables}/{name}/*/*.parquet')" for name in _names(tables)}
        return duckdb.sql(sql.format(**names)).fetchall()

    return ask


def _names(tables):
    return [path.name for path in tables.iterdir() if path.name[0] != "_"]


def test_pandas_reads_them_too(tables, facts):
    flows = pd.read_parquet(tables / "flows")
    assert len(flows[~flows["root_identity_key"].str.startswith("HOPLINE.")]) == facts.flows.count < len(flows)


def test_sightings(facts, ask):
    ((count, nodes, first, last),) = ask(
        "select count(*), count(distinct node_key), min(epoch_us(seen_at)), max(epoch_us(seen_at)) from {messages}"
    )
    assert (facts.seen.sightings, len({key[0] for key, _ in facts.seen.nodes.ordered()})) == (count, nodes)
    assert (facts.seen.timeline.first_us, facts.seen.timeline.last_us) == (first, last)
    types = ask("select identity_key, count(*) from {messages} group by 1")
    assert {key[0]: counts[0] for key, counts in facts.seen.types.ordered()} == dict(types)
    assert {name: sum(facts.seen.timeline.of(name).values()) for name in facts.seen.timeline.names} == dict(types)
    formats = ask("select format, variant, encoded, count(*) from {messages} group by all")
    assert {(*key, counts[0]) for key, counts in facts.seen.formats.ordered()} == set(formats)


def test_traffic_by_step(facts, ask):
    line = facts.seen.timeline
    found = ask(f"select identity_key, epoch_us(seen_at) // {line.width_us}, count(*) from {{messages}} group by all")
    assert {(name, step, count) for name in line.names for step, count in line.of(name).items()} == set(found)


def test_moves(facts, ask):
    found = ask(
        f"""select from_node_key, to_node_key,
            count(*) filter (sent_at is not null and received_at is not null),
            count(*) filter (received_at is null and not lost), count(*) filter (sent_at is null), count(*) filter (lost)
        from {{hops}} where kind = 'network' and not {is_system("identity_key")} group by all"""
    )
    assert {(*key, *numbers) for key, numbers in facts.moves.ends.ordered()} == set(found)
    for source, target, *marks in ask(
        f"""select from_node_key, to_node_key, quantile_disc(latency_ms - skew_ms, [0.5, 0.95, 0.99]), count(latency_ms)
        from {{hops}} where latency_ms is not null and not {is_system("identity_key")} group by all"""
    ):
        spread = facts.moves.spreads[source, target]
        assert ([spread.at(share) for share in (0.5, 0.95, 0.99)], spread.count) == tuple(marks)


def test_losses(facts, ask):
    found = ask("select from_node_key, to_node_key, identity_key, count(*) from {hops} where lost group by all")
    assert {(*key, counts[0]) for key, counts in facts.moves.lost.ordered()} == set(found) != set()
    assert facts.moves.lost.note_of(("shop", "store", "ORDER.PLACE")) == "flow-0058"


@pytest.mark.parametrize("level", ["node", "message"])
def test_links(facts, ask, level):
    found = ask(
        f"""select source_key, target_key, sum(messages), sum(bytes), sum(errors), sum(lost), sum(expired)
        from {{edges}} where level = '{level}' and not {is_system("identity_key")} and not {is_system("source_key")}
        group by all"""
    )
    assert {(link.source, link.target, *link[3:]) for link in facts.links.between(level)} == set(found) != set()


def test_an_example_of_what_went_wrong(facts):
    assert {link.flow for link in facts.links.between("node") if link.bad} == {"flow-0051", "flow-0058"}


def test_answers(facts, ask):
    answers = facts.answers
    is_asked = f"not {is_system('request_identity_key')}"
    outcomes = dict(ask(f"select outcome, count(*) from {{callbacks}} where {is_asked} group by 1"))
    assert {key[0]: counts[0] for key, counts in answers.outcomes.ordered()} == outcomes
    assert (answers.count("ok"), answers.count("pending", "expired")) == (outcomes["ok"], 4)
    for request, response, marks in ask(
        f"""select request_identity_key, response_identity_key, quantile_disc(wait_ms, [0.5, 0.95, 0.99])
        from {{callbacks}} where wait_ms is not null and {is_asked} group by all"""
    ):
        assert [answers.waits[request, response].at(share) for share in (0.5, 0.95, 0.99)] == marks


def test_a_wait_is_what_the_asker_saw(tmp_path):
    made = Shop()
    made.ask(0.0, 5.0)
    made.ask(10.0, 0.2, asker_captured=False)
    made.ask(20.0, 900.0, outcome="late", asker_captured=False)
    made.ask(30.0, 0.1, request="PRICE.GET", response="PRICE", asker_captured=False)
    made.ask(40.0, 1.0, outcome="pending", asker_captured=False)
    answers = read_facts(write_tables(tmp_path, made.rows), top=3).answers
    assert (answers.wait.count, answers.wait.least, answers.wait.greatest) == (1, 5.0, 5.0)
    assert list(answers.waits) == [("ORDER.PLACE", "ORDER.PLACED")]
    assert dict(answers.unmeasured.ordered()) == {("ORDER.PLACE", "ORDER.PLACED"): [2], ("PRICE.GET", "PRICE"): [1]}
    assert [row["wait_ms"] for row in answers.longest.rows] == [5.0]
    assert (answers.count("ok"), answers.count("late"), answers.count("pending")) == (3, 1, 1), "all are counted"


def test_waits_of_tables_that_do_not_say_who_was_captured(own):
    """They were written before there was such a column."""
    known = read_facts(own, top=3).answers
    for file in (own / "callbacks").rglob("*.parquet"):
        pq.write_table(pq.read_table(file, partitioning=None).drop_columns("asker_captured"), file)
    old = read_facts(own, top=3)
    assert (old.answers.wait.count, old.answers.unmeasured.total()) == (known.wait.count, [0])
    assert not any(step.is_hearsay for flow in old.drawn for step in flow.steps)


def test_failures_that_differ_in_numbers_are_one(facts):
    failures = facts.answers.failures
    (key, counts), (evil, _) = failures.ordered()
    assert (key, counts[0], counts[1] > 0) == (("ORDER.PLACE", "ValueError", "# is above the limit of #"), 6, True)
    assert failures.note_of(key) == ("flow-0051", "9000 is above the limit of 5000")
    assert evil[:2] == (EVIL, EVIL)


def test_what_waits_longest(facts):
    assert facts.answers.oldest["ORDER.PLACE", "pending"] == (at(900), "flow-0058")


def test_flows(facts, ask):
    where = f"where not {is_system('root_identity_key')}"
    ((count, messages, incomplete, marks),) = ask(
        f"""select count(*), sum(messages), count(*) filter (completeness < 1), quantile_disc(duration_ms, [0.5, 0.95, 0.99])
        from {{flows}} {where}"""
    )
    assert (facts.flows.count, facts.flows.messages, facts.flows.incomplete) == (count, messages, incomplete)
    assert [facts.flows.duration.at(share) for share in (0.5, 0.95, 0.99)] == marks
    order = "order by duration_ms desc, correlation_key limit 5"
    slow = ask(f"select correlation_key, duration_ms from {{flows}} {where} {order}")
    assert [(flow.key, flow.duration_ms) for flow in facts.slowest] == slow


def test_audits(facts, ask):
    sums = "sum(sent), sum(in_time), sum(late), sum(expired_in_flight)"
    ttl = "round(ttl_ms, 1 - floor(log10(ttl_ms))::int)"
    found = ask(f"select identity_key, {ttl}, {sums} from {{expiries}} group by all")
    found = {tuple(value or 0 for value in row) for row in found}
    assert {(*key, *sums) for key, sums in facts.expiries.types.ordered()} == found
    statuses = ask("select status, sum(messages) from {signatures} group by all")
    assert {(*key, *counts) for key, counts in facts.signatures.statuses.ordered()} == set(statuses)
    rejects = ask("select code, reason, count(*) from {rejects} group by all")
    assert {(*key, *counts) for key, counts in facts.rejects.codes.ordered()} == set(rejects)
    assert facts.rejects.count == 3


def test_times_to_live_that_differ_by_little_are_one(facts):
    key = ("PRICE.GET", 5000.0)
    assert dict(facts.expiries.types.ordered())[key] == [3, 3, 0, 0]
    assert (facts.expiries.longest[key], facts.expiries.used[key]) == (4974.0, 0.4)


# --- what nodes and tools do ------------------------------------------------------------------------------------------


def test_system_traffic_is_counted_and_left_out(facts, ask):
    ((count,),) = ask(f"select count(*) from {{messages}} where {is_system('identity_key')}")
    assert facts.seen.system == count > 0
    assert ("bank", "store") not in facts.moves.spreads
    assert ("bank", "store") not in {(link.source, link.target) for link in facts.links.between("node")}
    assert facts.answers.wait.greatest == 2400.0, "nobody waited as long as who watched"
    assert facts.moves.backwards == 0
    assert facts.moves.spreads["shop", "store"].greatest == 480.0
    assert facts.moves.spreads["shop", "store"].least > 0


def test_what_the_system_lost_is_said(facts):
    assert (facts.moves.lost.total(), facts.moves.lost_system) == ([4], 1)


def test_a_failure_is_an_answer_to_who_asked(tmp_path):
    made = Shop()
    made.ask(0.0, 5.0, response="KINO.EXCEPTION", outcome="exception")
    made.ask(10.0, 7.0, request="HOPLINE.STATUS", response="KINO.EXCEPTION", outcome="exception")
    made.rows["callbacks"] += [
        {"outcome": "orphan", "response_identity_key": name} for name in ("KINO.EXCEPTION", "HOPLINE.SEEN", "ORDER.PLACED")
    ]
    facts = read_facts(write_tables(tmp_path, made.rows), top=3)
    assert (facts.answers.count("exception"), facts.answers.count("orphan")) == (1, 2)
    assert [(link.source, link.target) for link in facts.links.between("message")] == [("ORDER.PLACE", "KINO.EXCEPTION")]
    assert ("store", "shop") in facts.moves.spreads
    assert [flow.root_identity for flow in facts.slowest] == ["ORDER.PLACE"]


@pytest.mark.parametrize("receipt", ["KINO.RCPTCONFIRM", "HOPLINE.HANDLED"])
def test_a_receipt_is_an_answer_too(tmp_path, receipt):
    """Each request is in all sections, or in none: with the same answer."""
    made = Shop()
    made.ask(0.0, 5.0, response=receipt)
    made.ask(10.0, 7.0, request="HOPLINE.STATUS", response=receipt)
    facts = read_facts(write_tables(tmp_path, made.rows), top=3)
    assert list(facts.answers.waits) == [("ORDER.PLACE", receipt)]
    links = [(link.source, link.target, link.messages) for link in facts.links.between("message")]
    assert links == [("ORDER.PLACE", receipt, 1)]
    assert ("store", "shop") in {(link.source, link.target) for link in facts.links.between("node")}
    assert ("store", "shop") in facts.moves.spreads
    (flow,) = facts.slowest
    assert [step.identity for step in flow.steps if step.kind == "network"] == ["ORDER.PLACE", receipt]
    assert facts.seen.system == sum(row["identity_key"] == "HOPLINE.STATUS" for row in made.rows["messages"]) > 0


def test_all_that_a_node_itself_answers_is_known():
    assert set(ANSWERS) == {kind.identity.decode() for kind in (EXCEPTION, RECEIPT, HANDLED)}


def test_clocks_that_only_the_system_compares(tmp_path):
    made = Shop()
    made.move(0.0, 5.0, "a", "b", "KINO.PING", "", b"ping", skew_ms=3.0)
    moves = read_facts(write_tables(tmp_path, made.rows), top=3).moves
    assert (moves.worst_skew_ms, moves.spreads, len(moves.ends)) == (3.0, {}, 0)


# --- the slowest flows ------------------------------------------------------------------------------------------------


def test_steps_of_a_flow(facts):
    late = facts.slowest[0]
    assert [(step.kind, step.begin_ms, step.end_ms) for step in late.steps] == [
        ("wait", 0.0, 2400.0),
        ("network", 0.0, 480.0),
        ("network", 1920.0, 2400.0),
    ]
    assert (late.steps[0].outcome, late.more, late.raw_ms) == ("late", 0, None)
    assert [step.is_lost for step in facts.slowest[1].steps] == [False, True]


def test_clocks_are_put_right(tmp_path):
    """The store's clock is an hour ahead: by the clocks each of its flows takes an hour, and really some milliseconds."""
    hour = timedelta(hours=1)
    rows = shop()
    for hop in rows["hops"]:
        if hop["received_at"] is None or "store" not in (hop["from_node_key"], hop["to_node_key"]):
            continue
        is_there = hop["to_node_key"] == "store"
        column = "received_at" if is_there else "sent_at"
        hop[column] += hour
        hop["skew_ms"] = 3_600_000.0 if is_there else -3_600_000.0
        hop["latency_ms"] += hop["skew_ms"]
    for flow in rows["flows"]:
        if flow["correlation_key"] != "flow-0061" and "ORDER" in flow["root_identity_key"]:
            flow["duration_ms"] += 3_600_000.0
    facts = read_facts(write_tables(tmp_path, rows), top=3)
    late = facts.slowest[0]
    assert (late.key, late.duration_ms) == ("flow-0061", 2400.0), "although its duration is not among the longest"
    assert [(step.kind, step.begin_ms, step.end_ms) for step in late.steps] == [
        ("wait", 0.0, 2400.0),
        ("network", 0.0, 480.0),
        ("network", 1920.0, 2400.0),
    ]
    assert facts.moves.worst_skew_ms == 3_600_000.0
    assert facts.moves.spreads["shop", "store"].at(0.5) == pytest.approx(6.0)


def test_offsets_of_nodes_that_never_met():
    skews = {("d", "a", "b"): 5.0, ("d", "b", "c"): -2.0, ("other", "a", "x"): 9.0}
    assert offsets_ms(skews, "d", "c") == {"c": 0.0, "b": 2.0, "a": -3.0}
    assert offsets_ms(skews, "d", "stranger") == {"stranger": 0.0}


def test_a_giant_flow_is_cut(tmp_path):
    hops = [
        {"correlation_key": "giant", "message_uid": b"m", "identity_key": "A", "kind": "network", "sent_at": at(number)}
        | {"from_node_key": "a", "to_node_key": "b", "received_at": at(number + 1), "latency_ms": 1.0}
        for number in range(1000)
    ]
    flow = {"correlation_key": "giant", "started_at": START, "duration_ms": 1000.0, "messages": 1000}
    (giant,) = read_facts(write_tables(tmp_path, {"hops": hops[::-1], "flows": [flow]}), top=5).slowest
    assert (len(giant.steps), giant.more) == (30, 970)
    assert [step.begin_ms for step in giant.steps] == list(range(30))


# --- while others write -----------------------------------------------------------------------------------------------


def of_actors(rows):
    return [flow for flow in rows["flows"] if not flow["root_identity_key"].startswith("HOPLINE.")]


@pytest.fixture
def own(rows, tmp_path):
    return write_tables(tmp_path / "tables", rows)


def test_a_run_that_commits_meanwhile(own, monkeypatch):
    """Reading begins again, and what it gives is of one moment."""
    seen = []

    class Late(facts_module.Seen):
        def __init__(self):
            super().__init__()
            seen.append(self)
            if len(seen) == 1:
                shutil.rmtree(own)
                write_tables(own, shop(orders=8), run="20261117T000000-000000")

    monkeypatch.setattr(facts_module, "Seen", Late)
    facts = read_facts(own, top=3)
    assert (len(seen), facts.run) == (2, "20261117T000000-000000")
    assert facts.flows.count == len(of_actors(shop(orders=8)))


def test_runs_that_commit_all_the_time(own, rows, monkeypatch):
    """Days of other times, say: no file that is read goes away, but which moment is it?"""
    numbers, state = itertools.count(), own / "_hopline" / "state.json"

    class Always(facts_module.Seen):
        def __init__(self):
            super().__init__()
            state.write_text(json.dumps(json.loads(state.read_text()) | {"run": f"run-{next(numbers)}"}))

    monkeypatch.setattr(facts_module, "Seen", Always)
    facts = read_facts(own, top=3)
    assert "some tables may be newer than others" in facts.notes[0]
    assert (next(numbers), facts.flows.count) == (2, len(of_actors(rows)))


def test_days_that_are_replaced_all_the_time(own, rows, monkeypatch):
    class Gone(facts_module.Moves):
        def __init__(self):
            super().__init__()
            shutil.rmtree(own / "messages")

    monkeypatch.setattr(facts_module, "Moves", Gone)
    real = facts_module.Tables

    def tables(*given):
        write_tables(own, rows)
        return real(*given)

    monkeypatch.setattr(facts_module, "Tables", tables)
    with pytest.raises(TablesError) as error:
        read_facts(own, top=3)
    assert error.value.code == "TABLES_BUSY"


def test_a_commit_that_was_stopped_is_said(own):
    (own / "_hopline" / "journal.json").write_text(json.dumps({}))
    assert "some days may be newer than others" in read_facts(own, top=3).notes[0]


def test_days_that_were_left_behind_are_said(own):
    state = own / "_hopline" / "state.json"
    known = json.loads(state.read_text())
    del known["made"]["flows"]["2026-11-15"]
    state.write_text(json.dumps(known))
    facts = read_facts(own, top=3)
    assert facts.notes == ["The table flows is not up to date for 2026-11-15: run the pipeline without --only."]
    assert facts.flows.count == 0
    assert (facts.unknown, facts.empty["flows"][:33]) == ({"flows"}, "the table flows is not up to date")


def test_a_text_that_is_none(own):
    file = next((own / "hops").rglob("*.parquet"))
    rows = pq.read_table(file)
    bad = pa.array([b"\xff\xfe"] * len(rows), pa.binary()).view(pa.string())
    pq.write_table(rows.set_column(rows.schema.get_field_index("from_node_key"), "from_node_key", bad), file)
    facts = read_facts(own, top=3)
    assert "hops cannot be read" in facts.empty["hops"]
    assert facts.flows.count > 0


def test_a_damaged_table_is_said_and_the_rest_is_read(own):
    next((own / "hops").rglob("*.parquet")).write_bytes(b"no parquet")
    facts = read_facts(own, top=3)
    assert "hops cannot be read" in facts.empty["hops"]
    assert "hops cannot be read" in facts.notes[0]
    assert (len(facts.moves.ends), facts.slowest, facts.flows.count > 0, facts.unknown) == (0, [], True, {"hops"})
