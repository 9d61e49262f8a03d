"""Where rendezvous are: addresses as people write them, and which one is turned to."""

import pytest

from hopline.cluster.endpoints import MOST_ENDPOINTS, Endpoint, Endpoints, read_endpoint
from hopline.errors import InputError
from hopline.payload.service import RendezvousNode

A, B, C = (Endpoint(f"tcp://{name}:8011", f"tcp://{name}:8001") for name in "abc")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tcp://10.0.0.1:8011", Endpoint("tcp://10.0.0.1:8011")),
        ("tcp://10.0.0.1:8011+8001", Endpoint("tcp://10.0.0.1:8011", "tcp://10.0.0.1:8001")),
        ("tcp://[::1]:8011+8001", Endpoint("tcp://[::1]:8011", "tcp://[::1]:8001")),
        ("ipc:///tmp/meet", Endpoint("ipc:///tmp/meet")),
        ("memory://meet", Endpoint("memory://meet")),
    ],
)
def test_an_endpoint_is_read_and_shown_as_people_write_it(text, expected):
    assert read_endpoint(text) == expected
    assert expected.text == text


@pytest.mark.parametrize(
    "text", ["", "10.0.0.1:8011", "http://a:1", "tcp://", "tcp://a", "tcp://a:5101-5130", "tcp://a b:1", "tcp://a:1\n"]
)
def test_what_is_no_endpoint_is_refused_with_a_sentence(text):
    with pytest.raises(InputError, match="no rendezvous") as caught:
        read_endpoint(text)
    assert caught.value.code == "INPUT_BAD_CONFIG"


@pytest.mark.parametrize(
    ("unicast", "broadcast"),
    [
        ("tcp://a:8011", "tcp://a:8001"),
        ("tcp://a:11", "tcp://a:1"),
        ("tcp://a:10", ""),
        ("tcp://a:0", ""),
        ("ipc:///tmp/8011", ""),
    ],
)
def test_the_sample_rule_counts_down_ports_that_are_there(unicast, broadcast):
    assert Endpoint(unicast).by_sample == broadcast


@pytest.mark.parametrize(
    "endpoint",
    [
        Endpoint("tcp://a:8011", "tcp://b:8001"),
        Endpoint("ipc:///tmp/a", "ipc:///tmp/a.broadcast"),
        Endpoint("tcp://a:8011"),
    ],
)
def test_a_broadcast_address_that_a_port_does_not_say_is_left_out(endpoint):
    assert endpoint.text == endpoint.unicast


def test_an_endpoint_is_what_a_message_names():
    assert Endpoint.of(RendezvousNode("tcp://a:8001", "tcp://a:8011", "tcp://a:8111")) == A
    assert Endpoint.of(RendezvousNode(None, "tcp://a:8011")) == Endpoint("tcp://a:8011")
    assert Endpoint.of(RendezvousNode("tcp://a:8001", None)) is None
    assert Endpoint.of(RendezvousNode("tcp://a:8001", "")) is None


def test_turning_goes_round_and_says_whether_there_is_another():
    known = Endpoints([A, B, A])
    assert known.all == (A, B)
    assert [(known.turn(), known.current) for _ in range(3)] == [(True, B), (True, A), (True, B)]
    alone = Endpoints([A])
    assert not alone.turn()
    assert alone.current == A


def test_only_a_known_one_that_is_not_the_current_is_turned_to():
    known = Endpoints([A, B])
    assert not known.turn_to(A.unicast)
    assert not known.turn_to(C.unicast)
    assert known.current == A
    assert known.turn_to(B.unicast)
    assert known.current == B


def test_the_current_one_says_where_it_is_heard_and_by_which_name_others_know_it():
    known = Endpoints([Endpoint("tcp://localhost:8011"), B])
    known.learn(Endpoint("tcp://127.0.0.1:8011", "tcp://127.0.0.1:8001"))
    assert known.current == Endpoint("tcp://localhost:8011", "tcp://127.0.0.1:8001")
    assert not known.turn_to("tcp://127.0.0.1:8011")
    known.turn()
    assert known.current == B
    assert known.turn_to("tcp://127.0.0.1:8011")
    assert known.current.unicast == "tcp://localhost:8011"
    assert not known.turn_to("tcp://localhost:8011")


def test_others_may_take_their_place_and_the_current_one_stays_if_it_can():
    known = Endpoints([A, B])
    known.turn()
    assert known.replace([C, B])
    assert (known.all, known.current) == ((C, B), B)
    assert not known.replace([B, C])
    assert not known.replace([])
    assert known.replace([A])
    assert known.current == A


def test_one_that_is_known_by_another_name_stays():
    known = Endpoints([Endpoint("tcp://localhost:8011")])
    known.learn(A)
    assert known.replace([B, A])
    assert known.current == A


def test_no_more_than_a_cluster_has_are_kept():
    many = [Endpoint(f"tcp://a:{port}") for port in range(1000, 1200)]
    assert len(Endpoints(many).all) == MOST_ENDPOINTS
    known = Endpoints([A])
    assert known.replace(many)
    assert len(known.all) == MOST_ENDPOINTS
