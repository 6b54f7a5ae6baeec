from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from adapter.commands import shutdown

ROOT = Path(__file__).parents[3]
LOOKUP = """
import asyncio, time
from adapter.commands import shutdown

async def look_up():
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
    await asyncio.sleep(0.1)

shutdown.run(look_up())
"""


async def test_what_starts_in_time_is_given() -> None:
    async def start() -> str:
        await asyncio.sleep(0)
        return "started"

    assert await shutdown.run_until(asyncio.Event(), start()) == "started"


async def test_what_fails_at_the_start_is_raised() -> None:
    async def start() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await shutdown.run_until(asyncio.Event(), start())


async def test_a_start_that_is_told_to_stop_is_left_and_unmade() -> None:
    stop, starting, unmade = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def start() -> None:
        starting.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            unmade.set()

    task = asyncio.create_task(shutdown.run_until(stop, start()))
    await starting.wait()
    stop.set()

    assert await task is None
    assert unmade.is_set()


def test_lookups_give_and_raise_what_they_find() -> None:
    async def look_up() -> None:
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, int, "1") == 1
        with pytest.raises(ValueError, match="nothing"):
            await loop.run_in_executor(None, int, "nothing")

    shutdown.run(look_up())


def test_a_lookup_under_way_does_not_hold_up_the_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOKUP], cwd=ROOT, timeout=30, capture_output=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, b"")
