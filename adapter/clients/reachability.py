"""Whether Prometheus answers, and wholly, judged by the requests that are sent to it anyway."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from adapter import errors
from adapter.background import Condition, utc
from adapter.clients import quirks
from adapter.clients.quirks import Meaning
from rules import teams
from rules.document.sources import DEFAULT, EMBEDDED
from rules.findings import Finding, degraded, passes

log = logging.getLogger(__name__)

_CREDENTIALS = frozenset({401, 403, 407})
_OF_FLAGS = frozenset({DEFAULT, EMBEDDED, teams.SOURCE})
"""Sources that flags set."""
_WHOLE_AFTER = 60.0
"""Seconds without a partial response after which responses count as whole: some queries need only
what is left."""


def is_tenant_missing(error: errors.BackendError) -> bool:
    """Return whether a server of many tenants got no X-Scope-OrgID."""
    return isinstance(error, errors.Refused) and quirks.says(str(error), Meaning.NO_TENANT)


def setting(source: str, key: str) -> str:
    """Return where people set `key` of a Prometheus: in a flag, or in `sources` of a rules file."""
    if source == EMBEDDED and key == "url":
        return "--embedded-prometheus-url"
    return f"--prometheus-{key}" if source in _OF_FLAGS else f"sources.{source}.{key}"


def credentials_setting(source: str) -> str:
    """Return where people set the credentials for a Prometheus."""
    if source in _OF_FLAGS:
        return "--prometheus-token-file, --prometheus-header or another flag for credentials"
    return f"tokenFile, headers or another key for credentials in sources.{source}"


class Reachability:
    """Outcome of the latest requests: Prometheus answers, or does not since some time.

    A refused query does not count: Prometheus answers. `source` is the name that rules use.
    `answers` says which of several servers does. `clock` returns Unix seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        *,
        source: str = DEFAULT,
        answers: Callable[[], Finding] = lambda: passes("answers"),
    ) -> None:
        self._clock = clock
        self._answers = answers
        self._source = source
        self._answered = 0.0
        self._outage = Condition(clock)
        self._loss = Condition(clock)
        self._partial_last = 0.0

    def now(self) -> float:
        """Return the time at which a request begins, for `failed`."""
        return self._clock()

    def answered(self, *, partial: str) -> None:
        """Note a response, and what it lacks if it is partial; logged once, and at the end."""
        self._answered = now = self._clock()
        self._outage.becomes("")
        if partial:
            self._partial_last = now
            if self._loss.becomes("partial"):
                log.warning("Prometheus (source %s) is partial: %s", self._source, partial)
        elif now - self._partial_last >= _WHOLE_AFTER and self._loss.becomes(""):
            log.info("Prometheus (source %s) is whole again", self._source)

    def failed(self, error: errors.BackendError, *, began: float) -> bool:
        """Note a failure of a request that began at `began`; return whether all requests may fail.

        It is ignored if another request was answered meanwhile: then only this one is slow.
        """
        problem = problem_of(error, self._source)
        if not problem:
            self._answered = self._clock()
            self._outage.becomes("")
        elif began >= self._answered:
            self._outage.becomes(problem)
            return True
        return False

    def check(self) -> Finding:
        """Return for /readyz what is known. The text does not quote Prometheus."""
        if self._outage.problem:
            return degraded(f"{self._outage.problem}, since {utc(self._outage.began)}")
        if self._loss.problem:
            return degraded(
                "sends partial responses (check its storage nodes, stores and replicas; the log "
                f"quotes it), since {utc(self._loss.began)}"
            )
        if not self._answered:
            return passes("not queried yet")
        return self._answers()


def problem_of(error: errors.BackendError, source: str = DEFAULT) -> str:
    """Return why all requests to `source` may fail; empty if the error concerns one request."""
    if isinstance(error, errors.NoCredentials):
        return f"has no credentials (the log says why; check {credentials_setting(source)})"
    if isinstance(error, errors.Unreachable) and not isinstance(error, errors.Unresponsive):
        return f"cannot be reached (check {setting(source, 'url')})"
    if isinstance(error, errors.TimedOut | errors.Unresponsive) and source == teams.SOURCE:
        return (
            f"does not respond within {teams.QUERY_TIMEOUT:g} s, the limit of the rules of teams "
            "(let the query read fewer series or a shorter range)"
        )
    if isinstance(error, errors.TimedOut | errors.Unresponsive):
        return f"does not respond in time (check its load, and {setting(source, 'timeout')})"
    if isinstance(error, errors.Overloaded):
        return f"asks to wait (status {error.status} with Retry-After; check its load and limits)"
    if type(error) is errors.Broken:
        url = setting(source, "url")
        return f"fails, or what answers is not Prometheus (check {url})"
    if isinstance(error, errors.Refused):
        if is_tenant_missing(error):
            header = setting(source, "header" if source in _OF_FLAGS else "headers")
            cure = f"set X-Scope-OrgID in {header}"
            return f"asks for a tenant (status {error.status}, no org id; {cure})"
        if error.status in _CREDENTIALS:
            cure = f"set {credentials_setting(source)}"
            return f"refuses the credentials (status {error.status}; {cure})"
        if error.status == 404:
            return f"has no API at this URL (status 404; check {setting(source, 'url')})"
    return ""
