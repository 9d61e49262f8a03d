"""From words to a running node: addresses, paths and TOML become the objects that a Node is made of.

The one room that knows node, transport and security together. What it reads is checked here, so that a mistake in a
configuration is a sentence at the start and not a traceback later.

    [node]
    bind = "tcp://127.0.0.1:5101"
    peers = ["tcp://127.0.0.1:5102"]
    hop_limit = 32                     # over how many nodes a message may go
    hold_seconds = 5.0                 # how long a message waits for a route
    plain_tcp = false                  # true: also off this machine without encryption

    [node.curve]                       # encrypted connections
    public_key = "..."                 # Z85, from `hopline keys new --curve`
    secret_key = "..."
    allowed_keys = ["..."]             # public keys that may connect; nobody else
    [node.curve.server_keys]
    "tcp://127.0.0.1:5102" = "..."     # public keys of the peers

    [domains.orders]                   # see docs/security.md
    keys = ["..."]
"""

import ipaddress
import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from hopline.errors import InputError, TransportError
from hopline.node.actor import Actor
from hopline.node.clock import Clock
from hopline.node.ids import Ids
from hopline.node.node import Node as PlainNode
from hopline.node.taps import Tap
from hopline.security import Domains, read_keys
from hopline.transport.base import Transport
from hopline.transport.curve import Curve
from hopline.transport.zmq import ZmqTransport


class CurveSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keys of encrypted connections, as text (Z85)."""

    public_key: str
    secret_key: str
    allowed_keys: list[str] = []
    server_keys: dict[str, str] = {}


class NodeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [node] of a configuration."""

    bind: str = ""
    peers: list[str] = []
    hop_limit: int = 32
    hold_seconds: float = 5.0
    plain_tcp: bool = False
    curve: CurveSettings | None = None


class Settings(msgspec.Struct, frozen=True):
    """A whole configuration."""

    node: NodeSettings = NodeSettings()
    domains: Domains | None = None


_TABLES: Final = {"node", "domains"}


def read_settings(path: str | os.PathLike[str]) -> Settings:
    """Read a configuration file; raises InputError with a sentence that names the setting, never a key."""
    try:
        text = Path(path).read_text("utf-8")
        tables = tomllib.loads(text)
    except OSError as error:
        raise InputError("INPUT_BAD_CONFIG", f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError("INPUT_BAD_CONFIG", f"{path} is not TOML: {error}") from None
    if tables.keys() - _TABLES:
        raise InputError("INPUT_BAD_CONFIG", f"{path} has unknown tables; known are {', '.join(sorted(_TABLES))}")
    try:
        node = msgspec.convert(tables.get("node", {}), NodeSettings)
    except msgspec.ValidationError as error:
        raise InputError("INPUT_BAD_CONFIG", f"{path}: [node]: {error}") from None
    return Settings(node, Domains(read_keys(text)) if "domains" in tables else None)


class Node(PlainNode):
    """A node made of words: `hopline.Node`. See `hopline.node.node.Node` for what it does.

    Args:
        actors: the actors that live here.
        bind: where other nodes reach us, such as "tcp://127.0.0.1:0". Without it the node is alone, or a client if it
            has peers.
        peers: addresses of other nodes.
        domains: security domains, or the path of a key file.
        config: the path of a configuration file; what is said beside it counts more, and peers are added to its peers.
        plain_tcp: allow connections off this machine without encryption.
        transport: another way to other nodes, such as one in memory.
        taps: who sees the messages.
        identity: the node's identity; a new one by default.
        clock: where time comes from.
    """

    def __init__(
        self,
        actors: Iterable[Actor] = (),
        *,
        bind: str | None = None,
        peers: Iterable[str] = (),
        domains: Domains | str | os.PathLike[str] | None = None,
        config: str | os.PathLike[str] | None = None,
        plain_tcp: bool | None = None,
        transport: Transport | None = None,
        taps: Iterable[Tap] = (),
        identity: bytes | None = None,
        clock: Clock | None = None,
        hold_seconds: float | None = None,
        hop_limit: int | None = None,
    ) -> None:
        settings = read_settings(config) if config is not None else Settings()
        node = settings.node
        identity = identity or Ids().guid()
        addresses = [*node.peers, *peers]
        where = node.bind if bind is None else bind
        if isinstance(domains, str | os.PathLike):
            domains = read_settings(domains).domains
        given = transport is not None
        is_open = node.curve is not None or (node.plain_tcp if plain_tcp is None else plain_tcp)
        if transport is None and (where or addresses):
            curve = _curve(node.curve)
            for address in filter(None, [where, *addresses]):
                if not (is_open or _is_here(address)):
                    reason = (
                        f"{address} leaves this machine without encryption: configure [node.curve], or say plain_tcp=True"
                    )
                    raise TransportError("TRANSPORT_BAD_ADDRESS", reason)
            if (where and _is_everywhere(where)) or (not where and not all(map(_is_here, addresses))):
                # It is what we announce: answers come to it.
                raise TransportError("TRANSPORT_BAD_ADDRESS", "bind must be an address at which the peers reach this node")
            # A node that only asks must still be reachable for the answers.
            transport = ZmqTransport(
                where or "tcp://127.0.0.1:0", identity=identity, curve=curve, server_keys=_server_keys(node.curve)
            )
        super().__init__(
            actors=actors,
            transport=transport,
            peers=addresses,
            domains=settings.domains if domains is None else domains,
            taps=taps,
            identity=identity,
            clock=clock,
            hold_seconds=node.hold_seconds if hold_seconds is None else hold_seconds,
            hop_limit=node.hop_limit if hop_limit is None else hop_limit,
            # Also to where other nodes say that they are.
            may_connect=(lambda _: True) if is_open or given else _is_here,
        )


def _curve(settings: CurveSettings | None) -> Curve | None:
    if settings is None:
        return None
    allowed = frozenset(key.encode() for key in settings.allowed_keys)
    return Curve(settings.public_key.encode(), settings.secret_key.encode(), allowed)


def _server_keys(settings: CurveSettings | None) -> dict[str, bytes]:
    return {address: key.encode() for address, key in settings.server_keys.items()} if settings else {}


def _host(address: str) -> str:
    """The host of a TCP address; empty for others, which never leave the machine."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "*"  # no address at all; the transport says so
    return (parts.hostname or "*") if parts.scheme == "tcp" else ""


def _is_here(address: str) -> bool:
    """Whether an address is on this machine. Plain TCP is for this machine only, unless it was asked for by name."""
    host = _host(address)
    try:
        return not host or host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_everywhere(address: str) -> bool:
    return _host(address) in ("*", "0.0.0.0", "::")  # noqa: S104 - to refuse it
