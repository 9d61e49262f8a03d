"""What is said of nodes whose captures are whole, or not quite: a flow for each rule, in one small capture."""

from datetime import UTC

import msgspec
import pytest
from pyspark.sql import functions as sf

from hopline.payload.service import RegisterExternalRoute, RouteRegistration
from hopline.spark import callbacks, edges, hops, routes
from hopline.wire import Message
from tests.spark.small import MS, START_NS, Story, output, request

LAST_MS = 60_000
NO_FLOW = b"00000000-0000-0000-0000-000000000000"


def tick(of: Message, body: bytes = b"tick", ttl_ms: int = 5000) -> Message:
    """What an actor tells somebody, and wants no answer to."""
    return msgspec.structs.replace(output(of, "TICK", body), ttl_ticks=ttl_ms * 10_000)


def keyless(message: Message) -> Message:
    """A message as an old format has it."""
    return msgspec.structs.replace(message, callback_key=0)


def equal_messages_that_are_shared_out(story: Story) -> None:
    come = story.send("N1", "N2", 10, request("shared"))
    story.see("N2", "actor_in", 13, come)
    for number in range(4):
        story.see("N2", "actor_out", 20 + number, tick(come))
        target = ("N1", "N3")[number % 2]
        story.see(target, "actor_in", 35 + number, story.send("N2", target, 30 + number, tick(come)))


def an_answer_inside_a_node_of_which_only_actors_are_recorded(story: Story) -> None:
    asked = request("inside", ttl_ms=1000)
    story.see("N1", "hub_out", 100, asked)
    story.see("N1", "actor_in", 101, asked)
    story.see("N1", "actor_out", 105, output(asked))


def equal_answers_that_wait_to_be_given(story: Story) -> None:
    asked = request("waiting")
    for source, sent_ms in (("N2", 200), ("N3", 208)):
        come = story.send("N1", source, 190, asked)
        answer = story.send(source, "N1", sent_ms, output(come))
        story.see("N1", "actor_in", sent_ms + 15, msgspec.structs.replace(answer, socket_identity=source.encode()))


def two_of_a_type_of_which_one_is_sent_in_an_old_format(story: Story) -> None:
    come = story.send("N1", "N2", 300, request("old"))
    for number in range(2):
        story.see("N2", "actor_out", 310 + number, tick(come, b"%d" % number))
    story.see("N3", "actor_in", 330, story.send("N2", "N3", 320, keyless(tick(come, b"0")), format="v4"))


def a_request_that_is_made_again_to_an_old_node(story: Story) -> None:
    for key, at_ms in ((1, 400), (2, 5400)):
        asked = request("again", key=key, ttl_ms=2000)
        story.see("N1", "hub_out", at_ms, asked)
        come = story.send("N1", "N2", at_ms + 1, keyless(asked), format="v4")
        story.send("N2", "N1", at_ms + 7, output(come), format="v4")


def what_came_before_the_first_that_is_left(story: Story) -> None:
    story.send("N1", "N4", 500, request("before"), seen="out")
    story.send("N1", "N4", 20_000, request("after"))
    story.send("N1", "N4", 30_000, request("lost"), seen="out")


def what_is_sent_to_who_keeps_no_bodies(story: Story) -> None:
    story.send("N1", "N5", 600, request("private"))


def what_is_sent_between_nodes_that_cut_bodies(story: Story) -> None:
    """One of them has never seen a long one."""
    story.send("N6", "N1", 700, msgspec.structs.replace(request("long"), body=b"x" * 100))
    story.send("N6", "N7", 710, request("short"), seen="out")


def what_is_lost_while_nothing_else_comes(story: Story) -> None:
    story.see("N3", "actor_in", 44_000, request("before it"))
    story.send("N1", "N3", 45_000, request("later"), seen="out")


def a_message_that_could_not_be_sent_and_went_elsewhere(story: Story) -> None:
    come = story.send("N1", "N2", 800, request("elsewhere"))
    story.see("N2", "actor_out", 803, output(come, "MOVED"))
    for target, seen in (("N4", "out"), ("N3", "both")):
        story.send("N2", target, 805, output(come, "MOVED"), seen=seen)


