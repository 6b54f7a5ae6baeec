"""Our own certificate: of an authority that all replicas share, renewed in time, known to clients.

All of it is kept in one Secret, which replicas change by optimistic concurrency; what is due is
decided by `certs.renew`. The authorities go into the caBundle of our APIServices before anything
that they issued is served.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Protocol

from cryptography import x509

from adapter import errors
from adapter.tls.apiservices import ApiService, APIServiceController
from certs import renew, secret
from certs.bundle import Bundle, CertificateError
from certs.renew import Policy, State

log = logging.getLogger(__name__)

INTERVAL = 30.0
"""Seconds between two looks at the Secret and the APIServices."""

_FIRST_RETRY = 1.0
_ATTEMPTS = 5
_NOT_FOUND, _CONFLICT = 404, 409


class Api(Protocol):
    """Knows how to read and change objects of the cluster; see `kube.Kube`."""

    async def get(self, path: str) -> Any: ...

    async def post(self, path: str, document: Any) -> Any: ...

    async def put(self, path: str, document: Any) -> Any: ...


class Meter(Protocol):
    """Knows how to show how it goes."""

    def authority(self, until: float) -> None:
        """The authority that issues our certificates expires at `until`, in Unix seconds."""

    def looked(self, outcome: str) -> None:
        """A look at the Secret ended: `ok` or `failed`."""


def policy(service: str, namespace: str) -> Policy:
    """Certificates for the DNS names by which clients in a cluster know a Service."""
    names = (f"{service}.{namespace}.svc", f"{service}.{namespace}", service)
    return Policy(name=service, hosts=(*names, f"{service}.{namespace}.svc.cluster.local"))


def secret_name(service: str) -> str:
    """The Secret that the replicas behind a Service share."""
    return f"{service}-tls"


class ServingCertificateController:
    """Keeps `serve` serving a certificate of the Secret `name` in `namespace`."""

    def __init__(
        self,
        api: Api,
        registration: APIServiceController,
        serve: Callable[[Bundle], None],
        *,
        name: str,
        namespace: str,
        policy: Policy,
        meter: Meter | None = None,
        interval: float = INTERVAL,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._registration = registration
        self._serve = serve
        self._name = name
        self._namespace = namespace
        self._policy = policy
        self._meter = meter
        self._interval = interval
        self._clock = clock
        self._jitter = jitter
        self._share = jitter()
        self._sleep = sleep
        self._state: State | None = None
        self._failure = ""
        self._unpublished = ""

    def check(self) -> str:
        """For /readyz: until when the authority is good. Raises RuntimeError without one."""
        if self._state is None:
            raise RuntimeError(self._failure or f"{self._secret} was not looked at yet")
        until = self._state.authority.certificate.not_valid_after_utc
        problems = filter(None, (self._failure, self._unpublished))
        return "; ".join((f"authority good until {until}", *problems))

    async def run(self) -> None:
        """Look again and again, sooner while that fails. The first look is `attempt`'s."""
        retry = _FIRST_RETRY
        while True:
            pause = self._interval * (0.9 + 0.2 * self._jitter())
            if self._failure:
                pause, retry = min(retry, pause), retry * 2
            else:
                retry = _FIRST_RETRY
            await self._sleep(pause)
            await self.attempt()

    async def attempt(self) -> bool:
        """Agree with the other replicas on what is served and trusted; False if that fails.

        What was served before then stays; the failure is logged, and told by `check`.
        """
        try:
            await self._agree()
        except (errors.BackendError, CertificateError) as error:
            if str(error) != self._failure:
                log.warning("our certificate cannot be kept up to date: %s", error)
            self._failure = str(error)
        else:
            self._failure = ""
        if self._meter is not None:
            self._meter.looked("failed" if self._failure else "ok")
        return not self._failure

    @property
    def _secret(self) -> str:
        return f"Secret {self._namespace}/{self._name}"

    async def _agree(self) -> None:
        for _ in range(_ATTEMPTS):
            # The APIServices first: none is written that was published from a later state.
            found = await self._look()
            state = await self._decide(found or (), published=found is not None)
            if state is not None:
                self._take(state)
                if found is None or await self._publish(found, state):
                    return
        raise errors.Broken(f"{self._secret}: others change it all the time")

    async def _look(self) -> tuple[ApiService, ...] | None:
        try:
            return await self._registration.look()
        except errors.BackendError as error:
            self._not_published(str(error))
            return None

    async def _publish(self, found: tuple[ApiService, ...], state: State) -> bool:
        try:
            done = await self._registration.publish(
                found, frozenset(state.trusted), state.ca_bundle
            )
        except errors.BackendError as error:
            self._not_published(str(error))
            return True
        self._unpublished = ""
        return done

    def _not_published(self, failure: str) -> None:
        if failure != self._unpublished:
            log.warning(
                "whom to trust cannot be published, so that the API server may refuse our "
                "certificate: %s",
                failure,
            )
        self._unpublished = failure

    async def _decide(self, found: tuple[ApiService, ...], *, published: bool) -> State | None:
        """What is shared from now on; None if others have changed it meanwhile."""
        path = f"/api/v1/namespaces/{self._namespace}/secrets"
        document = await self._read(f"{path}/{self._name}")
        try:
            before = None if document is None else secret.read(document)
        except CertificateError as error:
            raise CertificateError(
                f"{self._secret}: {error}; delete it, and a new one is made"
            ) from error

        def known(authority: x509.Certificate) -> bool:
            return published and all(each.trusts(authority) for each in found)

        now = self._clock()
        state = renew.reconcile(
            before or self._anew(now), self._policy, now=now, known=known, jitter=self._share
        )
        if state is before:
            return state
        try:
            if document is None:
                new = secret.document(state, name=self._name, namespace=self._namespace)
                await self._api.post(path, new)
            else:
                await self._api.put(f"{path}/{self._name}", secret.replaced(document, state))
        except errors.Refused as error:
            # A namespace that does not exist is no conflict.
            if error.status == _CONFLICT or (error.status == _NOT_FOUND and document is not None):
                return None
            raise
        return state

    async def _read(self, path: str) -> Any:
        try:
            return await self._api.get(path)
        except errors.Refused as error:
            if error.status != _NOT_FOUND:
                raise
            return None

    def _anew(self, now: datetime) -> State:
        """Where there is no Secret: whoever deleted it wants another authority, not an outage."""
        if self._state is None:
            return renew.create(self._policy, now=now)
        return renew.announce(self._state, self._policy, now=now)

    def _take(self, state: State) -> None:
        before = self._state
        if before is None or before.serving.leaf != state.serving.leaf:
            self._serve(state.serving)
            log.info("serving a certificate that is good until %s", state.serving.until)
        if before is None or before.trusted != state.trusted:
            names = ", ".join(each.subject.rfc4514_string() for each in state.trusted)
            log.info("clients are to trust %s", names)
        self._state = state
        if self._meter is not None:
            until = state.authority.certificate.not_valid_after_utc
            self._meter.authority(until.timestamp())
