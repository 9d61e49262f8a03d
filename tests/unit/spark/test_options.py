"""The options of the Spark source and sink."""

import pytest

from hopline.capture.filter import parse_filter
from hopline.capture.tables import DEFAULT_COLUMNS, MESSAGES, REJECTS
from hopline.errors import InputError
from hopline.spark.options import Options, SinkOptions, read_options, read_sink_options


def read(**given: str) -> Options:
    return read_options({"path": "captures", **given})


def test_a_path_is_enough():
    options = read()
    assert options == Options(path="captures")
    assert options.columns == DEFAULT_COLUMNS
    assert options.share_bytes is None
    assert options.table == MESSAGES


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        ({"columns": "hops"}, ("hops",)),
        ({"columns": " hops , seen_at,"}, ("hops", "seen_at")),
        ({"columns": ""}, DEFAULT_COLUMNS),
        ({"bodies": "false"}, DEFAULT_COLUMNS),
        ({"bodies": "TRUE"}, tuple(MESSAGES.names)),
        ({"columns": "hops", "bodies": "true"}, ("hops", "body")),
        ({"columns": "body,hops", "bodies": "true"}, ("body", "hops")),
        ({"mode": "rejects"}, tuple(REJECTS.names)),
        ({"mode": "rejects", "columns": "code"}, ("code",)),
    ],
)
def test_columns(given, columns):
    assert read(**given).columns == columns


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("-5", -5),
        ("1794784501123456789", 1_794_784_501_123_456_789),
        ("2026-11-15T18:55:01.5Z", 1_794_768_901_500_000_000),
        ("2026-11-15T19:55:01.5+01:00", 1_794_768_901_500_000_000),
        ("1970-01-02", 86_400_000_000_000),
    ],
)
def test_times_are_iso_or_nanoseconds(text, ns):
    assert read(since=text).since_ns == ns
    assert read(until=text).until_ns == ns


def test_other_options_whatever_their_case():
    options = read_options(
        {
            "PATH": "captures",
            "V3_TTL": "ticks",
            "taps": "hub_in, wire_in",
            "where": "hops > 1",
            "sharebytes": "5",
            "maxbytespertrigger": "6",
            "maxFilesPerTrigger": "7",
        }
    )
    assert (options.v3_ttl, options.taps, options.where) == ("ticks", ("hub_in", "wire_in"), parse_filter("hops > 1"))
    assert (options.share_bytes, options.max_bytes, options.max_files) == (5, 6, 7)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"colums": "hops"}, "colums does not exist; did you mean columns?"),
        ({"sharebyte": "1"}, "did you mean shareBytes?"),
        ({"paths": '["a","b"]'}, "must be one capture: load each by itself"),
        ({"unheard": "1"}, "there are path, mode, columns"),
        ({"path": " "}, "must be the folder of a capture"),
        ({"owner": "me"}, "path is not for tables in a catalog: CREATE TEMPORARY VIEW"),
        ({"columns": "hopps"}, "cannot be hopps; did you mean hops?"),
        ({"columns": "hops,hops"}, "names something twice"),
        ({"mode": "rejects", "columns": "hops"}, "columns cannot be hops"),
        ({"mode": "rejects", "bodies": "true"}, "has no body"),
        ({"mode": "all"}, "mode is messages or rejects, and not all"),
        ({"bodies": "maybe"}, "bodies is true or false"),
        ({"taps": "hub"}, "taps cannot be hub"),
        ({"since": "yesterday"}, "since is a time such as"),
        ({"until": "--5"}, "until is a time such as"),
        ({"since": "2026-11-16", "until": "2026-11-15"}, "since must be before until"),
        ({"since": "1000", "until": "1000"}, "since must be before until"),
        ({"v3_ttl": "s"}, "v3_ttl is ms or ticks"),
        ({"shareBytes": "0"}, "shareBytes is a number from 1"),
        ({"maxBytesPerTrigger": "1g"}, "is a number from 1, not 1g"),
        ({"shareBytes": "1" * 5000}, "shareBytes is a number from 1"),
        ({"since": "1" * 5000}, "since is a time such as"),
        ({"until": "9999-12-31T23:59:59-12:00"}, "until is a time such as"),
    ],
)
def test_what_cannot_be_is_said(given, said):
    with pytest.raises(InputError) as raised:
        read(**given)
    assert raised.value.code == "INPUT_BAD_OPTION"
    assert said in str(raised.value)


def test_a_path_is_taken_as_it_is():
    assert read(path=" two words ").path == " two words "


def test_a_filter_says_itself_what_is_wrong_in_one_line():
    with pytest.raises(InputError) as raised:
        read(where="hopps > 1")
    assert raised.value.code == "INPUT_BAD_FILTER"
    assert str(raised.value) == "the option where: there is no field hopps; did you mean hops? (character 1 of the filter)"


# --- of a sink ---------------------------------------------------------------------------------------------------------


def test_a_sink_needs_to_know_where_to_send():
    assert read_sink_options({"peers": "tcp://a:1, tcp://b:2"}) == SinkOptions(peers=("tcp://a:1", "tcp://b:2"))
    assert read_sink_options({"cluster": "tcp://a:1", "checkpointLocation": "x"}).cluster == ("tcp://a:1",)
    assert read_sink_options({"peers": "tcp://a:1", "queryname": "orders"}) == SinkOptions(peers=("tcp://a:1",))
    assert read_sink_options({"config": "hopline.toml", "until": "HANDLED"}).until == "handled"


def test_tasks_share_a_rate():
    assert read_sink_options({"peers": "a", "rate": "10"}).rate == 10.0
    assert read_sink_options({"peers": "a", "rate": "10", "tasks": "4"}).rate == 2.5


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "peers must say where nodes are"),
        ({"peers": ",,", "cluster": " , "}, "peers must say where nodes are"),
        ({"path": "x"}, "path is not for a sink"),
        ({"peers": "a", "until": "answered"}, "until is node or handled"),
        ({"peers": "a", "timeout": "0"}, "timeout is a number above 0"),
        ({"peers": "a", "timeout": "nan"}, "timeout is a number above 0"),
        ({"peers": "a", "rate": "fast"}, "rate is a number above 0"),
        ({"peers": "a", "tasks": "2"}, "say rate"),
        ({"peers": "a", "inFlight": "0"}, "inFlight is a number from 1"),
        ({"peers": "a", "inFlight": "10001"}, "inFlight is at most 10000"),
        ({"peers": "a", "key": "orders=00ff"}, "key does not exist; did you mean keys?"),
    ],
)
def test_options_of_a_sink_that_cannot_be(given, words):
    with pytest.raises(InputError) as caught:
        read_sink_options(given)
    assert caught.value.code == "INPUT_BAD_OPTION"
    assert words in str(caught.value)
    assert "00ff" not in str(caught.value)
