"""The tests of connections run on both event loops of `--event-loop`."""

from __future__ import annotations

import asyncio

import uvloop


def pytest_asyncio_loop_factories():
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
