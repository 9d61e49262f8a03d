"""All processes of a peer: what they cost, and that none is left behind. Linux only: it reads /proc.

A peer is more than its client: a responder, a broker, Ray's five daemons, Thespian's admin, which leaves its session and
its parent. So client and runner ask the kernel for their orphans (`adopt_orphans`), and the family is complete: every
process that descends from them.
"""

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
TICK = 1 / os.sysconf("SC_CLK_TCK")


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, however it has detached itself."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def family() -> dict[int, float]:
    """This process and all that descend from it, with the CPU seconds of each and of its children that have ended."""
    parents, seconds = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                parents[int(entry.name)] = int(fields[1])
                seconds[int(entry.name)] = sum(map(int, fields[11:15])) * TICK
    found, new = set[int](), {os.getpid()}
    while new:
        found |= new
        new = {pid for pid, parent in parents.items() if parent in new}
    return {pid: seconds[pid] for pid in found}


def cpu_seconds() -> float:
    """User and system time of the whole family until now."""
    return sum(family().values())


class Others:
    """How many cores are not ours, from now on: taken by processes that are no children of this one, or by the host.

    It matters even for CPU time: on a core that they share, two processes wake each other more cheaply than across cores.
    """

    def __init__(self) -> None:
        self._wall, self._busy = time.monotonic(), self._busy_seconds()

    @staticmethod
    def _busy_seconds() -> float:
        user, nice, system, _idle, _iowait, *rest = map(int, Path("/proc/stat").read_text().split()[1:9])
        ours = resource.getrusage(resource.RUSAGE_CHILDREN)  # of those that have ended: `end_family` has seen to that
        return (user + nice + system + sum(rest)) * TICK - ours.ru_utime - ours.ru_stime

    def cores(self) -> float:
        return max(0.0, (self._busy_seconds() - self._busy) / (time.monotonic() - self._wall))


@contextmanager
def responder(address: str) -> Iterator[str]:
    """The other end in a process of its own: this same command with `--serve`. Gives the address once it is ready."""
    command = [sys.executable, *sys.orig_argv[1:], "--serve", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == "ready\n", "the responder did not start"
            yield address
        finally:
            process.terminate()


def end_family(seconds: float = 10.0) -> None:
    """End all that descends from this process, and wait until it is gone."""
    deadline = time.monotonic() + seconds
    while rest := family().keys() - {os.getpid()}:
        for pid in rest:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes that do not end: {sorted(rest)}")
        time.sleep(0.01)


def program(name: str) -> str | None:
    """Where a program is; Debian keeps servers where users do not look."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
