"""A real Spark cluster on this machine: a master and workers as processes, from the PySpark package, on loopback.

Each process leads a group of its own, so that a worker and what it has started can be ended together, and nothing else.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyspark

from hopline.spark.session import java_home

HOME = Path(pyspark.__file__).parent
PORTS = ["--port", "0", "--webui-port", "0"]  # any that is free
LOST = "Telling app of lost worker"
SOON = "-XX:TieredStopAtLevel=1"
"""For a JVM that does not live long enough to be made fast."""

SETTINGS = f"""\
spark.executor.memory 512m
spark.executor.extraJavaOptions {SOON}
spark.driver.host 127.0.0.1
"""


class Daemon:
    """A master or a worker."""

    def __init__(self, log, kind, *words, env):
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", *words],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def says(self, pattern, seconds=120.0):
        """Wait until its log says something; returns what was found."""
        return until(lambda: re.search(pattern, self.log.read_text(errors="replace")), seconds, self.log)

    def kill(self):
        """End it and all of its group, at once."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            self.process.wait(30)


def until(look, seconds, what):
    """What a look finds, when it finds something. Nobody tells when a process writes: it is looked for, with a bound."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"nothing in {what}"
        time.sleep(0.02)
    return found


class Standalone:
    """A master and some workers, each with one core and a gigabyte."""

    def __init__(self, place: Path, workers: int = 2):
        self.place = place
        settings = place / "conf"
        settings.mkdir()
        (settings / "spark-defaults.conf").write_text(SETTINGS)
        self.env = os.environ | {
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(HOME),
            "SPARK_CONF_DIR": str(settings),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(place / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": SOON,
            "PYSPARK_PYTHON": sys.executable,
        }
        self.workers: list[Daemon] = []
        self.master = Daemon(place / "master.log", "master.Master", *PORTS, env=self.env)
        try:
            self.address = self.master.says(r"Starting Spark master at (spark://\S+)")[1]
            self.workers += [self._worker(number) for number in range(workers)]
            for worker in self.workers:
                worker.says("Successfully registered with master")
        except BaseException:
            self.stop()
            raise

    def _worker(self, number: int) -> Daemon:
        words = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.work(number)), self.address]
        return Daemon(self.place / f"worker{number}.log", "worker.Worker", *PORTS, *words, env=self.env)

    def kill(self, number: int) -> None:
        """End a worker and its executors, at once; returns when the master has noticed."""
        lost = len(self.master.log.read_text().split(LOST))
        self.workers[number].kill()
        until(lambda: len(self.master.log.read_text().split(LOST)) > lost, 120, self.master.log)

    def revive(self, number: int) -> None:
        """Let there be another worker in the place of one that was killed."""
        self.workers[number] = self._worker(number)
        self.workers[number].says("Successfully registered with master")

    def said_by(self, number: int) -> str:
        """What the executors of a worker said so far, of all applications in turn."""
        logs = sorted(self.work(number).glob("*/*/stderr"))
        return "".join(log.read_text(errors="replace") for log in logs)

    def done_by(self, number: int) -> int:
        """How many tasks the executors of a worker have done so far."""
        return self.said_by(number).count("Finished task")

    def work(self, number: int) -> Path:
        """Where a worker keeps what its executors say."""
        return self.place / f"work{number}"

    def stop(self):
        for daemon in (*self.workers, self.master):
            daemon.kill()
