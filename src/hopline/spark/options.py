"""The options of `format("hopline")`: their names, how they are read, and what they mean when nothing is said.

Of a source:

    path                 the folder of a capture, or a URI that pyarrow opens
    mode                 messages (default): a row per sighting of a message; rejects: a row per frame list that is none
    columns              names of columns with commas between; by default all but the body. Fewer columns cost less
    bodies               true: the column `body` too
    where                a filter, in the language of `hopline.capture.filter`
    taps                 names of taps with commas between
    since, until         the earliest time, and the time before which a message was seen: ISO, or nanoseconds since 1970
    v3_ttl               ms (default) or ticks: the unit of TTL in v3
    shareBytes           bytes of a capture that one task reads; 64 to 128 MiB, so that all cores have something to do. Never
                         so few that there would be more than about ten thousand tasks
    maxBytesPerTrigger   of a stream: about so many bytes of a capture are taken at once, in whole segments,
    maxFilesPerTrigger   and so many segments: what comes first ends a batch

Of a sink:

    peers                addresses of nodes to send to, with commas between: tcp://127.0.0.1:5101
    cluster              addresses of rendezvous through which nodes are found
    config               a configuration file (`assembly.py`) that may say all that, and have keys
    keys                 a key file. Both files are read where rows are sent: they must be there on every executor
    plain_tcp            true: also off this machine without encryption
    bind                 where confirmations come to; by default an address of the executor that the others reach
    until                node (default): a row is sent when a node has it; handled: when an actor has handled it
    timeout              seconds within which each row must be confirmed; 30
    inFlight             rows of a task that are under way at once; 100
    rate, tasks          at most so many rows a second, shared by so many tasks at once; as fast as possible, 1

This file knows neither captures nor Spark: it makes values of texts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Final, Literal, NoReturn, get_args

import pyarrow as pa

from hopline.capture.fields import read_time
from hopline.capture.filter import Filter, parse_filter
from hopline.capture.query import EVERYTHING
from hopline.capture.record import DIRECTIONS
from hopline.capture.tables import DEFAULT_COLUMNS, MESSAGES, REJECTS
from hopline.errors import InputError
from hopline.wire import TtlUnit

Mode = Literal["messages", "rejects"]
Until = Literal["node", "handled"]

TIMEOUT_S: Final = 30.0
IN_FLIGHT: Final = 100
MOST_IN_FLIGHT: Final = 10_000
"""More would not wait for a route: that is how many messages a node holds."""

_NAMES: Final = (
    "path",
    "mode",
    "columns",
    "bodies",
    "where",
    "taps",
    "since",
    "until",
    "v3_ttl",
    "shareBytes",
    "maxBytesPerTrigger",
    "maxFilesPerTrigger",
)
_SINK_NAMES: Final = (
    "peers",
    "cluster",
    "config",
    "keys",
    "plain_tcp",
    "bind",
    "until",
    "timeout",
    "inFlight",
    "rate",
    "tasks",
    "path",
    "checkpointLocation",  # Spark's own, of a stream; so is its name
    "queryName",
)
_PATHS: Final = ("path", "keys", "config")
"""Options whose spaces mean something."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_SHOWN: Final = 100
"""Characters of a wrong value that are repeated."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is to be read, and how."""

    path: str
    mode: Mode = "messages"
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    where: Filter = EVERYTHING
    taps: tuple[str, ...] = ()
    since_ns: int | None = None
    until_ns: int | None = None
    v3_ttl: TtlUnit = "ms"
    share_bytes: int | None = None
    max_bytes: int | None = None
    max_files: int | None = None

    @property
    def table(self) -> pa.Schema:
        """All columns that this mode has."""
        return MESSAGES if self.mode == "messages" else REJECTS

    @property
    def schema(self) -> pa.Schema:
        """Those columns of it that are asked for."""
        return pa.schema([self.table.field(name) for name in self.columns])


