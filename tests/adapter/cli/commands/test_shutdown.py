"""Shutdown of a program that serves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from adapter.cli.commands import shutdown

ROOT = Path(__file__).parents[4]
LOOKUP = """
import asyncio, time
from adapter.cli.commands import shutdown

async def look_up():
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
    await asyncio.sleep(0.1)

shutdown.run(look_up())
"""


async def test_run_until_returns_the_result() -> None:
    async def start() -> str:
        await asyncio.sleep(0)
        return "started"

    assert await shutdown.run_until(asyncio.Event(), start()) == "started"


async def test_run_until_raises_the_exception() -> None:
    async def start() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await shutdown.run_until(asyncio.Event(), start())


async def test_run_until_cancels_the_work_and_waits_for_its_cleanup() -> None:
    stop, starting, cleaned_up = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def start() -> None:
        starting.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            cleaned_up.set()

    task = asyncio.create_task(shutdown.run_until(stop, start()))
    await starting.wait()
    stop.set()

    assert await task is None
    assert cleaned_up.is_set()


def test_the_executor_returns_results_and_raises_exceptions() -> None:
    async def look_up() -> None:
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, int, "1") == 1
        with pytest.raises(ValueError, match="nothing"):
            await loop.run_in_executor(None, int, "nothing")

    shutdown.run(look_up())


@pytest.mark.slow
def test_a_pending_lookup_does_not_delay_the_exit() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOKUP], cwd=ROOT, timeout=30, capture_output=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, b"")
