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

    [capture]                          # record what passes; see docs/capture.md
    path = "captures"                  # a folder, or a URI that pyarrow opens
    points = ["scaleout_out", "scaleout_in", "hub_out", "hub_in"]
    identities = ["ORDER.*"]           # all, if not said
    domains = []                       # all, if not said
    sample = 1.0                       # the share of flows, whole ones
    body = "whole"                     # or "none", or how many bytes of each are kept
    segment_bytes = 67108864           # a file is sealed at this size,
    segment_seconds = 300.0            # or at this age
    keep_bytes = 10737418240           # the oldest files are deleted beyond this size; all are kept if not said
    keep_seconds = 604800.0            # or beyond this age

    [domains.orders]                   # see docs/security.md
    keys = ["..."]
"""

import asyncio
import ipaddress
import os
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar
from urllib.parse import urlsplit

import msgspec

from hopline.errors import InputError, TransportError
from hopline.node.actor import Actor
from hopline.node.clock import Clock
from hopline.node.ids import Ids
from hopline.node.node import Node as PlainNode
from hopline.node.taps import POINTS, Tap
from hopline.security import Domains, read_keys
from hopline.transport.base import Transport
from hopline.transport.curve import Curve
from hopline.transport.zmq import ZmqTransport

if TYPE_CHECKING:
    from hopline.capture.tap import CaptureTap

_Table = TypeVar("_Table")


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


class CaptureSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [capture] of a configuration: what of a node's messages is recorded, and where."""

    path: str
    points: tuple[str, ...] | None = None
    identities: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    sample: float = 1.0
    body: Literal["whole", "none"] | int = "whole"
    segment_bytes: int = 64 * 1024 * 1024
    segment_seconds: float = 300.0
    keep_bytes: int | None = None
    keep_seconds: float | None = None


class Settings(msgspec.Struct, frozen=True):
    """A whole configuration."""

    node: NodeSettings = NodeSettings()
    domains: Domains | None = None
    capture: CaptureSettings | None = None


_TABLES: Final = {"node", "domains", "capture"}


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
    node = _table(path, tables, "node", NodeSettings)
    capture = _table(path, tables, "capture", CaptureSettings) if "capture" in tables else None
    return Settings(node, Domains(read_keys(text)) if "domains" in tables else None, capture)


def _table(path: str | os.PathLike[str], tables: dict[str, Any], name: str, kind: type[_Table]) -> _Table:
    try:
        return msgspec.convert(tables.get(name, {}), kind)
    except msgspec.ValidationError as error:
        raise InputError("INPUT_BAD_CONFIG", f"{path}: [{name}]: {error}") from None


class Node(PlainNode):
    """A node made of words: `hopline.Node`. See `hopline.node.node.Node` for what it does.

    Args:
        actors: the actors that live here.
        bind: where other nodes reach us, such as "tcp://127.0.0.1:0". Without it the node is alone, or a client if it
            has peers.
        peers: addresses of other nodes.
        domains: security domains, or the path of a key file.
        config: the path of a configuration file, or what was read from one; what is said beside it counts more, and peers
            are added to its peers.
        plain_tcp: allow connections off this machine without encryption.
        transport: another way to other nodes, such as one in memory.
        taps: who sees the messages.
        capture: a folder to record messages in, or settings that say more. Needs the extra `columnar`.
        identity: the node's identity; a new one by default.
        clock: where time comes from.
        may_connect: asked before we connect to an address, also to one that another node announced; by default all may be
            connected to that `plain_tcp` allows, which is asked in any case.
    """

    def __init__(
        self,
        actors: Iterable[Actor] = (),
        *,
        bind: str | None = None,
        peers: Iterable[str] = (),
        domains: Domains | str | os.PathLike[str] | None = None,
        config: str | os.PathLike[str] | Settings | None = None,
        plain_tcp: bool | None = None,
        transport: Transport | None = None,
        taps: Iterable[Tap] = (),
        capture: str | os.PathLike[str] | CaptureSettings | None = None,
        identity: bytes | None = None,
        clock: Clock | None = None,
        hold_seconds: float | None = None,
        hop_limit: int | None = None,
        may_connect: Callable[[str], bool] | None = None,
    ) -> None:
        if not isinstance(config, Settings):
            config = read_settings(config) if config is not None else Settings()
        settings = config
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
        if capture is not None and not isinstance(capture, CaptureSettings):
            capture = CaptureSettings(os.fspath(capture))
        capture = capture or settings.capture
        self.capture = _capture_tap(capture, identity) if capture is not None else None
        """What records our messages, if anything does."""
        is_safe = (lambda _: True) if is_open or given else _is_here
        super().__init__(
            actors=actors,
            transport=transport,
            peers=addresses,
            domains=settings.domains if domains is None else domains,
            taps=(*taps, *([self.capture] if self.capture is not None else ())),
            identity=identity,
            clock=clock,
            hold_seconds=node.hold_seconds if hold_seconds is None else hold_seconds,
            hop_limit=node.hop_limit if hop_limit is None else hop_limit,
            # Also to where other nodes say that they are.
            may_connect=is_safe if may_connect is None else lambda address: is_safe(address) and may_connect(address),
        )

    async def start(self) -> Self:
        """Start recording, then the node."""
        if self.capture is not None:
            self.capture.start()
        try:
            return await super().start()
        except BaseException:
            await self._end_capture()
            raise

    async def stop(self, drain: float = 5.0) -> None:
        """Stop the node, then recording: nothing that the node does at its end is missing."""
        try:
            await super().stop(drain)
        finally:
            await self._end_capture()

    def capture_report(self) -> dict[str, Any] | None:
        """What recording did so far: seen, waiting, written, lost and so on; None if nothing is recorded."""
        return asdict(self.capture.statistics()) if self.capture is not None else None

    async def _end_capture(self) -> None:
        if self.capture is not None:
            # It waits for a thread that waits for a disk.
            await asyncio.get_running_loop().run_in_executor(None, self.capture.close)


def _capture_tap(settings: CaptureSettings, identity: bytes) -> "CaptureTap":
    try:
        from hopline.capture.tap import DEFAULT_POINTS, CaptureTap  # noqa: PLC0415 - an extra
        from hopline.capture.writer import Limits  # noqa: PLC0415
    except ModuleNotFoundError as error:
        reason = f"a capture needs {error.name}: pip install 'hopline[columnar]'"
        raise InputError("INPUT_BAD_CONFIG", reason) from None
    limits = Limits(settings.segment_bytes, settings.segment_seconds, settings.keep_bytes, settings.keep_seconds)
    points = DEFAULT_POINTS if settings.points is None else POINTS if "all" in settings.points else settings.points
    try:
        return CaptureTap(
            settings.path,
            owner=identity,
            points=points,
            identities=settings.identities,
            domains=settings.domains,
            sample=settings.sample,
            body=settings.body,
            limits=limits,
        )
    except ValueError as error:
        raise InputError("INPUT_BAD_CONFIG", f"[capture]: {error}") from None


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