def read_options(given: Mapping[str, str]) -> Options:
    """Read the options that a user gave; raises InputError, INPUT_BAD_OPTION or INPUT_BAD_FILTER.

    >>> options = read_options({"path": "captures", "columns": "seen_at, hops", "bodies": "true", "since": "2026-11-15"})
    >>> options.columns, options.since_ns
    (('seen_at', 'hops', 'body'), 1794700800000000000)
    """
    if "paths" in given:  # what Spark makes of load([...])
        _fail("path", "must be one capture: load each by itself, and put the DataFrames together with unionByName")
    said = _said(given, _NAMES)
    mode = _choice(said, "mode", get_args(Mode), "messages")
    since_ns, until_ns = _moment(said, "since"), _moment(said, "until")
    if since_ns is not None and until_ns is not None and since_ns >= until_ns:
        _fail("since", "must be before until: else there is no time between them")
    path = said.get("path", "")
    return Options(
        path=path if path.strip() else _fail("path", 'must be the folder of a capture: load("captures/")'),
        mode=mode,  # type: ignore[arg-type]  # one of get_args
        columns=_columns(said, mode),
        where=_where(said),
        taps=_taps(said),
        since_ns=since_ns,
        until_ns=until_ns,
        v3_ttl=_choice(said, "v3_ttl", get_args(TtlUnit), "ms"),  # type: ignore[arg-type]
        share_bytes=_count(said, "shareBytes"),
        max_bytes=_count(said, "maxBytesPerTrigger"),
        max_files=_count(said, "maxFilesPerTrigger"),
    )


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where rows are sent, and how. It holds no key: those are read from files, where rows are sent."""

    peers: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    config: str = ""
    keys: str = ""
    plain_tcp: bool = False
    bind: str = ""
    until: Until = "node"
    timeout: float = TIMEOUT_S
    in_flight: int = IN_FLIGHT
    rate: float | None = None


def read_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Read the options of a sink; raises InputError INPUT_BAD_OPTION.

    >>> options = read_sink_options({"peers": "tcp://127.0.0.1:5101", "rate": "1000", "tasks": "4"})
    >>> options.rate, options.until
    (250.0, 'node')
    """
    said = _said(given, _SINK_NAMES)
    if "path" in said:
        _fail("path", 'is not for a sink: rows go to nodes, option("peers", "tcp://127.0.0.1:5101")')
    peers, cluster = _list(said, "peers"), _list(said, "cluster")
    if not (peers or cluster or said.get("config")):
        _fail("peers", "must say where nodes are, such as tcp://127.0.0.1:5101; or say cluster or config")
    rate, tasks = _number(said, "rate", 1e9), _count(said, "tasks")
    if tasks and rate is None:
        _fail("tasks", "says how many tasks share a rate, and there is none: say rate")
    in_flight = _count(said, "inFlight") or IN_FLIGHT
    if in_flight > MOST_IN_FLIGHT:
        _fail("inFlight", f"is at most {MOST_IN_FLIGHT}")
    return SinkOptions(
        peers=peers,
        cluster=cluster,
        config=said.get("config", ""),
        keys=said.get("keys", ""),
        plain_tcp=_choice(said, "plain_tcp", ("true", "false"), "false") == "true",
        bind=said.get("bind", ""),
        until=_choice(said, "until", get_args(Until), "node"),  # type: ignore[arg-type]  # one of get_args
        timeout=_number(said, "timeout", 86_400.0) or TIMEOUT_S,
        in_flight=in_flight,
        rate=None if rate is None else rate / (tasks or 1),
    )


def _said(given: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
    """What was said, by the names that we know. Values of unknown options are not repeated: one may be a key."""
    names = {name.lower(): name for name in known}
    if "owner" in given:  # Spark's own: nobody has said it
        _fail("path", "is not for tables in a catalog: CREATE TEMPORARY VIEW ... USING hopline OPTIONS (path '...')")
    for name in given:
        if name.lower() not in names:
            _fail(name, f"does not exist{_hint(name.lower(), names.values())}")
    said = {names[name.lower()]: text for name, text in given.items()}
    return {name: text if name in _PATHS else text.strip() for name, text in said.items()}


def _list(said: Mapping[str, str], option: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in said.get(option, "").split(",") if part.strip())


def _number(said: Mapping[str, str], option: str, most: float) -> float | None:
    text = said.get(option)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    return number if 0 < number <= most else _fail(option, f"is a number above 0, at most {most:g}, not {text}")


def _columns(said: Mapping[str, str], mode: str) -> tuple[str, ...]:
    bodies = _choice(said, "bodies", ("true", "false"), "false") == "true"
    if mode == "rejects":
        if bodies:
            _fail("bodies", "makes no sense with mode=rejects: what is no message has no body")
        return _names(said, "columns", REJECTS.names) or tuple(REJECTS.names)
    columns = _names(said, "columns", MESSAGES.names)
    if not columns:
        return tuple(MESSAGES.names) if bodies else DEFAULT_COLUMNS
    return (*columns, "body") if bodies and "body" not in columns else columns


def _where(said: Mapping[str, str]) -> Filter:
    """The filter. What is wrong with it is said in one line, the last of a traceback; a caret below would be that line."""
    try:
        return parse_filter(said.get("where", ""))
    except InputError as error:
        raise InputError(error.code, f"the option where: {error.reason.splitlines()[0]}") from None


def _taps(said: Mapping[str, str]) -> tuple[str, ...]:
    return _names(said, "taps", DIRECTIONS)


def _names(said: Mapping[str, str], option: str, known: Iterable[str]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in said.get(option, "").split(",") if name.strip())
    known = list(known)
    for name in names:
        if name not in known:
            _fail(option, f"cannot be {name}{_hint(name, known)}")
    if len(set(names)) < len(names):
        _fail(option, "names something twice")
    return names


def _choice(said: Mapping[str, str], option: str, choices: tuple[str, ...], default: str) -> str:
    value = said.get(option, default).lower()
    return value if value in choices else _fail(option, f"is {' or '.join(choices)}, and not {value}")


def _count(said: Mapping[str, str], option: str) -> int | None:
    text = said.get(option)
    if text is None:
        return None
    try:
        number = int(text) if text.isascii() and text.isdecimal() else 0
    except ValueError:  # it has thousands of digits
        number = 0
    return number or _fail(option, f"is a number from 1, not {text[:_MOST_SHOWN]}")


def _moment(said: Mapping[str, str], option: str) -> int | None:
    text = said.get(option)
    if text is None:
        return None
    try:
        if text.removeprefix("-").isdecimal():
            return int(text)  # ValueError if there are thousands of digits
        return (read_time(text) - _EPOCH) // timedelta(microseconds=1) * 1000
    except ValueError:
        reason = f"is a time such as 2026-11-15T18:09:40Z or nanoseconds since 1970, and not {text[:_MOST_SHOWN]}"
        _fail(option, reason)


def _hint(name: str, known: Iterable[str]) -> str:
    by_lower = {each.lower(): each for each in known}
    close = get_close_matches(name, by_lower, 1)
    return f"; did you mean {by_lower[close[0]]}?" if close else f"; there are {', '.join(by_lower.values())}"


def _fail(option: str, reason: str) -> NoReturn:
    raise InputError("INPUT_BAD_OPTION", f"the option {option} {reason}")
