"""Connections to one of several processes of Prometheus behind one address.

A Service with a cluster IP leads each connection to one of its replicas. The time at which a
process was started, read once over each new connection, says which one it is.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp.client_proto import ResponseHandler

from adapter import errors
from adapter.clients import abort
from adapter.clients.one_address import Connector, OneAddress
from rules.document.sources import DEFAULT

log = logging.getLogger(__name__)

_TRIES = 20
"""Connections that are made until the process counts as gone: one of two is missed once in 10^6."""
_PROBES = 9
"""Further requests on one connection that find out whether a proxy balances requests."""
_CLOSED = 3
"""Times that a request is sent again because its connection was closed after the check."""

Started = Callable[[aiohttp.ClientSession], Awaitable[str]]
"""Returns when the process was started that answers a session. Raises BackendError."""


@dataclass(eq=False, slots=True)
class _Lane:
    """Session for one request at a time, and what its connection is known to lead to."""

    session: aiohttp.ClientSession
    connector: Connector
    checked: ResponseHandler | None = None
    process: str = ""


class OneProcess:
    """Sessions whose connections lead to the same process, as long as it answers.

    Until `choose` is called, there are none. `addresses` makes the connections, `proxy` is the URL
    of the proxy. Requests at a time bound the sessions; idle ones close their connection.
    """

    def __init__(
        self, addresses: OneAddress, *, proxy: str | None = None, source: str = DEFAULT
    ) -> None:
        self.kept = False
        """Whether requests have to use `lane`."""
        self._process = ""
        self._avoided = ""
        self._addresses = addresses
        self._proxy = proxy
        self._source = source
        self._free: list[_Lane] = []
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def choose(self, process: str, started: Started) -> None:
        """Keep to `process`, unless an older one is kept or a proxy balances each request.

        Raises BackendError.
        """
        with self._borrowed() as lane:
            starts = {await started(lane.session)}
            connection = lane.connector.last
            for _ in range(_PROBES):
                starts.add(await started(lane.session))
            if lane.connector.last is connection:
                self.kept = len(starts) == 1
        if self.kept and (not self._process or process < self._process):
            self._choose(process)

    def failed(self) -> None:
        """Choose another process: requests to this one fail."""
        self._avoided, self._process = self._process, ""

    @contextlib.contextmanager
    def lane(
        self, started: Started
    ) -> Iterator[tuple[aiohttp.ClientSession, aiohttp.ClientMiddlewareType]]:
        """Yield a session for one request, and the middleware that the request needs."""
        with self._borrowed() as lane:

            async def middleware(
                request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
            ) -> aiohttp.ClientResponse:
                for _ in range(_CLOSED):
                    await self._check(lane, started)
                    response = await handler(request)
                    if lane.connector.last is lane.checked:
                        return response
                    async with abort.abort_on_exit(response):
                        pass
                raise errors.Unreachable("the connection is closed after each response")

            yield lane.session, middleware

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[_Lane]:
        """Yield the lane that was used last, whose connection is probably open, or a new one."""
        lane = self._free.pop() if self._free else self._open()
        try:
            yield lane
        finally:
            self._free.append(lane)

    def _open(self) -> _Lane:
        connector = self._addresses.connector(limit=1)
        session = aiohttp.ClientSession(connector=connector, proxy=self._proxy)
        self._stack.push_async_callback(session.close)
        return _Lane(session, connector)

    async def _check(self, lane: _Lane, started: Started) -> None:
        """Have the connection of `lane` lead to the process; choose another if none does."""
        if lane.connector.last is lane.checked and lane.checked is not None:
            if lane.process == self._process:
                return
            lane.connector.renew()
        tries, wanted = 0, self._process
        while True:
            if wanted != self._process:
                tries, wanted = 0, self._process
            tries += 1
            found: str | None = None
            try:
                found = await started(lane.session)
            except errors.Refused:
                found = self._process  # it does not tell
            except errors.BackendError:
                if tries >= _TRIES and not wanted:
                    raise
            if found and not self._process and (found != self._avoided or tries >= _TRIES):
                self._choose(found)
            if found == self._process:
                lane.checked, lane.process = lane.connector.last, found
                return
            lane.connector.renew()
            if tries >= _TRIES and wanted == self._process:
                self.failed()

    def _choose(self, process: str) -> None:
        self._process = process
        log.info(
            "several servers answer behind the address of Prometheus (source %s): "
            "the one started at %s is queried",
            self._source,
            process,
        )
