"""The signatures of the reference: every signed vector and capture, where that folder exists."""

import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from hopline.security import Domain, Keyring, Verdict, kino_input
from hopline.wire import decode, encode

SHARED = Path(__file__).resolve().parents[3] / "shared"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the reference vectors are not part of the project")


def lines(folder, pattern):
    for path in sorted((SHARED / folder).glob(pattern)):
        for line in path.read_text().splitlines():
            yield path.name, json.loads(line)


def frames_of(item):
    return [bytes.fromhex(frame) for frame in item["frames"]]


def test_all_47_signed_vectors_verify_and_sign_to_the_same_bytes():
    signed = [item for _, item in lines("vectors", "v*.jsonl") if "signing" in item]
    assert len(signed) == 47
    for item in signed:
        signing = item["signing"]
        algorithm = signing["algorithm"].removeprefix("hmac-")
        keyring = Keyring([Domain(signing["domain"], (bytes.fromhex(signing["key"]),), "kino", algorithm)])
        decoded = decode(frames_of(item))
        assert kino_input(decoded.message).hex() == signing["input"], item["case"]
        assert keyring.verify(decoded) is Verdict.VALID, item["case"]
        again = keyring.sign(msgspec.structs.replace(decoded.message, signature=b""))
        assert encode(again, decoded.format, decoded.variant) == frames_of(item), item["case"]


def test_every_signed_message_of_the_hmac_captures_is_valid():
    keyring = Keyring([Domain(letter * 30, (letter.encode() * 16,), scheme="kino") for letter in "AB"])
    verdicts = Counter(keyring.verify(decode(frames_of(item))) for _, item in lines("captures", "*hmac*.jsonl"))
    assert set(verdicts) == {Verdict.VALID, Verdict.UNSIGNED}
    assert verdicts[Verdict.VALID] == 222
