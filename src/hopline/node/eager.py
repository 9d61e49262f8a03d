"""Run a coroutine's first step at once, and make a task only if it suspends.

Most handlers answer without waiting for anything. A task for each would be most of the cost of a message inside one
process (4 to 9 us of about 10). Python 3.12 has eager tasks; on 3.11 the first step runs outside any task, so a stand-in
takes the place of the current task: `asyncio.timeout()` and task groups ask for it, and what they ask of it later reaches
the real task.
"""

import asyncio
import sys
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

Subject = TypeVar("Subject")
Done = Callable[[Subject, Any, BaseException | None], None]
"""Called when the coroutine has ended, with what it was about, its result and its error."""


if sys.version_info >= (3, 12):

    def run_eagerly(
        coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop, done: Done[Subject], subject: Subject
    ) -> asyncio.Task[Any] | None:
        """Run a coroutine and call `done(subject, result, error)` at its end; returns its task if it did not end at once."""
        task = asyncio.Task(coroutine, loop=loop, eager_start=True)
        if task.done():
            _report(task, done, subject)
            return None
        task.add_done_callback(lambda ended: _report(ended, done, subject))
        return task

else:
    # What Task itself uses around each step, by `_enter_task` and `_leave_task`.
    _current_tasks: dict[asyncio.AbstractEventLoop, Any] = asyncio.tasks._current_tasks  # type: ignore[attr-defined]  # noqa: SLF001

    def run_eagerly(
        coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop, done: Done[Subject], subject: Subject
    ) -> asyncio.Task[Any] | None:
        """Run a coroutine and call `done(subject, result, error)` at its end; returns its task if it did not end at once."""
        caller = _current_tasks.get(loop)
        _current_tasks[loop] = stand_in = _StandIn()
        try:
            waits_for = coroutine.send(None)
        except StopIteration as stop:
            result, error = stop.value, None
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - handed to `done`
            result, error = None, raised
        else:
            task = loop.create_task(_go_on(coroutine, waits_for))
            stand_in.task = task
            task.add_done_callback(lambda ended: _report(ended, done, subject))
            return task
        finally:
            if caller is None:
                del _current_tasks[loop]
            else:
                _current_tasks[loop] = caller
        done(subject, result, error)
        return None


def _report(task: asyncio.Task[Any], done: Done[Subject], subject: Subject) -> None:
    if task.cancelled():
        done(subject, None, asyncio.CancelledError())
    elif (error := task.exception()) is not None:
        done(subject, None, error)
    else:
        done(subject, task.result(), None)


@types.coroutine
def _go_on(coroutine: Coroutine[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:  # noqa: ANN401
    """Drive a coroutine that has already been started and waits for something."""
    try:
        while True:
            try:
                value = yield waits_for
            except BaseException as error:  # noqa: BLE001 - whatever the task throws in belongs to the coroutine
                waits_for = coroutine.throw(error)
            else:
                waits_for = coroutine.send(value)
    except StopIteration as stop:
        return stop.value


class _StandIn:
    """Stands for the task that there is not yet."""

    task: asyncio.Task[Any] | None = None

    def cancel(self, msg: object = None) -> bool:
        """Cancel the real task; before there is one nothing can be waiting for it."""
        return self.task.cancel(msg) if self.task is not None else False

    def cancelling(self) -> int:
        """How often the real task was asked to end."""
        return self.task.cancelling() if self.task is not None else 0

    def uncancel(self) -> int:
        """Take one such request back."""
        return self.task.uncancel() if self.task is not None else 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a task has
        return getattr(self.task, name)
