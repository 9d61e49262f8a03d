import platform
import subprocess
import sys

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


def test_java_is_where_java_home_says(hopline, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java = hopline("doctor").lines[0]["checks"][-1]
    assert java["works"] is False
    assert str(tmp_path) in java["found"]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch(0o755)
    java = hopline("doctor").lines[0]["checks"][-1]
    assert java["works"] is True
    assert java["found"] == f"{tmp_path}/bin/java (JAVA_HOME)"


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
