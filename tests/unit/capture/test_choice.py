"""Which messages a tap records."""

import pytest

from hopline.capture.choice import Choice, is_sampled
from hopline.wire import Message, encode

ORDER = Message(identity=b"ORDER.PLACE", version=1, correlation_id=b"c1")


def test_without_wishes_it_takes_all() -> None:
    assert Choice().takes_all
    assert Choice().takes(Message())


@pytest.mark.parametrize(
    ("patterns", "identity", "is_taken"),
    [
        (["ORDER.*"], b"ORDER.PLACE", True),
        (["ORDER.*"], b"ORDERS", False),
        (["order.*"], b"ORDER.PLACE", False),
        (["PRICE", "ORDER.PLACE"], b"ORDER.PLACE", True),
        (["*.PLACE"], b"ORDER.PLACE", True),
        (["?RDER.PLACE"], b"ORDER.PLACE", True),
        (["ORDER"], b"ORDER.PLACE", False),
        (["0x00ff"], b"\x00\xff", True),
        (["0x*"], b"\x00\xff", True),
        (["*"], b"", True),
    ],
)
def test_identities_by_pattern(patterns: list[str], identity: bytes, is_taken: bool) -> None:
    choice = Choice(identities=patterns)
    assert not choice.takes_all
    for _ in range(2):  # asked for, then remembered
        assert choice.takes(Message(identity=identity)) is is_taken


def test_ever_new_identities_do_not_fill_the_memory() -> None:
    choice = Choice(identities=["KNOWN.*"])
    for number in range(10_000):
        assert not choice.takes(Message(identity=b"%d" % number))
    assert choice.takes(Message(identity=b"KNOWN.1"))
    assert len(choice._identities._answers) <= 4096  # noqa: SLF001 - the bound is a promise


def test_one_pattern_must_not_come_as_a_text() -> None:
    with pytest.raises(TypeError, match="list"):
        Choice(identities="ORDER.*")


def test_domains_are_those_of_the_frames_where_there_are_any() -> None:
    choice = Choice(domains=["orders"])
    bare = Message(identity=b"X", version=1)
    assert not choice.takes(bare)
    assert choice.takes(Message(domain="orders"))
    assert choice.takes(bare, encode(Message(identity=b"X", version=1, domain="orders")))
    assert not choice.takes(Message(domain="orders"), encode(bare))
    assert not choice.takes(Message(domain="orders"), [b"junk"])


def test_all_wishes_must_be_met() -> None:
    choice = Choice(identities=["ORDER.*"], domains=["orders"])
    assert choice.takes(Message(identity=b"ORDER.PLACE", domain="orders"))
    assert not choice.takes(Message(identity=b"PRICE", domain="orders"))
    assert not choice.takes(Message(identity=b"ORDER.PLACE", domain="prices"))


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("form", [b"%036d", b"%d", b"00000000-0000-4000-8000-%012x"])
def test_a_sample_is_about_as_large_as_asked_for(share: float, form: bytes) -> None:
    count = 20_000
    taken = sum(is_sampled(form % number, share) for number in range(count))
    assert abs(taken - share * count) < 6 * (share * (1 - share) * count) ** 0.5


def test_a_flow_is_taken_as_a_whole_and_everywhere() -> None:
    here, there = Choice(sample=0.5), Choice(sample=0.5)
    for number in range(100):
        flow = [Message(identity=b"%d" % step, correlation_id=b"%036d" % number) for step in range(3)]
        assert len({choice.takes(message) for choice in (here, there) for message in flow}) == 1


def test_a_larger_sample_holds_the_smaller_one() -> None:
    for number in range(1000):
        if is_sampled(b"%d" % number, 0.1):
            assert is_sampled(b"%d" % number, 0.3)


def test_all_and_none() -> None:
    assert not Choice(sample=0).takes(ORDER)
    assert Choice(sample=1).takes(ORDER)


@pytest.mark.parametrize("sample", [-0.1, 1.1, float("nan")])
def test_a_share_is_from_0_to_1(sample: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        Choice(sample=sample)


@pytest.mark.parametrize(("sample", "mark"), [(1, ""), (0.9999, "s999"), (0.25, "s250"), (0.0001, "s0")])
def test_a_run_that_leaves_out_anything_says_so(sample: float, mark: str) -> None:
    assert Choice(sample=sample).mark == mark
