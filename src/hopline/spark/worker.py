"""A Python worker of Spark: what is done once in its life, before its first task. It lives for many of them.

    garbage    PySpark collects it after every task, and then Python looks through all that is loaded, ours and PySpark's
               own: 35 ms, and none of it will ever be garbage. So what is there before the first task is put aside
    memory     the C library hands back what is free above twice the largest piece that it ever got back, and the system
               clears each page that is asked for again: 60 000 of them for six columns of 400 000 messages, and 7000 once
               a piece of `_KEPT_BYTES` was freed

This file knows no task.
"""

import gc
from functools import cache
from typing import Final

import numpy as np
from pyspark import TaskContext

_KEPT_BYTES: Final = 24 * 1024 * 1024
"""Memory that a worker keeps between batches. Pieces above 32 MiB would not count."""


@cache
def settle() -> None:
    """Do both; only the first call in a process does something, and only in a worker: other processes are not ours.

    Garbage not for each task again: what belongs to a task must stay collectable.
    """
    if TaskContext.get() is None:
        return
    gc.freeze()
    np.empty(_KEPT_BYTES, np.uint8)  # nobody touches it, so it costs nothing