def equal_messages_for_an_actor_here_and_one_elsewhere(story: Story) -> None:
    come = story.send("N1", "N2", 900, request("in turn"))
    for number in range(4):
        story.see("N2", "actor_out", 910 + number, tick(come))
        if number % 2:
            story.see("N2", "actor_in", 920 + number, tick(come))
        else:
            story.see("N3", "actor_in", 925 + number, story.send("N2", "N3", 920 + number, tick(come)))


def two_without_a_key_of_which_one_is_never_sent(story: Story) -> None:
    come = keyless(story.send("N1", "N2", 1000, request("no key")))
    for number in range(2):
        story.see("N2", "actor_out", 1010 + number, tick(come, b"%d" % number))
    story.see("N3", "actor_in", 1030, story.send("N2", "N3", 1020, tick(come, b"0"), format="v4"))


def equal_messages_without_a_trail_of_which_one_is_lost(story: Story) -> None:
    beat = keyless(msgspec.structs.replace(request("beat"), callback_points=(), identity=b"BEAT"))
    for number in range(6):
        story.send("N1", "N2", 2000 + 1000 * number, beat, is_traced=False, seen="out" if number == 2 else "both")


def an_announcement_that_comes_back(story: Story) -> None:
    """A node tells two peers of itself, and later a rendezvous tells all, also that node."""
    said = RegisterExternalRoute("tcp://N1:1", b"N1", (RouteRegistration(b"\0hub"),))
    message = Message(identity=said.identity, version=1, correlation_id=NO_FLOW, body=said.write())
    for at_ms, peer in enumerate((b"hopline/1 one", b"hopline/1 two")):
        story.see("N1", "scaleout_out", 40_000 + at_ms, msgspec.structs.replace(message, socket_identity=peer))
    for at_ms, node in enumerate(("N1", "N3")):
        passed = msgspec.structs.replace(message, socket_identity=b"hopline/1 N1")
        story.see(node, "scaleout_in", 50_000 + at_ms, passed)


def the_end(story: Story) -> None:
    """All have seen something before everything and after it."""
    nodes = ("N1", "N2", "N3", "N4", "N5", "N6", "N7")
    for at_ms in (0, LAST_MS):
        for source, target in zip(nodes, (*nodes[1:], nodes[0]), strict=True):
            is_heard = at_ms or target != "N4"
            story.see(target, "actor_in", at_ms + 3, request(f"hello {target} {at_ms}"))
            story.send(source, target, at_ms, request(f"{source} {at_ms}"), seen="both" if is_heard else "out")


@pytest.fixture(scope="module")
def tables(spark, tmp_path_factory):
    story = Story()
    for tell in (
        equal_messages_that_are_shared_out,
        an_answer_inside_a_node_of_which_only_actors_are_recorded,
        equal_answers_that_wait_to_be_given,
        two_of_a_type_of_which_one_is_sent_in_an_old_format,
        a_request_that_is_made_again_to_an_old_node,
        what_came_before_the_first_that_is_left,
        what_is_sent_to_who_keeps_no_bodies,
        what_is_sent_between_nodes_that_cut_bodies,
        what_is_lost_while_nothing_else_comes,
        a_message_that_could_not_be_sent_and_went_elsewhere,
        equal_messages_for_an_actor_here_and_one_elsewhere,
        two_without_a_key_of_which_one_is_never_sent,
        equal_messages_without_a_trail_of_which_one_is_lost,
        an_announcement_that_comes_back,
        the_end,
    ):
        tell(story)
    return story.watched(spark, tmp_path_factory.mktemp("watched"), bodies={"N5": 0, "N6": 16, "N7": 16}, missing={"N4"})


def fates(tables, flow, identity="TICK"):
    return sorted(
        str(row.fate) for row in tables.fates.collect() if (row.correlation_key, row.identity_key) == (flow, identity)
    )


