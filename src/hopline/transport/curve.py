"""CURVE: who may connect to us, and which key we expect behind an address.

The frontend of a node is the server: it asks, for every connection, the doorkeeper whether the key of the client is known.
The doorkeeper speaks ZAP (ZeroMQ RFC 27) at the address that libzmq knows, inside of our own context, on the event loop.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import zmq
from zmq.utils import z85

from hopline.errors import TransportError
from hopline.transport.sockets import NOW, Inlet, Socket

BAD_KEY: Final = "TRANSPORT_BAD_KEY"

_ZAP: Final = "inproc://zeromq.zap.01"
_REQUESTS_A_TURN: Final = 64


@dataclass(frozen=True, slots=True)
class Curve:
    """The keys of a node, as 40 characters of Z85 like `zmq.curve_keypair()` gives them.

    Attributes:
        public_key: what other nodes must know of us.
        secret_key: never shown, not even in a repr.
        allowed_keys: public keys that may connect to us. Nobody else may, so without any nobody can.
    """

    public_key: bytes
    secret_key: bytes = field(repr=False)
    allowed_keys: frozenset[bytes] = frozenset()

    def __post_init__(self) -> None:
        for name, key in [
            ("public_key", self.public_key),
            ("secret_key", self.secret_key),
            *(("allowed_keys", key) for key in self.allowed_keys),
        ]:
            check_key(name, key)

    def serve(self, socket: Socket) -> None:
        """Let a socket that will be bound take connections of known keys only."""
        socket.curve_secretkey = self.secret_key
        socket.curve_publickey = self.public_key
        socket.curve_server = True
        socket.zap_domain = b"hopline"

    def join(self, socket: Socket, server_key: bytes) -> None:
        """Let a socket that will connect expect this key at the other end."""
        socket.curve_secretkey = self.secret_key
        socket.curve_publickey = self.public_key
        socket.curve_serverkey = server_key


def check_key(name: str, key: bytes) -> None:
    """Raise TransportError unless this is a CURVE key."""
    try:
        is_key = len(key) == 40 and len(z85.decode(bytes(key))) == 32
    except (KeyError, ValueError, TypeError):
        is_key = False
    if not is_key:
        raise TransportError(BAD_KEY, f"{name} is not a CURVE key: 40 characters of Z85, as zmq.curve_keypair() makes them")


class Doorkeeper:
    """Answers libzmq whether a key may come in."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, context: "zmq.Context[Socket]", curve: Curve, refused: Callable[[], None]
    ) -> None:
        self._allowed = {z85.decode(key) for key in curve.allowed_keys}
        self._refused = refused
        self._socket: Socket = context.socket(zmq.REP)
        self._socket.linger = 0
        self._socket.bind(_ZAP)
        self._inlet = Inlet(loop, self._socket, self._take, _REQUESTS_A_TURN)
        self._inlet.open()

    def close(self) -> None:
        """Let nobody in any more."""
        self._inlet.close()
        self._socket.close()

    def _take(self) -> bool:
        try:
            version, request_id, _domain, _address, _identity, mechanism, *credentials = self._socket.recv_multipart(NOW)
        except zmq.Again:
            return False
        is_known = mechanism == b"CURVE" and credentials[0] in self._allowed
        status = (b"200", b"OK") if is_known else (b"400", b"unknown key")
        self._socket.send_multipart([version, request_id, *status, b"", b""], NOW)
        if not is_known:
            self._refused()
        return True
