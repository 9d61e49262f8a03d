"""The lease messages of real rendezvous: ours gives the same answers to the same questions, to the byte.

The captures are not part of the project (their origin is GPL); where the folder is absent these tests are skipped.
"""

import json
from pathlib import Path

import pytest

from hopline.cluster import LeaseMember
from hopline.payload import read_service
from hopline.payload.service import (
    AckReadLease,
    AckWriteLease,
    Lease,
    NackReadLease,
    NackWriteLease,
    ReadLease,
    RendezvousNode,
    WriteLease,
)
from hopline.wire import decode

CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "captures"
ANSWERS = AckReadLease, NackReadLease, AckWriteLease, NackWriteLease

pytestmark = pytest.mark.skipif(not CAPTURES.is_dir(), reason="the captures are not part of the project")


def lease_messages(name, direction):
    """Body and payload of the messages about the lease that a rendezvous sent or received, in their order."""
    for line in (CAPTURES / name).read_text().splitlines():
        record = json.loads(line)
        message = decode([bytes.fromhex(frame) for frame in record["frames"]]).message
        if record["direction"] == direction and message.identity.endswith(b"LEASE"):
            yield message.body, read_service(message.identity, message.body)


@pytest.mark.parametrize("name", ["v5_nullsec_rv.jsonl", "v6_nullsec_rv.jsonl", "v6_hmac_rv.jsonl"])
def test_answers_are_those_of_the_reference(name):
    sent = list(lease_messages(name, "out"))
    answers = [(body, payload) for body, payload in sent if isinstance(payload, ANSWERS)]
    assert len(answers) > 20
    uri = answers[0][1].sender_uri
    first = sent[0][1].ballot.timestamp_ticks
    member = LeaseMember(uri, [uri], identity=b"somebody else", payload=b"", now_ticks=first, random=lambda: 1.0)
    # Ours is asked in the place of the reference's own register, at the time of each ballot, and takes no part itself.
    ours = []
    for _, payload in sent:
        if isinstance(payload, ReadLease | WriteLease):
            ours += member.on_message(payload.ballot.timestamp_ticks, payload)
    assert [answer.write() for answer in ours] == [body for body, _ in answers]
    assert member.refused == 0
    # And it knows who leads.
    lease = next(payload.lease for _, payload in reversed(sent) if isinstance(payload, WriteLease))
    assert member.leader(lease.expires_at_ticks - 1) == lease
    assert RendezvousNode.read(lease.owner_payload).unicast_uri.endswith(":8011")


def test_what_we_ask_reads_like_what_the_reference_asks():
    body, theirs = next(lease_messages("v6_nullsec_rv.jsonl", "out"))
    identity, now = theirs.ballot.identity, theirs.ballot.timestamp_ticks
    member = LeaseMember("tcp://a", ["tcp://a"], identity=identity, payload=b"", now_ticks=now, random=lambda: 0.0)
    read, _, write, _ = member.on_time(now)
    assert read.write() == body
    assert write == WriteLease(theirs.ballot, Lease(identity, now + member.times.max_lease_ticks, b""))
