"""From words to a running node: addresses, paths and TOML become the objects that a Node is made of.

The one room that knows node, transport and security together. What it reads is checked here, so that a mistake in a
configuration is a sentence at the start and not a traceback later.

    [node]
    name = ""                          # a name for people, no other node's; a new identity at each start if it has none
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

    [cluster]                          # instead of peers; see docs/cluster.md
    rendezvous = ["tcp://127.0.0.1:8011"]
    embed = false                      # true: be the rendezvous while nobody else on this machine is
    health_bind = "tcp://127.0.0.1:5201"  # where our heart beat is heard; a free port if not said

    [rendezvous]                       # for `hopline rendezvous`; see docs/cluster-operations.md
    bind = "tcp://127.0.0.1:8011"      # where nodes send to; with +PORT where they listen, else 10 ports below
    synod = "tcp://127.0.0.1:7001"     # where the other rendezvous listen to this one, if there are any
    members = ["tcp://127.0.0.1:7001"] # the synod addresses of all
    nodes = ["tcp://127.0.0.1:8011"]   # all rendezvous, as nodes are told; read again on SIGHUP

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
import re
import tomllib
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar
from urllib.parse import urlsplit

import msgspec

from hopline.cluster.embedded import Embedded
from hopline.cluster.endpoints import Endpoint, read_endpoint
from hopline.cluster.membership import Membership
from hopline.cluster.rendezvous import Recorder, Rendezvous
from hopline.cluster.settings import ClusterSettings, RendezvousSettings
from hopline.cluster.survey import Asked, Survey
from hopline.errors import InputError, TransportError
from hopline.node.actor import Actor
from hopline.node.clock import Clock, LoopClock
from hopline.node.ids import Ids
from hopline.node.node import Node as PlainNode
from hopline.node.taps import POINTS, Tap
from hopline.security import Domains, read_keys
from hopline.transport.base import Limits, Transport
from hopline.transport.channels import OnRefused
from hopline.transport.curve import Curve
from hopline.transport.zmq import ZmqTransport
from hopline.transport.zmq_channels import ZmqChannels

if TYPE_CHECKING:
    from hopline.capture.tap import CaptureTap

_Table = TypeVar("_Table")

CLUSTER_BYTES: Final = 2**20
"""Of a message about routes: a rendezvous repeats it to all. Ten thousand types of one node need a third of that."""

RENDEZVOUS_POINTS: Final = frozenset({"wire_in", "wire_out"})
"""Where messages can be seen at a rendezvous."""


class CurveSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keys of encrypted connections, as text (Z85).

    Attributes:
        public_key: our own, as `hopline keys new --curve` makes it.
        secret_key: what belongs to it.
        allowed_keys: public keys of those who may connect to us; without any nobody can.
        server_keys: the public key behind each address that we connect to.
    """

    public_key: str
    secret_key: str
    allowed_keys: list[str] = []
    server_keys: dict[str, str] = {}


class NodeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [node] of a configuration: where a node is, whom it knows, and how far its messages go.

    Attributes:
        name: what this node is called in traces and tables, no other node's name; if empty a new identity at each start.
        bind: where other nodes reach us, such as tcp://127.0.0.1:5101; it is what they are told.
        peers: addresses of other nodes.
        hop_limit: over how many nodes a message may go.
        hold_seconds: how long a message waits for a route.
        plain_tcp: allow connections off this machine without encryption.
        curve: encrypted connections.
    """

    name: str = ""
    bind: str = ""
    peers: list[str] = []
    hop_limit: int = 32
    hold_seconds: float = 5.0
    plain_tcp: bool = False
    curve: CurveSettings | None = None


class MemberSettings(ClusterSettings, frozen=True, forbid_unknown_fields=True):
    """The table [cluster] of a configuration: where the rendezvous are, and the times of a node in a cluster.

    Attributes:
        rendezvous: their addresses: tcp://HOST:PORT, or tcp://HOST:PORT+PORT with the port of the broadcast.
        embed: be the first of these rendezvous while nobody else on this machine is.
        health_bind: where the heart beat of this node is heard; a free port of the host that it is bound to by default.
    """

    rendezvous: tuple[str, ...] = ()
    embed: bool = False
    health_bind: str = ""


class CaptureSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [capture] of a configuration: what of a node's messages is recorded, and where.

    Attributes:
        path: a folder, or a URI that pyarrow opens.
        points: where messages are seen, or ["all"]; if not said scaleout_out, scaleout_in, hub_out and hub_in.
        identities: which messages, such as ["ORDER.*"]; all if empty.
        domains: messages of which domains; all if empty.
        sample: the share of flows, whole ones and the same at every node.
        body: what is kept of each body, or how many bytes.
        segment_bytes: a file is sealed at this size.
        segment_seconds: or at this age.
        keep_bytes: beyond this size the oldest files are deleted; all are kept if not said.
        keep_seconds: beyond this age files are deleted; all are kept if not said.
    """

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
    cluster: MemberSettings = MemberSettings()
    rendezvous: RendezvousSettings | None = None


_TABLES: Final = {"node", "domains", "capture", "cluster", "rendezvous"}


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
    domains = Domains(read_keys(text)) if "domains" in tables else None
    rendezvous = _table(path, tables, "rendezvous", RendezvousSettings) if "rendezvous" in tables else None
    return Settings(node, domains, capture, _table(path, tables, "cluster", MemberSettings), rendezvous)


def _table(path: str | os.PathLike[str], tables: dict[str, Any], name: str, kind: type[_Table]) -> _Table:
    try:
        return msgspec.convert(tables.get(name, {}), kind)
    except msgspec.ValidationError as error:
        raise InputError("INPUT_BAD_CONFIG", f"{path}: [{name}]: {error}{_hint(str(error), kind)}") from None


