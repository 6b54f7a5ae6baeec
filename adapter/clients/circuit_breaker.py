"""Circuit breakers: fail at once while a server does not respond, or asked not to be queried."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from adapter import errors

_FAILURES = 5
"""Consecutive failures after which the breaker opens."""
_OPEN = 1.0
"""Seconds between two probes of an open breaker."""


class CircuitBreaker:
    """Opens after five consecutive failures to respond; then one request a second is a probe.

    It also opens for the time that the server asks for by Retry-After, without probes.

    Only Unreachable and TimedOut count as failures: any other error is a response, as is the
    QueryTimedOut of one expensive query. `name` is the server's, for the message. `clock` is
    monotonic, in seconds.
    """

    def __init__(self, name: str, *, clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._failures = 0
        self._last = ""
        """Text of the last failure; the error itself might keep what its response had."""
        self._next_probe = 0.0
        self._wait_until = 0.0
        self._status = 0

    @contextlib.contextmanager
    def request(self, *, slow_is_failure: bool = True) -> Iterator[None]:
        """Count the outcome of the request in this context. Raises Unreachable while open.

        Without `slow_is_failure`, TimedOut counts as nothing.
        Raises Overloaded while the server asked to wait. A cancelled request counts as nothing.
        """
        if (left := self._wait_until - self._clock()) > 0:
            error = errors.Overloaded(
                f"{self._name} is not queried for {left:.0f} s, as it asked: {self._last}"
            )
            error.status, error.retry_after = self._status, left
            raise error
        if self._failures >= _FAILURES:
            now = self._clock()
            if now < self._next_probe:
                raise errors.Unreachable(
                    f"{self._name} is not queried, because {self._failures} requests failed; it is "
                    f"probed every {_OPEN:g} s. The last failure: {self._last}"
                )
            self._next_probe = now + _OPEN
        try:
            yield
        except errors.QueryTimedOut:
            self._failures = 0
            raise
        except (errors.Unreachable, errors.TimedOut) as error:
            if isinstance(error, errors.TimedOut) and not slow_is_failure:
                raise
            self._failures += 1
            self._last = str(error)
            self._next_probe = self._clock() + _OPEN
            raise
        except errors.Overloaded as error:
            self._failures = 0
            until = self._clock() + (error.retry_after or 0.0)
            if until > self._wait_until:
                self._last, self._status, self._wait_until = str(error), error.status, until
            raise
        except errors.BackendError:
            self._failures = 0
            raise
        else:
            self._failures = 0


class NamespaceBreaker:
    """Opens after five consecutive timeouts of one namespace; then it sends one probe at a time.

    Unlike `CircuitBreaker`, it also counts expensive queries: each takes a slot of the namespace,
    and a worker of the autoscaler that waits. `clock` is monotonic, in seconds.
    """

    def __init__(self, namespace: str, *, clock: Callable[[], float]) -> None:
        self._namespace = namespace
        self._clock = clock
        self._failures = 0
        self._last = ""
        self._next_probe = 0.0
        self._probing = False

    @contextlib.contextmanager
    def request(self, *, slow_is_failure: bool) -> Iterator[None]:
        """Count the outcome of the request in this context. Raises TimedOut while open."""
        probe = self._failures >= _FAILURES
        if probe and (self._probing or self._clock() < self._next_probe):
            raise errors.TimedOut(
                f"Prometheus is not queried for the rules of namespace {self._namespace}, because "
                f"{self._failures} queries took too long; one at a time is tried. The last one: "
                f"{self._last}"
            )
        self._probing = probe
        try:
            yield
        except errors.TimedOut as error:
            if slow_is_failure:
                self._failures += 1
                self._last = str(error)
                self._next_probe = self._clock() + _OPEN
            raise
        except errors.Unreachable:
            raise  # says nothing of this namespace
        except errors.BackendError:
            self._failures = 0
            raise
        else:
            self._failures = 0
        finally:
            if probe:
                self._probing = False
