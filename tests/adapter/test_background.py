from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import time
import weakref

import pytest

from adapter import background
from adapter.background import (
    Background,
    Backoff,
    Condition,
    FairQueue,
    Pace,
    collect_garbage,
    gather_or_cancel,
    utc,
    watch_stalls,
)
from tools.waiting import Clock, until


async def test_tasks_run_until_the_end_of_the_block():
    cancelled = asyncio.Event()

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with Background.running() as background:
        background.start("work", work())
        await asyncio.sleep(0)
        background.check()

    assert cancelled.is_set()


async def test_failed_task_is_logged_and_reported(caplog):
    async def fail():
        raise ValueError("no")

    async with Background.running() as background:
        background.start("doomed", fail())
        background.start("healthy", asyncio.Event().wait())
        await asyncio.sleep(0.01)

        with pytest.raises(RuntimeError, match=r"^ended: doomed$"):
            background.check()

    (record,) = caplog.records
    assert record.levelno == logging.CRITICAL
    assert record.getMessage().startswith("background task doomed failed")


async def test_results_are_gathered_in_order():
    async def after(seconds):
        await asyncio.sleep(seconds)
        return seconds

    assert await gather_or_cancel(after(each) for each in (0.02, 0.0, 0.01)) == [0.02, 0.0, 0.01]


async def test_first_failure_cancels_the_others_and_waits_for_them():
    ended = asyncio.Event()

    async def fail():
        await asyncio.sleep(0)
        raise ValueError("no")

    async def wait():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    with pytest.raises(ValueError, match="no"):
        await gather_or_cancel((wait(), fail()))

    assert ended.is_set()


async def test_a_failure_at_the_same_time_does_not_hide_that_the_caller_is_cancelled():
    start = asyncio.Event()

    async def fail():
        await start.wait()
        raise ValueError("no")

    caller = asyncio.create_task(gather_or_cancel((fail(), asyncio.Event().wait())))
    await asyncio.sleep(0)
    start.set()
    await asyncio.sleep(0)
    caller.cancel()

    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_nothing_is_gathered():
    assert await gather_or_cancel(()) == []


@pytest.mark.parametrize(
    ("jitter", "number", "pauses"),
    [(0.0, 0.3, [1, 2, 4, 5, 5]), (0.5, 0.0, [0.5, 1, 2, 2.5, 2.5]), (0.2, 0.5, [0.9, 1.8])],
)
def test_backoff_doubles_up_to_its_maximum_with_jitter(jitter, number, pauses):
    retries = Backoff(1, 5, jitter=jitter, random=lambda: number)

    assert [retries.pause() for _ in pauses] == pytest.approx(pauses)


def test_backoff_begins_anew_after_a_success():
    retries = Backoff(1, 5, jitter=0)

    assert [retries.pause(), retries.pause()] == [1, 2]
    retries.reset()
    assert retries.pause() == 1


def test_first_pause_of_a_backoff_is_not_longer_than_its_maximum():
    assert Backoff(1, 0.2, jitter=0).pause() == 0.2


def test_condition_changes_once_and_keeps_when_its_problem_began():
    clock = Clock()
    condition = Condition(clock)

    assert not condition.becomes("")
    for clock.now, problem, changed in ((1.0, "a", True), (2.0, "a", False), (3.0, "b", True)):
        assert condition.becomes(problem) is changed
    assert (condition.problem, condition.began) == ("b", 3.0)
    assert utc(condition.began) == "1970-01-01T00:00:03+00:00"
    assert condition.becomes("")


@pytest.mark.slow
async def test_the_longest_stall_of_the_event_loop_is_reported():
    reported: list[float] = []
    task = asyncio.create_task(watch_stalls(reported.append, probe=0.01))
    await asyncio.sleep(0.05)
    time.sleep(0.4)  # noqa: ASYNC251 (this is the stall)
    await asyncio.sleep(0.05)
    task.cancel()

    assert max(reported) >= 0.2
    assert min(reported) >= 0.0


async def test_few_go_on_in_one_iteration_and_those_that_came_first_before():
    pace = Pace()
    went_on: list[int] = []

    async def go(number: int) -> None:
        await pace.next()
        went_on.append(number)

    tasks = [asyncio.create_task(go(number)) for number in range(11)]
    await asyncio.sleep(0)
    in_first = list(went_on)
    tasks[5].cancel()
    late = asyncio.create_task(go(11))
    counts = [len(went_on)]
    while len(went_on) < 11:
        await asyncio.sleep(0)
        counts.append(len(went_on))

    assert in_first == [0, 1, 2, 3]
    assert went_on == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    assert max(after - before for before, after in itertools.pairwise(counts)) <= 4
    assert late.done()


class Node:
    """Object of a cycle."""

    def __init__(self) -> None:
        self.itself = self


async def test_garbage_is_collected_at_a_pace(monkeypatch):
    monkeypatch.setattr(background, "_COLLECT_NEW", 0.01)
    monkeypatch.setattr(background, "_COLLECT_ALL", 0.05)
    thresholds = gc.get_threshold()
    old = Node()
    gc.collect()
    task = asyncio.create_task(collect_garbage())
    await asyncio.sleep(0)
    found = [weakref.ref(old), weakref.ref(Node())]
    del old

    gc.disable()  # nothing else collects
    try:
        await until(lambda: not any(each() for each in found))
        assert gc.get_threshold()[2] > thresholds[2]
    finally:
        gc.enable()
        task.cancel()
        await asyncio.wait([task])
    assert gc.get_threshold() == thresholds


async def test_a_fair_queue_takes_from_each_key_in_turn():
    queue = FairQueue(20)
    for key, item in (("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("c", 6)):
        assert queue.put(key, item)

    assert [await queue.get() for _ in range(6)] == [1, 4, 5, 2, 6, 3]


async def test_no_key_fills_a_fair_queue():
    queue = FairQueue(12)

    assert sum(queue.put("a", number) for number in range(20)) == 6
    assert sum(queue.put("b", number) for number in range(20)) == 3
    assert queue.put("c", 0)
    assert not queue.put("a", 0)
    for _ in range(5):
        await queue.get()
    assert queue.put("a", 0)


async def test_a_fair_queue_waits_for_an_item():
    queue = FairQueue(2)
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not waiting.done()

    queue.put("a", 1)

    assert await waiting == 1
