"""The choice of messages that a tap records: by identity, by domain, and by sampling whole flows.

Called for every message that a node sees, so what it has answered once it looks up. It knows messages, and nothing of
records or files.
"""

import re
import zlib
from collections.abc import Iterable
from fnmatch import translate
from typing import Final

from hopline.capture.record import key_of
from hopline.errors import DecodeError
from hopline.wire import Message
from hopline.wire.template import Templates

PART: Final = "p"
"""Behind the name of a run: it records some types or domains only."""

SHARE: Final = "s"
"""Behind the name of a run, with a number: it records so many thousandths of the flows, each of them whole."""

_MOST_ANSWERS: Final = 4096
"""Names whose answer is remembered. Names come from outside: beyond this all are forgotten, and asked for again."""

_HASHES: Final = 2**32
_MIX: Final = 0x9E3779B1
"""2**32 over the golden ratio, as Knuth's multiplicative hash has it: the CRC alone keeps patterns of counted ids."""


def is_sampled(correlation_id: bytes, share: float) -> bool:
    """Whether a flow is among the share that is recorded: all of its messages or none, and at every node alike.

    Messages that belong to no flow share one correlation id, so they stay or go together.

    >>> is_sampled(b"any", 1.0), is_sampled(b"any", 0.0)
    (True, False)
    >>> sum(is_sampled(b"%d" % i, 0.25) for i in range(10_000))
    2465
    """
    return (zlib.crc32(correlation_id) * _MIX) % _HASHES < share * _HASHES


class Choice:
    """Which messages are recorded. What is empty chooses all.

    Args:
        identities: patterns with `*` and `?`, one of which the identity must match: its text, or `0x` and hex.
        domains: the same for the domain the message is signed in. A message inside a node has none yet.
        sample: the share of flows, from 0 to 1; see `is_sampled`.

    >>> choice = Choice(identities=["ORDER.*"])
    >>> choice.takes(Message(identity=b"ORDER.PLACE")), choice.takes(Message(identity=b"PRICE"))
    (True, False)
    """

    def __init__(self, identities: Iterable[str] = (), domains: Iterable[str] = (), sample: float = 1.0) -> None:
        if not 0 <= sample <= 1:
            raise ValueError(f"sample must be from 0 to 1, and not {sample}")
        self._identities = _Names(identities)
        self._domains = _Names(domains)
        self._sample = sample
        self._templates = Templates()
        self.takes_all = not self._identities and not self._domains and sample == 1

    @property
    def mark(self) -> str:
        """What stands behind the name of a run that records so, `PART` or `SHARE`: nothing, if all is taken.

        >>> Choice(identities=["ORDER.*"]).mark, Choice(sample=0.25).mark, Choice().mark
        ('p', 's250', '')
        """
        if self._identities or self._domains:
            return PART
        # Never all thousandths: whoever reads that would miss what was left out.
        return "" if self.takes_all else f"{SHARE}{min(round(self._sample * 1000), 999)}"

    def takes(self, message: Message, frames: list[bytes] | None = None) -> bool:
        """Whether to record it. `frames` are what went over the wire, if it did: only they surely tell the domain."""
        if self._sample < 1 and not is_sampled(message.correlation_id, self._sample):
            return False
        if self._identities and not self._identities.has(message.identity):
            return False
        return not self._domains or self._domains.has(self._domain_of(message, frames).encode("utf-8", "replace"))

    def _domain_of(self, message: Message, frames: list[bytes] | None) -> str:
        if frames is None:
            return message.domain
        try:
            return self._templates.decode(frames).message.domain
        except DecodeError:
            return ""


class _Names:
    """Patterns of names, and the answers given so far."""

    def __init__(self, patterns: Iterable[str]) -> None:
        if isinstance(patterns, str):
            raise TypeError(f"patterns come as a list, and not as the one text {patterns!r}")
        self._expressions = [re.compile(translate(pattern)) for pattern in patterns]
        self._answers: dict[bytes, bool] = {}

    def __bool__(self) -> bool:
        return bool(self._expressions)

    def has(self, name: bytes) -> bool:
        answer = self._answers.get(name)
        if answer is None:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            key = key_of(name)
            answer = self._answers[name] = any(expression.match(key) for expression in self._expressions)
        return answer
