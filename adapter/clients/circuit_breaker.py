"""Circuit breaker: fails at once while a server does not respond, or asked not to be queried.

`confinement` has that of one namespace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from adapter import errors

FAILURES = 5
"""Consecutive failures after which the breaker opens."""
OPEN = 1.0
"""Seconds before each probe of an open breaker."""


class CircuitBreaker:
    """Opens after five consecutive failures to respond, and closes after a response to a probe.

    No request is a probe: one that gets no response takes its whole timeout, and with it a worker
    of the controller. The breaker also opens for the time that the server asks for by Retry-After,
    without probes.

    Only Unreachable and TimedOut count as failures: any other error is a response, as is the
    QueryTimedOut of one expensive query. `name` is the server's, for the message. `clock` is
    monotonic, in seconds.
    """

    def __init__(self, name: str, *, clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._failures = 0
        self._failed_of: set[str] = set()
        """Namespaces of these failures."""
        self._last = ""
        """Text of the last failure; the error itself might keep what its response had."""
        self._timed_out = False
        """Whether the last failure was a timeout, not a broken connection."""
        self._wait_until = 0.0
        self._status = 0

    @property
    def needs_probe(self) -> bool:
        """Whether requests fail until a probe succeeds."""
        return self._failures >= FAILURES

    @contextlib.contextmanager
    def request(self, *, of: str = "", slow_is_failure: bool = True) -> Iterator[None]:
        """Count the outcome of the request in this context. Raises Unreachable while open.

        Failures of one namespace, `of`, count as one: its queries may break their connections.
        Without `slow_is_failure`, TimedOut counts as nothing.
        Raises Overloaded while the server asked to wait. A cancelled request counts as nothing.
        """
        if (left := self._wait_until - self._clock()) > 0:
            raise errors.Overloaded(
                f"{self._name} is not queried for {left:.0f} s, as it asked: {self._last}",
                status=self._status,
                retry_after=left,
            )
        if self.needs_probe:
            kind = errors.Unresponsive if self._timed_out else errors.Unreachable
            raise kind(
                f"{self._name} is not queried, because {self._failures} requests failed; it is "
                f"probed every {OPEN:g} s. The last failure: {self._last}"
            )
        with self.probe(of=of, slow_is_failure=slow_is_failure):
            yield

    @contextlib.contextmanager
    def probe(self, *, of: str = "", slow_is_failure: bool = True) -> Iterator[None]:
        """Count the outcome of the request in this context, as `request`, also while open."""
        try:
            yield
        except errors.QueryTimedOut:
            self._reset()
            raise
        except (errors.Unreachable, errors.TimedOut) as error:
            if isinstance(error, errors.TimedOut) and not slow_is_failure:
                raise
            if of not in self._failed_of:
                self._failures += 1
            if of:
                self._failed_of.add(of)
            self._last = str(error)
            self._timed_out = isinstance(error, errors.TimedOut)
            raise
        except errors.Overloaded as error:
            self._reset()
            until = self._clock() + (error.retry_after or 0.0)
            if until > self._wait_until:
                self._last, self._status, self._wait_until = str(error), error.status, until
            raise
        except errors.BackendError:
            self._reset()
            raise
        else:
            self._reset()

    def _reset(self) -> None:
        self._failures = 0
        self._failed_of.clear()
