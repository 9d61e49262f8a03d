"""The tray: what is taken of it while more comes."""

from hopline.capture.record import FLAT
from hopline.capture.tray import Tray


def test_what_is_taken_is_what_has_its_numbers() -> None:
    tray = Tray()
    for blob in (b"first", b"second"):
        tray.blobs.append(blob)
        tray.numbers += FLAT.pack(1, 16, 0, 0, 0, len(blob))
    tray.blobs.append(b"third, whose numbers are still to come")
    numbers, data = tray.take()
    assert (len(numbers), data, len(tray)) == (2 * FLAT.size, b"firstsecond", 0)
    tray.numbers += FLAT.pack(1, 16, 0, 0, 0, len(tray.blobs[0]))
    assert tray.take()[1] == b"third, whose numbers are still to come"


def test_nothing_can_be_taken_too() -> None:
    assert Tray().take() == (bytearray(), b"")
