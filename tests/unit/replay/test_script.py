"""Messages of a plan as they will be sent, and what came of them then."""

import pytest

from hopline.capture.query import Query
from hopline.identity import EXCEPTION, RECEIPT, MessageType
from hopline.node.guard import HANDLED
from hopline.payload.service import ExceptionMessage
from hopline.replay import script as script_module
from hopline.replay.outcome import Outcome
from hopline.replay.plan import make_plan
from hopline.replay.script import Play, Script, make_play, outcome_of
from hopline.wire import Distribution, Message
from tests.unit.capture.story import ORDERED, Story, output, request, told


def plays_of(capture, **settings):
    script = Script(make_plan(capture, Query()), **settings)
    return script, [play for window in script.windows() for play in window]


def test_a_play_holds_what_was_said_and_what_came_of_it(tmp_path):
    story = Story()
    story.ask(b"flow-1", 0, body=b"done")
    _, (play,) = plays_of(story.write(tmp_path))
    assert play.event_id.endswith(":0")
    assert (play.flow, play.kind, play.body) == ("flow-1", MessageType(b"ORDER", 1), b"four")
    assert (play.way, play.replies, play.is_to_node) == ("ask", (ORDERED,), False)
    assert play.then == Outcome("answer", "ORDERED v1", 11.0, b"done")


def test_windows_are_in_the_order_of_time_whatever_segments_they_come_from(tmp_path):
    story = Story()
    for number in range(7):
        sender = ("client", "other")[number % 2]
        story.see(sender, "hub_out", request(flow=b"flow-%d" % number, body=b"%d" % number), 6 - number)
    capture = story.write(tmp_path)
    script = Script(make_plan(capture, Query()), window=3)
    windows = list(script.windows())
    assert [len(window) for window in windows] == [3, 3, 1]
    assert [play.body for window in windows for play in window] == [b"6", b"5", b"4", b"3", b"2", b"1", b"0"]


def test_a_window_is_bounded_by_its_bodies_too(tmp_path, monkeypatch):
    monkeypatch.setattr(script_module, "_WINDOW_BYTES", 100)
    story = Story()
    for number, size in enumerate([60, 30, 60, 500, 1, 1]):
        story.see("client", "hub_out", request(flow=b"flow-%d" % number, body=b"x" * size), number)
    script = Script(make_plan(story.write(tmp_path), Query()))
    assert [[len(play.body) for play in window] for window in script.windows()] == [[60, 30], [60], [500], [1, 1]]


def test_what_was_deleted_meanwhile_is_counted(tmp_path):
    story = Story()
    story.see("client", "hub_out", request(flow=b"a"), 0)
    story.see("other", "hub_out", request(flow=b"b"), 1)
    capture = story.write(tmp_path)
    plan = make_plan(capture, Query())
    (gone,) = (file for file in tmp_path.iterdir() if "-other-" in file.name)
    gone.unlink()
    script = Script(plan)
    assert [play.flow for window in script.windows() for play in window] == ["a"]
    assert script.gone == 1


def test_an_answer_that_was_deleted_meanwhile_is_none(tmp_path):
    story = Story()
    arrived = story.send("client", "server", request(), 0, seen="out")
    story.send("server", "client", output(arrived, b"ORDERED"), 5, seen="out")
    plan = make_plan(story.write(tmp_path), Query())
    (gone,) = (file for file in tmp_path.iterdir() if "-server-" in file.name)
    gone.unlink()
    ((play,),) = Script(plan).windows()
    assert play.then == Outcome("none")


def test_another_file_in_the_place_of_a_segment_is_not_played(tmp_path):
    story, other = Story(), Story()
    story.see("client", "hub_out", request(), 0)
    other.see("client", "hub_out", [b"junk"], 0)
    plan = make_plan(story.write(tmp_path / "a"), Query())
    other.write(tmp_path / "b")
    (ours,), (theirs,) = (tmp_path / "a").glob("*.arrows"), (tmp_path / "b").glob("*.arrows")
    ours.write_bytes(theirs.read_bytes())
    script = Script(plan)
    assert list(script.windows()) == [[]]
    assert script.gone == 1


def test_a_body_that_was_cut_is_not_compared(tmp_path):
    story = Story()
    story.see("client", "hub_out", request(), 0)
    story.see("client", "hub_in", output(request(), b"ORDERED", body=b"do"), 5, body_kept="cut", body_size=9)
    _, (play,) = plays_of(story.write(tmp_path))
    assert play.then == Outcome("answer", "ORDERED v1", 5.0, None)


@pytest.mark.parametrize(
    ("points", "changes", "way", "end"),
    [
        ((ORDERED, EXCEPTION), {}, "ask", "none"),
        ((ORDERED, RECEIPT, EXCEPTION), {}, "ask", "none"),
        ((RECEIPT, EXCEPTION), {}, "deliver", "none"),
        ((HANDLED, EXCEPTION), {}, "handled", "none"),
        ((EXCEPTION,), {}, "tell", "sent"),
        ((), {}, "tell", "sent"),
        ((ORDERED, EXCEPTION), {"distribution": Distribution.BROADCAST}, "publish", "sent"),
    ],
)
def test_callback_points_tell_how_a_message_was_sent(points, changes, way, end):
    play = make_play(told(request(), callback_points=points, **changes), "s:0", 5)
    assert (play.way, play.then.end) == (way, end)
    assert play.replies == ((ORDERED,) if way == "ask" else ())


def test_of_addresses_only_stays_that_there_was_one():
    message = told(request(), receiver_node_identity=b"server", receiver_identity=b"\1actor", ttl_ticks=25_000_000)
    play = make_play(message, "s:0", 5)
    assert play == Play("s:0", "flow-1", 5, message.type, b"four", "ask", (ORDERED,), True, 2.5, Outcome("none"))
    assert make_play(told(message, ttl_ticks=-1), "s:0", 5).ttl_s == 0


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (ExceptionMessage("no", "ValueError").write(), Outcome("exception", "ValueError", 3.0)),
        (ExceptionMessage("nobody", "hopline.NO_ROUTE").write(), Outcome("NO_ROUTE", "", 3.0)),
        (b"junk", Outcome("exception", "unknown", 3.0)),
    ],
)
def test_an_exception_says_what_failed(body, outcome):
    assert outcome_of(Message(identity=b"KINO.EXCEPTION", version=1, body=body), 3.0) == outcome


def test_an_exception_without_its_body_is_of_unknown_type():
    assert outcome_of(Message(identity=b"KINO.EXCEPTION", version=1), None, is_whole=False).type == "unknown"


@pytest.mark.parametrize("kind", [RECEIPT, HANDLED])
def test_a_receipt_is_a_receipt(kind):
    assert outcome_of(Message(identity=kind.identity, version=1), 1.0) == Outcome("receipt", "", 1.0)
