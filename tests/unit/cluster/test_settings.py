"""Times and addresses of a cluster: what could not work is refused at the start."""

import pytest

from hopline.cluster.endpoints import MOST_ENDPOINTS
from hopline.cluster.lease import TICKS_PER_SECOND
from hopline.cluster.settings import ClusterSettings, RendezvousSettings
from hopline.errors import InputError


@pytest.mark.parametrize("name", ["heartbeat_s", "stale_after_s", "silence_s", "discovery_s", "most_missed"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_node_needs_times_above_nothing(name, value):
    with pytest.raises(InputError, match="above 0") as caught:
        ClusterSettings(**{name: value})
    assert caught.value.code == "INPUT_BAD_CONFIG"


@pytest.mark.parametrize("name", ["heartbeat_s", "stale_after_s", "silence_s", "discovery_s"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_time_is_a_number_of_seconds(name, value):
    with pytest.raises(InputError):
        ClusterSettings(**{name: value})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"heartbeat_s": 0}, "above 0"),
        ({"heartbeat_s": float("nan")}, "above 0"),
        ({"members": ("tcp://a:7001",)}, "one of the members"),
        ({"members": ("tcp://a:7001",), "synod": "tcp://b:7001"}, "one of the members"),
        ({"nodes": tuple(f"tcp://a:{port}" for port in range(MOST_ENDPOINTS + 1))}, "at most"),
        ({"members": tuple(f"tcp://a:{port}" for port in range(MOST_ENDPOINTS + 1)), "synod": "tcp://a:0"}, "at most"),
        ({"bind": "nowhere"}, "no rendezvous"),
        ({"nodes": ("tcp://a:8011", "nowhere")}, "no rendezvous"),
        ({"lease_s": 0.5}, "two round trips"),
        ({"lease_s": float("nan")}, "seconds"),
        ({"response_s": float("inf")}, "seconds"),
    ],
)
def test_a_rendezvous_that_could_not_work_is_refused(settings, reason):
    with pytest.raises(InputError, match=reason) as caught:
        RendezvousSettings(**settings)
    assert caught.value.code == "INPUT_BAD_CONFIG"


@pytest.mark.parametrize(
    ("bind", "expected"),
    [
        ("tcp://127.0.0.1:8011", ("tcp://127.0.0.1:8011", "tcp://127.0.0.1:8001")),
        ("tcp://127.0.0.1:8011+9001", ("tcp://127.0.0.1:8011", "tcp://127.0.0.1:9001")),
        ("tcp://127.0.0.1:0", ("tcp://127.0.0.1:0", "tcp://127.0.0.1:0")),
        ("tcp://127.0.0.1:9", ("tcp://127.0.0.1:9", "tcp://127.0.0.1:0")),
        ("ipc:///tmp/meet", ("ipc:///tmp/meet", "ipc:///tmp/meet.broadcast")),
        ("ipc:///tmp/meet1", ("ipc:///tmp/meet1", "ipc:///tmp/meet1.broadcast")),
        ("memory://meet", ("memory://meet", "memory://meet.broadcast")),
        ("memory://meet1", ("memory://meet1", "memory://meet1.broadcast")),
    ],
)
def test_where_it_is_bound_follows_from_one_address(bind, expected):
    assert RendezvousSettings(bind=bind).bind_addresses == expected


def test_the_times_of_the_lease_are_ticks():
    times = RendezvousSettings(lease_s=3.0, clock_drift_s=0.1, response_s=0.2).times
    assert times.max_lease_ticks == 3 * TICKS_PER_SECOND
    assert times.clock_drift_ticks == TICKS_PER_SECOND // 10
    assert (times.response_timeout_ticks, times.roundtrip_ticks) == (TICKS_PER_SECOND // 5, 2 * TICKS_PER_SECOND // 5)


def test_what_is_left_unsaid_works():
    assert ClusterSettings().most_missed >= 1
    assert RendezvousSettings().bind_addresses == ("tcp://127.0.0.1:8011", "tcp://127.0.0.1:8001")
