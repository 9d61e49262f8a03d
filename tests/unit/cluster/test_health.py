"""Health: who is dead, who is stale, whom we listen to."""

from hopline.cluster.health import LONGEST_S, SHORTEST_S, TICKS_PER_SECOND, PeersHealth
from hopline.payload.service import Health


def beats(uri="tcp://n:1", seconds=1.0):
    return Health(uri, int(seconds * TICKS_PER_SECOND))


def test_a_node_that_we_use_is_dead_after_so_many_missed_beats():
    health = PeersHealth(most_missed=3, stale_after_s=60)
    health.met(b"n", beats(), 0.0)
    assert health.dead(1000.0) == []
    assert health.uses(b"n", 10.0) == "tcp://n:1"
    assert health.uses(b"n", 11.0) == ""
    assert health.dead(13.0) == []
    assert health.dead(13.1) == [b"n"]
    assert health.beat(b"n", 13.0)
    assert health.dead(16.0) == []
    assert health.dead(16.1) == [b"n"]


def test_what_a_node_says_of_itself_is_a_sign_of_life():
    health = PeersHealth(most_missed=3)
    health.met(b"n", beats(), 0.0)
    health.uses(b"n", 0.0)
    health.met(b"n", beats(), 2.0)
    assert health.dead(5.0) == []
    assert health.dead(5.1) == [b"n"]


def test_a_beat_of_a_stranger_is_nothing():
    health = PeersHealth()
    assert not health.beat(b"n", 1.0)
    assert len(health) == 0


def test_a_node_that_we_do_not_use_is_stale_once_in_a_while():
    health = PeersHealth(stale_after_s=60)
    health.met(b"n", beats(), 0.0)
    health.met(b"used", beats("tcp://u:1", 3600), 0.0)
    health.uses(b"used", 0.0)
    assert health.stale(60.0) == []
    assert health.stale(60.1) == [b"n"]
    assert health.stale(120.0) == []
    assert health.stale(120.2) == [b"n"]


def test_not_all_that_are_stale_are_looked_at_at_once():
    health = PeersHealth(stale_after_s=60)
    for i in range(25):
        health.met(b"%d" % i, beats(), 0.0)
    seen = [health.stale(61.0, most=10) for _ in range(4)]
    assert [len(found) for found in seen] == [10, 10, 5, 0]
    assert len({node for found in seen for node in found}) == 25


def test_a_node_without_health_cannot_be_listened_to():
    health = PeersHealth(stale_after_s=60)
    health.met(b"n", None, 0.0)
    health.met(b"m", Health(None, 0), 0.0)
    assert health.uses(b"n", 0.0) == health.uses(b"m", 0.0) == ""
    assert health.uses(b"unknown", 0.0) == ""
    assert health.dead(1e9) == []
    assert health.stale(61.0) == [b"n", b"m"]


def test_intervals_that_nobody_can_mean_are_bounded():
    health = PeersHealth(most_missed=1)
    for name, seconds in ((b"never", 1e9), (b"always", 0.0), (b"back", -5.0)):
        health.met(name, beats(f"tcp://{name.decode()}:1", seconds), 0.0)
        health.uses(name, 0.0)
    assert health.dead(SHORTEST_S) == []
    assert health.dead(SHORTEST_S + 0.01) == [b"always", b"back"]
    assert health.dead(LONGEST_S) == [b"always", b"back"]
    assert b"never" in health.dead(LONGEST_S + 1)


def test_nobody_listens_to_a_node_that_is_gone():
    health = PeersHealth()
    health.met(b"n", beats(), 0.0)
    health.met(b"unused", beats("tcp://u:1"), 0.0)
    health.uses(b"n", 0.0)
    assert health.gone(b"n") == "tcp://n:1"
    assert health.gone(b"n") == ""
    assert health.gone(b"unused") == ""
    assert len(health) == 0


def test_two_nodes_behind_one_heart_beat_are_listened_to_until_both_are_gone():
    health = PeersHealth()
    for name in (b"old", b"new"):
        health.met(name, beats(), 0.0)
        health.uses(name, 0.0)
    assert health.gone(b"old") == ""
    assert health.is_heard("tcp://n:1")
    assert health.gone(b"new") == "tcp://n:1"
    assert not health.is_heard("tcp://n:1")


def test_a_node_whose_heart_beats_elsewhere_now_is_another_one():
    health = PeersHealth(most_missed=3)
    health.met(b"n", beats(), 0.0)
    assert not health.has_moved(b"n", beats())
    assert not health.has_moved(b"n", None)
    assert not health.has_moved(b"unknown", beats())
    assert health.has_moved(b"n", beats("tcp://other:1"))
    health.met(b"n", beats(seconds=10), 1.0)
    health.uses(b"n", 1.0)
    assert health.dead(30.0) == []
    assert health.dead(31.1) == [b"n"]


def test_a_node_that_cannot_be_listened_to_is_not_dead_for_that():
    health = PeersHealth(most_missed=3, stale_after_s=60)
    health.met(b"n", beats(), 0.0)
    health.uses(b"n", 0.0)
    health.unheard(b"n")
    health.unheard(b"unknown")
    assert health.dead(1000.0) == []
    assert health.uses(b"n", 0.0) == ""
    assert not health.has_moved(b"n", beats("tcp://other:1"))
    assert health.stale(61.0) == [b"n"]


def test_who_did_not_listen_blames_nobody():
    health = PeersHealth(most_missed=3, stale_after_s=60)
    health.met(b"n", beats(), 0.0)
    health.uses(b"n", 0.0)
    health.slept(100.0, 101.0)
    assert health.dead(102.5) == []
    health.slept(100.0, 102.0)
    assert health.dead(105.1) == [b"n"]
