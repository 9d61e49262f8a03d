"""The page: what is written to it comes out as records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopline.capture.page import FULL_BYTES, Page
from hopline.capture.record import DIRECTIONS, TAP_CODES, Records

together = st.integers(0, 6).flatmap(
    lambda frames: st.lists(st.lists(st.binary(max_size=30), min_size=frames, max_size=frames), min_size=1, max_size=5)
)
groups = st.lists(st.tuples(together, st.sampled_from(list(DIRECTIONS)), st.integers(-(2**62), 2**62)))


@given(groups)
def test_groups_are_the_records_one_by_one(groups: list) -> None:
    page = Page()
    page.ahead_ns = 1000
    expected = Records(seen_ns=[], seq=[], tap=[], frames=[], node="N1", mono_ns=[])
    for together, tap, mono_ns in groups:
        seq = len(expected) + 7
        size = page.write(together, mono_ns, seq, TAP_CODES[tap])
        assert size == sum(len(frame) for frames in together for frame in frames)
        for number, frames in enumerate(together, seq):
            for column, value in zip(
                (expected.seen_ns, expected.seq, expected.tap, expected.frames, expected.mono_ns),
                (mono_ns + 1000, number, tap, frames, mono_ns),
                strict=True,
            ):
                column.append(value)  # type: ignore[union-attr]
    records = page.records("N1")
    assert len(page) == len(records) == len(expected)
    assert records.counts() == expected.counts()
    batch = records.to_batch()
    batch.validate(full=True)
    assert batch == expected.to_batch()


@pytest.mark.parametrize("bad", [[b"", b"", b"x", None], [b"", b"", b"x", "text"]])
def test_what_could_not_be_written_is_torn_out(bad: list) -> None:
    page, good, longer = Page(), [b"a", b"bc", b"def", b""], [b"g", b"", b"h", b"ij", b"k"]
    page.write([longer], 1, 1, 0)
    with pytest.raises(TypeError):
        page.write([good, bad], 2, 2, 0)
    page.tear()
    assert len(page) == 1
    page.write([good, good], 3, 4, 0)
    assert page.records("N1").to_batch()["frames"].to_pylist() == [longer, good, good]


def test_a_page_that_somebody_reads_is_not_cleared() -> None:
    page = Page()
    page.write([[b"", b"", b"x", b"y"]], 1, 1, 0)
    records = page.records("N1")
    assert not page.clear()
    del records
    assert page.clear()
    assert len(page) == 0


def test_a_page_that_has_become_too_large_is_not_kept() -> None:
    page = Page()
    page.write([[b"", b"", bytes(FULL_BYTES), b""]], 1, 1, 0)
    assert page.is_full
    page.write([[b"", b"", bytes(FULL_BYTES + 1), b""]], 1, 1, 0)
    assert not page.clear()
