"""Why Spark failed, in one line.

What Spark raises holds pages: what py4j was calling, the Java exception, its trace, its cause, the trace of that, and
somewhere among them what a Python worker said. Of all these lines one tells a person what to do. It is, in this order,

    ours               hopline.errors.CaptureError: cannot read segment ...     whoever raised it has chosen its words
    the last cause     Caused by: java.io.IOException: No space left on device
                       or, if a Python worker failed after that, the line below its traceback
    the exception      : org.apache...Exception: Parent path is not ...         follows what py4j was calling
    the first line     [PATH_NOT_FOUND] Path does not exist: ...                Spark's own words for its users

A cause that stands further in is one of what was suppressed: something else that went wrong meanwhile. This file knows
neither Spark nor jobs: it reads text.
"""

from collections.abc import Iterator
from typing import Final

_CAUSE: Final = "Caused by: "
_TRACEBACK: Final = "Traceback (most recent call last):"
_JAVA: Final = ": "
"""How py4j begins the line of the Java exception."""


def reason_of(error: BaseException) -> str:
    r"""The line of a failure that says why.

    >>> reason_of(ValueError("An error occurred while calling o7.parquet.\n: a.B: broken\nCaused by: a.C: full"))
    'a.C: full'
    """
    lines = str(error).splitlines()
    ours = (line.strip() for line in lines if line.strip().startswith("hopline.") and "Error: " in line)
    *_, cause = ("", *_causes(lines))
    java = (line.removeprefix(_JAVA) for line in lines[1:] if line.startswith(_JAVA))
    first = (line.strip() for line in lines if line.strip())
    return next(ours, "") or cause or next(java, "") or next(first, type(error).__name__)


def _causes(lines: list[str]) -> Iterator[str]:
    """What is named as a cause, or was raised by Python; the last of them began it all."""
    is_python = False
    for line in lines:
        if line.endswith(_TRACEBACK):
            is_python = True
        elif line.startswith(_CAUSE):
            is_python = False
            yield line.removeprefix(_CAUSE).strip()
        elif is_python and line.strip() and not line[0].isspace():  # calls are indented, and what was raised is not
            is_python = False
            yield line.strip()
