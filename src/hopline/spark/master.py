"""The master: where Spark runs, as a word of the user. Which words there are, and whether somebody is there.

    local   local[4]   local[*]   local[4,3]      on this machine: with so many threads, and so many attempts at a task
    local-cluster[2,1,1024]                       workers as processes of this machine, for tests of Spark itself
    spark://host:7077   spark://a:7077,b:7077     a master of Spark's own; of several one leads
    yarn   k8s://...                              somebody else's cluster

Spark finds out only when its JVM has started, and says it with a page of Java; it asks for a master that is not there again
and again, for a minute. So it is looked at before. This file starts nothing.
"""

import re
import socket
from typing import Final
from urllib.parse import urlsplit

from hopline.errors import SparkError

_FORMS: Final = re.compile(
    r"""
    local
    | local\[ (?: [1-9]\d* | \* ) (?: \s*,\s* [1-9]\d* )? \]
    | local-cluster\[ \s*\d+\s* , \s*\d+\s* , \s*\d+\s* \]
    | yarn
    | k8s://\S+
    """,
    re.VERBOSE | re.ASCII,
)
_SPARK: Final = "spark://"
_ANSWER_S: Final = 3.0
"""What a master has to take a connection, across any network; one that is overloaded takes it too, its system does that."""


def check_master(master: str) -> None:
    """Raise SparkError SPARK_BAD_MASTER unless this is the address of a master, as far as that can be seen.

    >>> check_master("local[*]")
    >>> check_master("local[all]")
    Traceback (most recent call last):
    hopline.errors.SparkError: 'local[all]' is no master of Spark: write local[N], spark://HOST:PORT, yarn or k8s://...
    """
    if not (_are_places(master) if master.startswith(_SPARK) else _FORMS.fullmatch(master)):
        forms = f"local[N], {_SPARK}HOST:PORT, yarn or k8s://..."
        raise SparkError("SPARK_BAD_MASTER", f"{master!r} is no master of Spark: write {forms}")


def ask_master(master: str) -> None:
    """Raise SparkError SPARK_CANNOT_START if this is a master of Spark's own, or several, and none takes a connection."""
    if not master.startswith(_SPARK):
        return
    silent = []
    for place in _places(master):
        parts = urlsplit(place)
        try:
            socket.create_connection((parts.hostname, parts.port), timeout=_ANSWER_S).close()
        except OSError as error:
            silent.append(f"{place}: {error.strerror or error}")
        else:
            return
    raise SparkError("SPARK_CANNOT_START", f"no Spark master answers at {'; '.join(silent)}")


def _are_places(master: str) -> bool:
    return all(_is_place(place) for place in _places(master))


def _is_place(place: str) -> bool:
    try:
        parts = urlsplit(place)
        return bool(parts.hostname and parts.port) and parts.netloc == place.removeprefix(_SPARK) and "@" not in place
    except ValueError:  # a port that is none
        return False


def _places(master: str) -> list[str]:
    return [_SPARK + place for place in master.removeprefix(_SPARK).split(",")]