def _hint(reason: str, kind: type) -> str:
    """The setting that somebody may have meant who wrote one that there is not."""
    unknown = re.search("unknown field `(.+?)`", reason)
    if unknown is None:
        return ""
    known = [field.name for field in msgspec.structs.fields(CurveSettings if "`$.curve`" in reason else kind)]
    close = get_close_matches(unknown[1], known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"


class Node(PlainNode):
    """A node made of words: `hopline.Node`. See `hopline.node.node.Node` for what it does.

    Args:
        actors: the actors that live here.
        bind: where other nodes reach us, such as "tcp://127.0.0.1:0". Without it the node is alone, or a client if it
            has peers.
        peers: addresses of other nodes.
        cluster: addresses of rendezvous, through which nodes find each other: "tcp://127.0.0.1:8011", or with the port of
            its broadcast "tcp://10.0.0.1:8011+8001".
        embed: be the rendezvous at the first of these addresses while nobody else on this machine is.
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
        cluster: str | Iterable[str] = (),
        embed: bool | None = None,
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
        identity = identity or node.name.encode() or Ids().guid()
        addresses = [*node.peers, *peers]
        endpoints = [
            *map(read_endpoint, [*settings.cluster.rendezvous, *([cluster] if isinstance(cluster, str) else cluster)])
        ]
        named = [address for endpoint in endpoints for address in endpoint if address]
        where = node.bind if bind is None else bind
        if isinstance(domains, str | os.PathLike):
            domains = read_settings(domains).domains
        given = transport is not None
        is_open = node.curve is not None or (node.plain_tcp if plain_tcp is None else plain_tcp)
        if transport is None and (where or addresses or named):
            curve = _curve(node.curve)
            health = settings.cluster.health_bind
            _check_open([where, *addresses, *named, health], is_open=is_open)
            if any(map(_is_everywhere, filter(None, (where, health)))) or (
                not where and not all(map(_is_here, [*addresses, *named]))
            ):
                # It is what we announce: answers come to it.
                which = 'say which: bind="tcp://THIS-HOST:0", or --bind tcp://THIS-HOST:0'
                reason = f"bind must be an address at which the peers reach this node; {which}"
                raise TransportError("TRANSPORT_BAD_ADDRESS", reason)
            # A node that only asks must still be reachable for the answers.
            transport = ZmqTransport(
                where or "tcp://127.0.0.1:0", identity=identity, curve=curve, server_keys=_server_keys(node.curve)
            )
        if capture is not None and not isinstance(capture, CaptureSettings):
            capture = CaptureSettings(os.fspath(capture))
        capture = capture or settings.capture
        self.capture = _capture_tap(capture, identity) if capture is not None else None
        """What records our messages, if anything does."""
        self._rendezvous_capture: CaptureTap | None = None  # another node in the capture, beside us
        is_safe = (lambda _: True) if is_open or given else _is_here
        # Also to where other nodes say that they are.
        may_go = is_safe if may_connect is None else lambda address: is_safe(address) and may_connect(address)
        membership = None
        if endpoints:
            embeds = settings.cluster.embed if embed is None else embed
            embedded = None
            if embeds:
                name = Ids().guid()
                self._rendezvous_capture = make_recorder(capture, name) if capture is not None else None
                embedded = _embedded(endpoints[0], settings, name, self._rendezvous_capture, is_open=is_open)
            membership = _membership(endpoints, where, settings, embedded, may_go)
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
            may_connect=may_go,
            membership=membership,
        )

    async def start(self) -> Self:
        """Start recording, then the node."""
        for capture in self._captures:
            capture.start()
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

    @property
    def is_joined(self) -> bool:
        """Whether this node is in a cluster: it hears a rendezvous."""
        return isinstance(self.membership, Membership) and self.membership.is_joined

    def capture_report(self) -> dict[str, Any] | None:
        """What recording did so far: seen, waiting, written, lost and so on; None if nothing is recorded."""
        return asdict(self.capture.statistics()) if self.capture is not None else None

    @property
    def _captures(self) -> list["CaptureTap"]:
        return [capture for capture in (self.capture, self._rendezvous_capture) if capture is not None]

    async def _end_capture(self) -> None:
        for capture in self._captures:
            # It waits for a thread that waits for a disk.
            await asyncio.get_running_loop().run_in_executor(None, capture.close)


def _channels(settings: Settings, on_refused: OnRefused | None = None) -> ZmqChannels:
    curve = settings.node.curve
    limits = Limits(message_bytes=CLUSTER_BYTES)
    return ZmqChannels(limits=limits, curve=_curve(curve), server_keys=_server_keys(curve), on_refused=on_refused)


def _membership(
    endpoints: list[Endpoint],
    where: str,
    settings: Settings,
    embedded: Embedded | None,
    may_connect: Callable[[str], bool],
) -> Membership:
    host = _host(where) or "127.0.0.1"
    membership = Membership(
        endpoints,
        _channels(settings, lambda *what: membership.on_refused(*what)),  # noqa: PLW0108 - it is not made yet
        health_bind=settings.cluster.health_bind or f"tcp://{f'[{host}]' if ':' in host else host}:0",
        settings=settings.cluster,
        may_connect=may_connect,
        random=Random().random,  # noqa: S311 - to spread things out
        embedded=embedded,
    )
    return membership


def _embedded(
    endpoint: Endpoint, settings: Settings, identity: bytes, recorder: "CaptureTap | None", *, is_open: bool
) -> Embedded:
    settings = msgspec.structs.replace(
        settings,
        rendezvous=RendezvousSettings(bind=endpoint.text),
        node=msgspec.structs.replace(settings.node, plain_tcp=is_open),
    )
    recorders = [recorder] if recorder is not None else []
    return Embedded(lambda: make_rendezvous(settings, identity=identity, recorders=recorders))


def make_rendezvous(
    settings: Settings,
    *,
    identity: bytes | None = None,
    clock: Clock | None = None,
    recorders: Iterable[Recorder] = (),
) -> Rendezvous:
    """A rendezvous as it is configured, not started yet; of [node] only `plain_tcp` and `curve` matter to it.

    >>> make_rendezvous(Settings()).settings.bind
    'tcp://127.0.0.1:8011'

    Raises TransportError if nodes could not reach it, or only without encryption, as for nodes.
    """
    rendezvous = settings.rendezvous or RendezvousSettings()
    bound = [address for address in (*rendezvous.bind_addresses, rendezvous.partner_bind, rendezvous.synod) if address]
    named = [address for text in rendezvous.nodes for address in read_endpoint(text) if address]
    _check_open([*bound, *rendezvous.members, *rendezvous.partners, *named], is_open=_is_open(settings))
    if any(map(_is_everywhere, bound)):
        # It is what nodes and the other rendezvous are told.
        raise TransportError("TRANSPORT_BAD_ADDRESS", "a rendezvous must be bound to addresses at which nodes reach it")
    made = Rendezvous(
        rendezvous,
        _channels(settings, lambda *what: made.on_refused(*what)),  # noqa: PLW0108 - it is not made yet
        clock=clock or LoopClock(),
        random=Random().random,  # noqa: S311 - to spread things out
        identity=identity,
        recorders=recorders,
    )
    return made


def make_recorder(settings: CaptureSettings, identity: bytes) -> "CaptureTap":
    """What records at a rendezvous, at its two points: those that are configured are points of nodes.

    `start` it before the rendezvous, and `close` it afterwards.
    """
    return _capture_tap(msgspec.structs.replace(settings, points=None), identity, RENDEZVOUS_POINTS)


async def survey(
    settings: Settings, endpoints: Iterable[Endpoint], seconds: float, *, are_ours: bool | None = None
) -> list[Asked]:
    """Ask rendezvous, and those that they name, how they are, if they are Hopline's."""
    may_connect = (lambda _: True) if _is_open(settings) else _is_here
    return await Survey(_channels(settings), are_ours=are_ours, may_connect=may_connect).ask(endpoints, seconds)


def _capture_tap(settings: CaptureSettings, identity: bytes, usual: Collection[str] = ()) -> "CaptureTap":
    try:
        from hopline.capture.tap import DEFAULT_POINTS, CaptureTap  # noqa: PLC0415 - an extra
        from hopline.capture.writer import Limits  # noqa: PLC0415
    except ModuleNotFoundError as error:
        reason = f"a capture needs {error.name}: pip install 'hopline[columnar]'"
        raise InputError("INPUT_BAD_CONFIG", reason) from None
    limits = Limits(settings.segment_bytes, settings.segment_seconds, settings.keep_bytes, settings.keep_seconds)
    points = settings.points
    if points is not None and (unknown := set(points) - POINTS - {"all"}):
        reason = f"no such point: {', '.join(sorted(unknown))}; there are {', '.join(sorted(POINTS))}"
        raise InputError("INPUT_BAD_CONFIG", f"[capture]: {reason}")
    try:
        return CaptureTap(
            settings.path,
            owner=identity,
            points=(usual or DEFAULT_POINTS) if points is None else POINTS if "all" in points else points,
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


def _is_open(settings: Settings) -> bool:
    """Whether connections may leave this machine: encrypted, or because it was asked for."""
    return settings.node.curve is not None or settings.node.plain_tcp


def _check_open(addresses: Iterable[str], *, is_open: bool) -> None:
    """Raise TransportError if an address leaves this machine and may not."""
    for address in filter(None, addresses):
        if not (is_open or _is_here(address)):
            remedy = "configure [node.curve], or say plain_tcp=True or --plain-tcp"
            reason = f"{address} leaves this machine without encryption: {remedy}"
            raise TransportError("TRANSPORT_BAD_ADDRESS", reason)


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
