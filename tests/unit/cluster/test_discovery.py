"""Discovery: each question once at a time, not too many, not too often."""

from hopline.cluster.discovery import MissingRoutes, Soon
from hopline.identity import MessageType
from hopline.testing import ManualClock

HELLO, OTHER = MessageType(b"HELLO", 1), MessageType(b"OTHER", 1)


def test_a_question_waits_once_and_can_be_asked_again_later():
    missing = MissingRoutes()
    assert missing.add(HELLO)
    assert not missing.add(HELLO)
    assert missing.add(b"\0hub")
    assert len(missing) == 2
    assert missing.take(1) == [HELLO]
    assert missing.take(10) == [b"\0hub"]
    assert missing.take(10) == []
    assert missing.add(HELLO)
    assert missing.dropped == 0


def test_questions_are_bounded_and_what_is_too_much_is_counted():
    missing = MissingRoutes(most=2)
    assert [missing.add(kind) for kind in (HELLO, OTHER, b"\0hub", HELLO)] == [True, True, False, False]
    assert missing.dropped == 1
    assert missing.take(10) == [HELLO, OTHER]


class Counted:
    def __init__(self, gap_s):
        self.clock = ManualClock()
        self.times = []
        self.soon = Soon(self.clock.call_later, self.now_s, gap_s, lambda: self.times.append(self.now_s()))

    def now_s(self):
        return self.clock.now_ns() / 1e9


def test_many_who_ask_at_once_get_one_answer():
    counted = Counted(0.25)
    for _ in range(5):
        counted.soon.ask()
    assert counted.times == []
    counted.clock.advance(1.0)
    assert counted.times == [0.0]


def test_there_is_a_shortest_time_between_two_and_the_last_one_is_not_lost():
    counted = Counted(0.25)
    for _ in range(10):
        counted.soon.ask()
        counted.clock.advance(0.1)
    counted.clock.advance(1.0)
    assert counted.times == [0.0, 0.25, 0.5, 0.75, 1.0]
    counted.clock.advance(10.0)
    assert len(counted.times) == 5
    counted.soon.ask()
    counted.clock.advance(0.0)
    assert counted.times[-1] == counted.now_s()
