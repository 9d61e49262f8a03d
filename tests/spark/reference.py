"""What the captures of the reference network say, asked of their JSON lines with the row codec: no Spark, no Arrow."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from hopline.flow import is_answer, message_uid
from hopline.payload.service import SERVICE_PREFIX
from hopline.wire import Message, decode

FILES = Path(__file__).resolve().parents[3] / "shared" / "captures"
ZEROS = b"00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Line:
    """One line of a file: who saw which message, when and in which direction."""

    file: str
    node: str
    direction: str
    seen_ns: int
    message: Message

    @property
    def uid(self) -> bytes:
        return message_uid(self.message)

    @property
    def flow(self) -> str:
        return self.message.correlation_id.decode()


@cache
def lines(pattern: str = "*") -> tuple[Line, ...]:
    """The lines of some files."""
    paths = sorted(FILES.glob(f"{pattern}.jsonl"))
    if not paths:
        pytest.skip("reference captures are not part of the project")
    return tuple(_line(path.stem, json.loads(text)) for path in paths for text in path.read_text().splitlines())


def _line(file: str, said: dict) -> Line:
    message = decode([bytes.fromhex(frame) for frame in said["frames"]]).message
    return Line(file, said["node"], said["direction"], said["seen_ns"], message)


def flows() -> dict[str, list[Line]]:
    """The sightings of each flow, in the order of the files."""
    found: dict[str, list[Line]] = {}
    for line in lines():
        if line.message.correlation_id not in (b"", ZEROS):
            found.setdefault(line.flow, []).append(line)
    return found


def requests() -> dict[tuple[bytes, int], Line]:
    """The first sighting of each request, by hub and key: on its way out, if its node was captured."""
    found: dict[tuple[bytes, int], Line] = {}
    for line in sorted(lines(), key=lambda each: (each.direction == "in", each.seen_ns)):
        message = line.message
        if message.callback_points and message.type not in message.callback_points:
            found.setdefault((message.callback_receiver_identity, message.callback_key), line)
    return found


def answers(request: Line) -> list[Line]:
    """The sightings of what answers a request: at its node if it was seen to leave there, else anywhere."""
    found = [line for line in lines() if is_answer(line.message, request.message)]
    if request.direction == "out":
        return [line for line in found if (line.node, line.direction) == (request.node, "in")]
    return found


def is_control(line: Line) -> bool:
    return line.message.identity.startswith(SERVICE_PREFIX) and line.message.correlation_id == ZEROS
