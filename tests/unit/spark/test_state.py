"""The state of tables: what was taken, by time, and what was made."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopline.errors import TablesError
from hopline.spark.state import Layer, State, Terms, cut, join, read_state, write_state

TIMES = st.one_of(st.none(), st.integers(-5, 5))
ASKED = st.tuples(TIMES, TIMES)


def test_it_survives_the_disk():
    state = State(
        run="r",
        terms=Terms(v3_ttl="ticks", bodies=True, reach_s=60),
        layers=[Layer(until_ns=5, offset={"segments": {"s": 7}})],
        made={"messages": {"2026-11-15": 3}},
    )
    assert read_state(write_state(state)) == state
    assert (state.rows_of("messages"), state.rows_of("flows"), state.days_of("flows")) == (3, 0, {})


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"layers": 1}', b"\xff", b'{"version": 99}', b'{"terms": {"reach_s": 43201}}']
)
def test_what_is_no_state_is_said_to_be_none(data):
    with pytest.raises(TablesError) as caught:
        read_state(data)
    assert caught.value.code == "TABLES_BAD_STATE"


@pytest.mark.parametrize(
    "offset",
    [
        "[]",
        '{"runs": 1}',
        '{"runs": {"N1-9f86d081": "1-x"}}',
        '{"runs": {"N1-9f86d081": "1-2-3"}}',
        '{"runs": {"N1-9f86d081": 5}}',
        '{"segments": {"s": "5"}}',
        '{"segments": {"s": -1}}',
        '{"segments": null}',
    ],
)
def test_an_offset_that_is_none_is_said(offset):
    with pytest.raises(TablesError) as caught:
        read_state(f'{{"layers": [{{"offset": {offset}}}]}}'.encode())
    assert caught.value.code == "TABLES_BAD_STATE"


def test_offsets_look_as_they_did():
    offset = {"runs": {"N1-9f86d081": "1-56,58", "N2-9f86d081": ""}, "segments": {"s": 0}}
    data = write_state(State(layers=[Layer(offset=offset), Layer(since_ns=1, offset={})]))
    assert json.loads(data)["layers"][0]["offset"] == offset
    assert write_state(read_state(data)) == data


def taken(layers, moment):
    """What was taken of what was seen at a moment."""
    found = [layer.offset for layer in layers if layer.span[0] <= moment < layer.span[1]]
    assert len(found) <= 1
    return found[0] if found else {}


@given(st.lists(ASKED, max_size=6), ASKED)
def test_layers_say_for_every_moment_what_was_taken(before, asked):
    layers = []
    model = {moment: {} for moment in range(-7, 8)}
    for number, (since, until) in enumerate(before):
        inside, outside = cut(layers, since, until)
        offset = {"segments": {"s": number}}
        layers = join([*outside, *(msgspec.structs.replace(layer, offset=offset) for layer in inside)])
        for moment in model:
            if (since is None or since <= moment) and (until is None or moment < until):
                model[moment] = offset
        assert {moment: taken(layers, moment) for moment in model} == model
    inside, outside = cut(layers, *asked)
    for moment, offset in model.items():
        is_asked = (asked[0] is None or asked[0] <= moment) and (asked[1] is None or moment < asked[1])
        assert taken(inside if is_asked else outside, moment) == offset
        assert not is_asked or any(layer.span[0] <= moment < layer.span[1] for layer in inside)


@pytest.mark.parametrize(
    ("since", "until", "asked"),
    [(-(1 << 70), 1 << 70, [Layer()]), (5, 1 << 70, [Layer(since_ns=5)]), (1 << 70, None, []), (None, -(1 << 70), [])],
)
def test_times_beyond_all_times(since, until, asked):
    inside, outside = cut([Layer(offset={"segments": {"s": 1}})], since, until)
    assert [(layer.since_ns, layer.until_ns) for layer in inside] == [(layer.since_ns, layer.until_ns) for layer in asked]
    assert [layer.span for layer in join([*inside, *outside])] == [Layer().span]


def test_neighbours_of_which_the_same_was_taken_are_one():
    inside, outside = cut([Layer(offset={"x": 1})], 3, None)
    assert join([*inside, *outside]) == [Layer(offset={"x": 1})]
