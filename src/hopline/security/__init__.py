"""Domains, keys and signatures. No I/O, no clock: time, randomness and the text of a key file come in as arguments."""

from hopline.security.domains import ROUTING_CONTROL, Domain, Domains
from hopline.security.keyring import Keyring, Verdict, read_key, read_keys
from hopline.security.mac import (
    NONCE_SIZE,
    Algorithm,
    FullSignature,
    Mac,
    Scheme,
    full_input,
    kino_input,
    read_full,
    write_full,
)
from hopline.security.replay import ReplayWindow

__all__ = [
    "NONCE_SIZE",
    "ROUTING_CONTROL",
    "Algorithm",
    "Domain",
    "Domains",
    "FullSignature",
    "Keyring",
    "Mac",
    "ReplayWindow",
    "Scheme",
    "Verdict",
    "full_input",
    "kino_input",
    "read_full",
    "read_key",
    "read_keys",
    "write_full",
]
