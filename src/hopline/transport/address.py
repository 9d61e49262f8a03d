"""Addresses: which ones ZeroMQ is given, and a sentence for people about the others.

Only `tcp://` and `ipc://` lead to other processes on every system; libzmq knows more kinds, and its errors are terse.
"""

import re
import socket
from typing import Final

from hopline.errors import TransportError

_TCP: Final = re.compile(r"tcp://(?P<host>\[[^\[\]]+\]|[\w.*-]+):(?P<port>\d{1,5}|\*)", re.ASCII)
_RANGE: Final = re.compile(r"(?P<host>[a-z]+://\S+):(?P<first>\d{1,5})-(?P<last>\d{1,5})", re.ASCII)
_IPC: Final = re.compile(r"ipc://([^\0*]+)")
_LONGEST_PATH: Final = 107
"""Bytes that fit `sun_path` of a Unix socket on Linux."""


def check_to_bind(address: str) -> None:
    """Raise TransportError unless this is an address that a socket can be bound to."""
    if not all(_is_address(place, lowest_port=0) for place in places(address)):
        raise _bad(f"bind {address!r}")


def places(address: str) -> list[str]:
    """The addresses that a range of ports stands for, first to last; of any other address only itself.

    >>> places("tcp://*:5101-5103")
    ['tcp://*:5101', 'tcp://*:5102', 'tcp://*:5103']
    >>> places("ipc:///run/hopline")
    ['ipc:///run/hopline']
    """
    match = _RANGE.fullmatch(address)
    if match is None or not 1 <= int(match["first"]) <= int(match["last"]) <= 65_535:
        return [address]
    return [f"{match['host']}:{port}" for port in range(int(match["first"]), int(match["last"]) + 1)]


def check_to_connect(address: str) -> None:
    """Raise TransportError unless this is an address of one place."""
    if "*" in address or not _is_address(address, lowest_port=1):
        raise _bad(f"connect to {address!r}")


def check_free(address: str) -> None:
    """Raise TransportError if somebody listens at this path: libzmq would take it over without a word."""
    if not address.startswith("ipc://"):
        return
    path = address.removeprefix("ipc://")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # noqa: FBT003 - its only argument
        try:
            probe.connect("\0" + path[1:] if path.startswith("@") else path)
        except BlockingIOError:
            pass  # somebody who has no time
        except OSError:
            return
    raise taken(address)


def taken(address: str) -> TransportError:
    """What to say of an address that somebody else has."""
    return TransportError("TRANSPORT_ADDRESS_IN_USE", f"{address} is in use: choose another, or port 0 for any free one")


def _is_address(address: str, lowest_port: int) -> bool:
    if match := _IPC.fullmatch(address):
        return len(match[1].encode()) <= _LONGEST_PATH
    if match := _TCP.fullmatch(address):
        return match["port"] == "*" or lowest_port <= int(match["port"]) <= 65_535
    return False


def _bad(what: str) -> TransportError:
    return TransportError("TRANSPORT_BAD_ADDRESS", f"Cannot {what}: write tcp://HOST:PORT or ipc://PATH")
