"""New identities: 36 characters of GUID text, as reference nodes make them, from randomness drawn in blocks.

One system call for each identity, and `str(uuid4())`, would be a third of the cost of a small message.
"""

import os
import struct
from typing import Final

from hopline.identity import ACTOR_PREFIX, HUB_PREFIX

_BLOCK: Final = 256
_GROUPS: Final = struct.Struct("8s4s4s4s12s")


class Ids:
    """A source of identities and nonces."""

    def __init__(self) -> None:
        self._random: list[bytes] = []
        self._guids: list[bytes] = []

    def random(self) -> bytes:
        """16 random bytes, never the same twice."""
        if not self._random:
            drawn = os.urandom(16 * _BLOCK)
            self._random = [drawn[at : at + 16] for at in range(0, len(drawn), 16)]
        return self._random.pop()

    def guid(self) -> bytes:
        """GUID text, lower case with dashes."""
        if not self._guids:
            text = bytearray(os.urandom(16 * _BLOCK).hex().encode())
            text[12::32] = b"4" * _BLOCK  # the version: random
            self._guids = list(map(b"-".join, _GROUPS.iter_unpack(text)))
        return self._guids.pop()

    def hub(self) -> bytes:
        """An identity for a hub."""
        return HUB_PREFIX + self.guid()

    def actor(self) -> bytes:
        """An identity for an actor."""
        return ACTOR_PREFIX + self.guid()
