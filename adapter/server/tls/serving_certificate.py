"""Serving certificate of all replicas, issued by their own CA and kept in one Secret.

Replicas change the Secret with optimistic concurrency; `certs.renew` decides what is due. A CA is
published in the caBundle of the APIServices before a certificate that it issued is served.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509

from adapter import errors, telemetry
from adapter.background import Backoff, Condition
from adapter.clients.kubernetes import Kube
from adapter.server.tls.apiservices import ApiService, APIServiceController
from certs import renew, secret
from certs.bundle import Bundle, CertificateError
from certs.renew import CertificatePolicy, SharedKeys
from rules.findings import Finding, degraded, passes

log = logging.getLogger(__name__)

_INTERVAL = 60.0
"""Seconds between two reads of the APIServices: a new one is unusable until it has a caBundle."""
_SECRET_INTERVAL = timedelta(minutes=5)
"""Time between two reads of the Secret; a certificate is replaced days before it expires."""
_OVERLAP = timedelta(minutes=2)
"""How long other CAs stay in the caBundles: those of replicas that have not read a new Secret yet.
They read it after `_INTERVAL`, because the caBundles differ from what they know."""
_MIN_BACKOFF = 1.0
_ATTEMPTS = 5
_NOT_FOUND, _CONFLICT = 404, 409


class ServingCertificateController:
    """Controller that calls `serve` with the certificate in the Secret `namespace`/`name`."""

    def __init__(
        self,
        api: Kube,
        apiservices: APIServiceController,
        serve: Callable[[Bundle], None],
        *,
        name: str,
        namespace: str,
        policy: CertificatePolicy,
        meter: telemetry.CertificateMetrics | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._apiservices = apiservices
        self._serve = serve
        self._name = name
        self._namespace = namespace
        self._title = f"Secret {namespace}/{name}"
        self._policy = policy
        self._meter = meter
        self._clock = clock
        self._jitter = jitter
        self._renewal_jitter = jitter()
        self._sleep = sleep
        self._state: SharedKeys | None = None
        self._secret_due = datetime.min.replace(tzinfo=UTC)
        self._others_since: datetime | None = None
        """Since when the caBundles have other CAs."""
        self._failure = Condition()
        self._publish_failure = Condition()

    def check(self) -> Finding:
        """Report the CA for /readyz. Never fails: an unready adapter serves nobody."""
        state = "no CA is shared with other replicas"
        if self._state is not None:
            state = f"CA valid until {self._state.authority.certificate.not_valid_after_utc}"
        problems = [*filter(None, (self._failure.problem, self._publish_failure.problem))]
        text = "; ".join((state, *problems))
        return degraded(text) if problems else passes(text)

    async def run(self) -> None:
        """Reconcile periodically, starting after one interval; retry failures with backoff."""
        pauses = Backoff(_MIN_BACKOFF, _INTERVAL, jitter=0)
        while True:
            pause = _INTERVAL * (0.9 + 0.2 * self._jitter())
            if self._failure.problem:
                pause = min(pauses.pause(), pause)
            else:
                pauses.reset()
            await self._sleep(pause)
            await self.attempt()

    async def attempt(self) -> bool:
        """Reconcile the certificate, the Secret and the caBundles; return False on failure.

        A failure is logged, reported by `check`, and leaves the current certificate in use.
        """
        try:
            await self._reconcile()
        except (errors.BackendError, CertificateError) as error:
            if self._failure.becomes(str(error)):
                log.warning("serving certificate not updated: %s", error)
        else:
            self._failure.becomes("")
        if self._meter is not None:
            self._meter.reconciles.labels("failed" if self._failure.problem else "ok").inc()
        return not self._failure.problem

    @property
    def _how_to_create(self) -> str:
        return (
            "apply the manifests again, or run "
            f"`kubectl create secret generic {self._name} --namespace={self._namespace}`"
        )

    async def _reconcile(self) -> None:
        for _ in range(_ATTEMPTS):
            # The APIServices are read before the Secret. If another replica publishes a newer state
            # in between, their resourceVersion keeps this replica from overwriting it.
            services = await self._fetch_services()
            if self._is_current(services or ()):
                if services is not None:
                    self._publish_failure.becomes("")
                return
            state = await self._reconcile_secret(services or (), published=services is not None)
            if state is not None:
                self._apply(state)
                if services is None or await self._publish(services, state):
                    return
        raise errors.Broken(f"{self._title}: {_ATTEMPTS} attempts failed with conflicts")

    def _is_current(self, services: tuple[ApiService, ...]) -> bool:
        """Return whether the Secret was read recently and the caBundles match it."""
        return (
            self._state is not None
            and self._clock() < self._secret_due
            and all(each.trusts_only(frozenset(self._state.trusted)) for each in services)
        )

    async def _fetch_services(self) -> tuple[ApiService, ...] | None:
        """Read the APIServices; return None and note the failure if that is not possible."""
        try:
            return await self._apiservices.fetch()
        except errors.BackendError as error:
            self._note_publish_failure(str(error))
            return None

    async def _publish(self, services: tuple[ApiService, ...], state: SharedKeys) -> bool:
        """Publish the CAs; return False if an APIService has changed since it was read."""
        try:
            done = await self._apiservices.publish(services, self._to_publish(services, state))
        except errors.BackendError as error:
            self._note_publish_failure(str(error))
            return True
        self._publish_failure.becomes("")
        return done

    def _to_publish(
        self, services: tuple[ApiService, ...], state: SharedKeys
    ) -> tuple[x509.Certificate, ...]:
        """Return the CAs of `state`, and for a while the others that the caBundles have."""
        now = self._clock()
        found = {
            authority: None
            for each in services
            for authority in each.trusted
            if authority not in state.trusted and now < authority.not_valid_after_utc
        }
        self._others_since = (self._others_since or now) if found else None
        if self._others_since is None or now >= self._others_since + _OVERLAP:
            return state.trusted
        return (*state.trusted, *found)

    def _note_publish_failure(self, failure: str) -> None:
        if self._publish_failure.becomes(failure):
            log.warning(
                "caBundle not published, so the API server may refuse the serving certificate: %s",
                failure,
            )

    async def _reconcile_secret(
        self, services: tuple[ApiService, ...], *, published: bool
    ) -> SharedKeys | None:
        """Read the Secret, write what is due, and return the new state; None after a conflict."""
        path = f"/api/v1/namespaces/{self._namespace}/secrets/{self._name}"
        now = self._clock()
        document = await self._read(path)
        try:
            before = secret.read(document)
        except CertificateError as error:
            raise CertificateError(
                f"{self._title}: {error}; delete the Secret and {self._how_to_create}"
            ) from error

        def known(authority: x509.Certificate) -> bool:
            return published and all(each.trusts(authority) for each in services)

        state = renew.reconcile(
            before or self._initial_state(now),
            self._policy,
            now=now,
            known=known,
            jitter=self._renewal_jitter,
        )
        if state is not before:
            try:
                await self._api.put(path, secret.updated(document, state))
            except errors.Refused as error:
                if error.status in (_CONFLICT, _NOT_FOUND):
                    return None
                raise
        return state

    async def _read(self, path: str) -> Any:
        """Return the Secret. It is never created: RBAC cannot restrict `create` to one Secret."""
        try:
            return await self._api.get(path)
        except errors.Refused as error:
            if error.status != _NOT_FOUND:
                raise
            raise CertificateError(
                f"{self._title} does not exist: {self._how_to_create}"
            ) from error

    def _initial_state(self, now: datetime) -> SharedKeys:
        """Return the state for an empty Secret.

        An administrator who empties the Secret wants a new CA without an outage. Therefore the
        current one is kept until the new one is published.
        """
        if self._state is None:
            return renew.create(self._policy, now=now)
        return renew.announce(self._state, self._policy, now=now)

    def _apply(self, state: SharedKeys) -> None:
        before = self._state
        if before is None or before.serving.leaf != state.serving.leaf:
            self._serve(state.serving)
            log.info("serving a new certificate, valid until %s", state.serving.until)
        if before is None or before.trusted != state.trusted:
            names = ", ".join(each.subject.rfc4514_string() for each in state.trusted)
            log.info("CAs for the caBundle: %s", names)
        self._state = state
        self._secret_due = self._clock() + _SECRET_INTERVAL
        if self._meter is not None:
            until = state.authority.certificate.not_valid_after_utc
            self._meter.ca_expiry.set(until.timestamp())
