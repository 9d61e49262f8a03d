"""Itineraries: sightings to messages, messages to a tree. What a person is told of them is in test_trace.py."""

from hopline.capture.itinerary import find_parents, in_tree_order, tell_apart
from tests.unit.capture.story import Story, output, request


def test_sightings_of_one_message_are_one_itinerary() -> None:
    story = Story()
    story.send("client", "server", request(), 0)
    story.send("client", "server", request(body=b"else"), 1, seen="out")
    two = sorted(tell_apart(story.rows()), key=lambda message: len(message.rows))
    assert [len(message.rows) for message in two] == [1, 2]
    other, sent = two
    assert ([leg.ms for leg in sent.legs], sent.lost, sent.unsent, sent.times) == ([1.0], [], [], 1)
    assert (other.legs, other.lost, other.unsent) == ([], other.rows, [])
    assert (sent.ask, sent.is_callback, sent.inherited, sent.is_made_here) == ((7, "hub:hub"), False, (), True)


def test_parents_and_their_order() -> None:
    story = Story()
    arrived = story.send("client", "server", request(), 0)
    for number in (2, 1, 3):
        story.send("server", "store", output(arrived, b"TAKE%d" % number), number)
    messages = tell_apart(story.rows())
    find_parents(messages)
    found = [(message.first["identity_key"], depth, message.made_after_ms) for message, depth in in_tree_order(messages)]
    assert found == [("ORDER", 0, None), ("TAKE1", 1, 0.0), ("TAKE2", 1, 1.0), ("TAKE3", 1, 2.0)]


def test_the_last_one_that_arrived_is_the_parent() -> None:
    story = Story()
    for at, body in ((0, b"one"), (10, b"two"), (20, b"three")):
        arrived = story.send("client", "server", request(body=body), at)
    story.send("server", "store", output(arrived, b"TAKE"), 15)
    messages = tell_apart(story.rows())
    find_parents(messages)
    (child,) = (message for message in messages if message.parent)
    assert child.parent is not None
    assert child.parent.first["seen_ns"] % 10**9 == 10_000_000
