"""Tasks that run as long as the server does; the death of one fails /livez."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Self

log = logging.getLogger(__name__)


class Background:
    """Knows what runs beside the answering of requests."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls) -> AsyncIterator[Self]:
        """What is started within is cancelled at the end, and waited for."""
        background = cls()
        try:
            yield background
        finally:
            for task in background._tasks:
                task.cancel()
            await asyncio.gather(*background._tasks, return_exceptions=True)

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Have `work`, which never ends by itself, done under `name`."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(_ended)
        self._tasks.append(task)

    def check(self) -> None:
        """Raises, naming them, when tasks have ended that never should."""
        if ended := [task.get_name() for task in self._tasks if task.done()]:
            raise RuntimeError(f"ended: {', '.join(ended)}")


def _ended(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("the task %s died; /livez fails from now on", task.get_name(), exc_info=error)
