"""A crew: several Spark jobs at once, because planning one leaves the workers of the others idle.

Spark plans each job on the thread that asks for it, and for small tables that is most of the time. This file knows no job.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Final

AT_ONCE: Final = 3
"""Jobs at once: with more, two cores were no faster, and shuffles of more jobs lie on the disk at a time."""


def together(jobs: Iterable[Callable[[], object]], at_once: int = AT_ONCE) -> None:
    """Do jobs, some at once, begun in their order. If one fails, no further one is begun, and its error is raised.

    No further one is begun either if whoever waits is interrupted.

    >>> done = []
    >>> together([lambda: done.append("a"), lambda: done.append("b")], at_once=1)
    >>> done
    ['a', 'b']
    """
    with ThreadPoolExecutor(at_once) as pool:
        try:
            done = wait([pool.submit(job) for job in jobs], return_when=FIRST_EXCEPTION).done
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    for future in done:
        future.result()
