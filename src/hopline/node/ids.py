"""New identities: 36 characters of GUID text, as reference nodes make them, from randomness drawn in blocks.

One system call for each identity, and `str(uuid4())`, would be a third of the cost of a small message.
"""

import os
from typing import Final

from hopline.identity import ACTOR_PREFIX, HUB_PREFIX

_BLOCK: Final = 256


class Ids:
    """A source of identities and nonces."""

    def __init__(self) -> None:
        self._pool = b""
        self._at = 0

    def random(self) -> bytes:
        """16 random bytes, never the same twice."""
        at = self._at
        if at >= len(self._pool):
            self._pool = os.urandom(16 * _BLOCK)
            at = 0
        self._at = at + 16
        return self._pool[at : at + 16]

    def guid(self) -> bytes:
        """GUID text, lower case with dashes."""
        text = self.random().hex()
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{text[16:20]}-{text[20:]}".encode()

    def hub(self) -> bytes:
        """An identity for a hub."""
        return HUB_PREFIX + self.guid()

    def actor(self) -> bytes:
        """An identity for an actor."""
        return ACTOR_PREFIX + self.guid()