def rows_of(table, flow):
    return [row for row in table.collect() if row.correlation_key == flow]


def test_equal_messages_to_several_nodes_have_all_come(tables):
    assert fates(tables, "shared") == ["in_time"] * 4


def test_equal_messages_to_several_nodes_are_several_effects(tables):
    found = edges.edges(tables.messages, tables.moves, tables.answers).where("level = 'message'").collect()
    told = sum(row.messages for row in found if (row.source_key, row.target_key) == ("ASK", "TICK"))
    assert told == 4 + 2 + 1 + 1, "of shared, in turn, old and no key"


def test_an_answer_inside_a_node_has_come_where_nothing_else_could_show_it(tables):
    (row,) = rows_of(callbacks.callbacks(tables.answers), "inside")
    assert (row.outcome, row.wait_ms) == ("ok", 5.0)


def test_what_is_given_came_from_who_sent_it(tables):
    given = [row for row in rows_of(hops.hops(tables.moves), "waiting") if row.kind == "deliver"]
    assert sorted(row.latency_ms for row in given) == [13.0, 13.0]


def test_equal_messages_for_an_actor_here_and_one_elsewhere_have_all_come(tables):
    assert fates(tables, "in turn") == ["in_time"] * 4


def test_what_was_sent_to_another_one_instead_is_one_effect(tables):
    found = edges.edges(tables.messages, tables.moves, tables.answers).where("level = 'message'").collect()
    assert [row.messages for row in found if row.target_key == "MOVED"] == [1]


def test_of_two_without_a_key_one_was_never_sent(tables):
    assert fates(tables, "no key") == ["expired_in_flight", "in_time"]


def test_of_two_that_were_made_and_one_that_was_sent_in_an_old_format_one_was_never_sent(tables):
    assert fates(tables, "old") == ["expired_in_flight", "in_time"]


def test_requests_that_follow_each_other_are_told_apart_without_a_key(tables):
    rows = rows_of(callbacks.callbacks(tables.answers), "again")
    assert sorted((row.callback_key, row.outcome, row.wait_ms) for row in rows) == [(1, "ok", 9.0), (2, "ok", 9.0)]


def test_what_may_have_come_before_the_first_number_that_is_left_is_not_lost(tables):
    moved = hops.hops(tables.moves).where("kind = 'network'")
    lost = {flow: [row.lost for row in rows_of(moved, flow)] for flow in ("before", "after", "lost")}
    assert lost == {"before": [False], "after": [False], "lost": [True]}


def test_what_is_lost_is_so_in_a_window_too_that_begins_later(tables):
    later = tables.messages.where(sf.col("seen_ns") > START_NS + 43_000 * MS)
    for messages in (tables.messages, later):
        (row,) = rows_of(hops.hops(hops.find_moves(messages)), "later")
        assert (row.to_node_key, row.lost) == ("N3", True)


def test_what_both_would_have_kept_whole_is_lost(tables):
    (row,) = rows_of(hops.hops(tables.moves), "short")
    assert (row.from_node_key, row.to_node_key, row.lost) == ("N6", "N7", True)


def test_of_equal_messages_without_a_trail_that_one_is_lost_that_did_not_come(tables):
    rows = sorted(rows_of(hops.hops(tables.moves), "beat"), key=lambda row: row.sent_at)
    assert [(row.latency_ms, row.lost) for row in rows] == [(2.0, False)] * 2 + [(None, True)] + [(2.0, False)] * 3


def test_what_cannot_be_matched_as_bodies_are_left_out_is_not_lost(tables):
    rows = rows_of(hops.hops(tables.moves), "private")
    assert [(row.from_node_key, row.to_node_key, row.lost) for row in rows] == [("N1", "N5", False)] * 2


def test_a_route_begins_where_the_node_itself_announced_it_first(tables):
    (row,) = routes.routes(tables.messages).collect()
    assert row.valid_from.replace(tzinfo=UTC).timestamp() == START_NS / 1e9 + 40
