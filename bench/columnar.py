"""Columnar decode against copying the same Arrow batch."""

from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from bench.timing import Case
from bench.wire import KINO, SAMPLE, for_format
from hopline.wire import FormatName, encode
from hopline.wire.columnar import MESSAGE_SCHEMA, decode_batch

MESSAGES = 20_000
TARGETS = {"v6": 2.0, "v5": 4.0}


def batch(*formats: FormatName) -> pa.Array:
    """Frame lists of messages that differ in what differs in life, the formats in turn."""
    rows = []
    for i in range(MESSAGES):
        format = formats[i % len(formats)]
        message = KINO.sign(msgspec.structs.replace(SAMPLE, callback_key=i, correlation_id=b"%036d" % i))
        rows.append(encode(for_format(message, format), format))
    return pa.array(rows, pa.list_(pa.binary()))


def cases() -> list[Case]:
    """All columnar cases, each after its yardstick."""
    found = []
    kinds: dict[str, tuple[FormatName, ...]] = {
        "v6": ("v6",),
        "v5": ("v5",),
        "v5 and v6": ("v5", "v6"),
        "all four": ("v3", "v4", "v5", "v6"),
    }
    for name, formats in kinds.items():
        rows = batch(*formats)
        every = pa.array(range(len(rows)), pa.int64())
        found += [
            Case("columnar", f"{name}, copy", partial(pc.take, rows, every), MESSAGES),
            Case(
                "columnar",
                name,
                partial(decode_batch, rows),
                MESSAGES,
                yardstick=f"{name}, copy",
                target_us=TARGETS.get(name),
            ),
        ]
        if name == "v6":
            narrow = [column for column in MESSAGE_SCHEMA.names if column != "body"]
            found.append(
                Case(
                    "columnar",
                    "v6 without body",
                    partial(decode_batch, rows, columns=narrow),
                    MESSAGES,
                    yardstick=f"{name}, copy",
                )
            )
    return found
