import asyncio

import pytest

from hopline.node.eager import run_eagerly


def run(make):
    """Run a coroutine eagerly inside a loop; returns (ended at once?, result, error)."""

    async def main():
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        task = run_eagerly(make(), loop, lambda future, *outcome: future.set_result(outcome), ended)
        at_once = ended.done()
        assert at_once is (task is None)
        return at_once, *await asyncio.wait_for(ended, 10)

    return asyncio.run(main())


def test_what_does_not_wait_ends_at_once():
    async def answer():
        return 42

    assert run(answer) == (True, 42, None)


def test_what_waits_becomes_a_task():
    async def answer():
        await asyncio.sleep(0)
        return 42

    assert run(answer) == (False, 42, None)


@pytest.mark.parametrize("waits", [False, True])
def test_errors_are_handed_over(waits):
    async def fail():
        if waits:
            await asyncio.sleep(0)
        raise ValueError("no")

    at_once, result, error = run(fail)
    assert (at_once, result, type(error)) == (not waits, None, ValueError)


@pytest.mark.parametrize("waits", [False, True])
def test_a_cancelled_coroutine_is_handed_over_too(waits):
    async def fail():
        if waits:
            await asyncio.sleep(0)
        raise asyncio.CancelledError

    assert isinstance(run(fail)[2], asyncio.CancelledError)


def test_a_timeout_in_the_first_step_hits_the_handler_and_not_its_caller():
    async def slow():
        async with asyncio.timeout(0.001):
            await asyncio.get_running_loop().create_future()

    at_once, _, error = run(slow)
    assert (at_once, type(error)) == (False, TimeoutError)


def test_a_task_group_in_the_first_step():
    async def one():
        await asyncio.sleep(0)
        return 1

    async def group():
        async with asyncio.TaskGroup() as tasks:
            first, second = tasks.create_task(one()), tasks.create_task(one())
        return first.result() + second.result()

    assert run(group) == (False, 2, None)


def test_a_failing_task_group_ends_its_own_coroutine():
    async def bad():
        raise ValueError("no")

    async def group():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(bad())
            await asyncio.get_running_loop().create_future()

    assert isinstance(run(group)[2], ExceptionGroup)


def test_the_callers_task_is_the_current_one_again():
    async def main():
        before = asyncio.current_task()

        async def nothing():
            return asyncio.current_task() is not before

        seen = []
        run_eagerly(nothing(), asyncio.get_running_loop(), lambda found, *outcome: found.append(outcome), seen)
        assert asyncio.current_task() is before
        return seen

    assert asyncio.run(main()) == [(True, None)]


def test_errors_thrown_in_from_outside_reach_the_coroutine():
    async def main():
        loop = asyncio.get_running_loop()
        caught = []

        async def patient():
            try:
                await loop.create_future()
            except asyncio.CancelledError:
                caught.append("cancelled")
                await asyncio.sleep(0)
                raise

        ended = loop.create_future()
        task = run_eagerly(patient(), loop, lambda future, _, error: future.set_result(error), ended)
        await asyncio.sleep(0)
        task.cancel()
        return caught, await asyncio.wait_for(ended, 10)

    caught, error = asyncio.run(main())
    assert caught == ["cancelled"]
    assert isinstance(error, asyncio.CancelledError)
