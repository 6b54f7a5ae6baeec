"""APIServices of this adapter: publishes their caBundle and makes the API server try them early.

It changes only APIServices that exist and refer to this adapter's Service. One with
`insecureSkipTLSVerify` must not have a caBundle, so it is left alone, with a warning.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cryptography import x509

from adapter import errors
from adapter.background import Backoff, Condition
from adapter.clients.kubernetes import Kube
from certs.bundle import UNREADABLE, pem_of
from rules.findings import Finding, degraded, passes

log = logging.getLogger(__name__)

_INTERVAL = 600.0
"""Seconds between two reads of available APIServices."""
_PATH = "/apis/apiregistration.k8s.io/v1/apiservices/"
_PAUSES = (0.5, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds after each annotation. After the last one the API server retries every 30 s by itself."""
_ANNOTATION = "gpu-metrics-adapter/listened-at"
_FORBIDDEN, _NOT_FOUND, _CONFLICT = 403, 404, 409


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiService:
    """APIService that refers to this adapter's Service."""

    name: str
    resource_version: str
    trusted: frozenset[x509.Certificate]
    """CAs in its caBundle."""
    insecure: bool
    """Whether it has insecureSkipTLSVerify."""
    available: bool

    def trusts(self, authority: x509.Certificate) -> bool:
        """Return whether the API server accepts certificates that `authority` issued."""
        return self.insecure or authority in self.trusted

    def trusts_only(self, authorities: frozenset[x509.Certificate]) -> bool:
        """Return whether the caBundle needs no change to hold exactly `authorities`."""
        return self.insecure or self.trusted == authorities


class APIServiceController:
    """Controller of the APIServices `names` (`v1beta1.custom.metrics.k8s.io`) of one Service."""

    def __init__(
        self,
        api: Kube,
        names: Iterable[str],
        *,
        service: str,
        namespace: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._names = tuple(names)
        self._service = {"name": service, "namespace": namespace}
        self._clock = clock
        self._jitter = jitter
        self._sleep = sleep
        self._summary = "not read yet"
        self._failure = Condition()
        self._registered = True
        """Whether an APIService refers to the Service, or none was read yet."""
        self._unavailable = False
        """Whether an APIService stays unavailable although the API server was made to try it."""
        self._insecure: frozenset[str] = frozenset()
        self._forbidden: frozenset[str] = frozenset()

    def check(self) -> Finding:
        """Report availability for /readyz. Never fails: only a ready adapter becomes available."""
        if self._failure.problem:
            return degraded(f"{self._summary}; {self._failure.problem}")
        if self._forbidden or self._unavailable or not self._registered:
            return degraded(self._summary)
        return passes(self._summary)

    async def fetch(self) -> tuple[ApiService, ...]:
        """Read the APIServices of this Service, except those that RBAC forbids to read.

        Raises BackendError, also if all of them are forbidden.
        """
        services: list[ApiService] = []
        forbidden: dict[str, str] = {}
        for name in self._names:
            try:
                document = await self._api.get(_PATH + name)
            except errors.Refused as error:
                if error.status == _FORBIDDEN:
                    forbidden[name] = str(error)
                elif error.status != _NOT_FOUND:
                    raise
                continue
            spec = document.get("spec") or {}
            service = spec.get("service") or {}
            if {key: service.get(key) for key in self._service} == self._service:
                services.append(_parse(document, spec))
        if len(forbidden) == len(self._names):
            raise errors.Refused(next(iter(forbidden.values())), status=_FORBIDDEN)
        parts = (
            *map(_availability, services),
            *(f"{name} forbidden to read" for name in forbidden),
        )
        own = "{namespace}/{name}".format(**self._service)
        self._registered = bool(services)
        self._summary = ", ".join(parts) or f"no APIService refers to Service {own}"
        self._warn_of_forbidden(forbidden)
        self._warn_of_insecure(frozenset(each.name for each in services if each.insecure))
        return tuple(services)

    async def publish(
        self, services: Iterable[ApiService], authorities: Sequence[x509.Certificate]
    ) -> bool:
        """Write `authorities` to every caBundle that differs.

        Returns False if an APIService has changed since it was read; then read all again and
        decide again which CAs to publish. Raises BackendError.
        """
        spec = {"caBundle": base64.b64encode(pem_of(authorities)).decode()}
        for each in services:
            if each.trusts_only(frozenset(authorities)):
                continue
            metadata = {"resourceVersion": each.resource_version}
            try:
                await self._api.patch(_PATH + each.name, {"metadata": metadata, "spec": spec})
            except errors.Refused as error:
                if error.status not in (_CONFLICT, _NOT_FOUND):
                    raise
                return False
            log.info("published the caBundle of APIService %s", each.name)
        return True

    async def run(self) -> None:
        """Annotate unavailable APIServices until they are available; then check every 10 minutes.

        Start this once the server listens. Any write to an APIService makes the API server try it
        at once instead of within 30 s.
        """
        annotated, pauses = 0, Backoff(1, _INTERVAL, jitter=0)
        while True:
            try:
                annotated = await self._annotate_unavailable(annotated)
                pauses.reset()
                self._failure.becomes("")
            except errors.BackendError as error:
                if self._failure.becomes(str(error)):
                    log.warning(
                        "APIServices not annotated, so it may take the API server 30 s longer to "
                        "find them available: %s",
                        error,
                    )
            pause = _INTERVAL * (0.9 + 0.2 * self._jitter())
            if self._failure.problem:
                pause = min(pause, pauses.pause())
            elif 0 < annotated <= len(_PAUSES):
                pause = _PAUSES[annotated - 1]
            await self._sleep(pause)

    async def _annotate_unavailable(self, annotated: int) -> int:
        """Return the number of consecutive annotations so far; 0 once all are available."""
        unavailable = [each for each in await self.fetch() if not each.available]
        self._unavailable = bool(unavailable) and annotated >= len(_PAUSES)
        if not unavailable:
            return 0
        if annotated < len(_PAUSES):
            for each in unavailable:
                await self._annotate(each)
        return annotated + 1

    async def _annotate(self, service: ApiService) -> None:
        # The value must change, because the API server ignores writes without a change.
        annotations = {_ANNOTATION: self._clock().isoformat()}
        await self._api.patch(_PATH + service.name, {"metadata": {"annotations": annotations}})

    def _warn_of_forbidden(self, forbidden: Mapping[str, str]) -> None:
        # An old ClusterRole may lack a newer APIService; the others still work.
        for name in sorted(forbidden.keys() - self._forbidden):
            log.warning(
                "APIService %s is ignored because it cannot be read; if it refers to this Service, "
                "add its name to the ClusterRole in manifests/base/rbac.yaml: %s",
                name,
                forbidden[name],
            )
        self._forbidden = frozenset(forbidden)

    def _warn_of_insecure(self, insecure: frozenset[str]) -> None:
        for name in sorted(insecure - self._insecure):
            log.warning(
                "APIService %s has insecureSkipTLSVerify: anyone who takes over this adapter's "
                "address can answer the API server; remove it to have the caBundle published",
                name,
            )
        self._insecure = insecure


def _parse(document: Mapping[str, Any], spec: Mapping[str, Any]) -> ApiService:
    try:
        pem = base64.b64decode(spec.get("caBundle") or "")
        trusted = frozenset(x509.load_pem_x509_certificates(pem) if pem.strip() else ())
    except UNREADABLE:
        trusted = frozenset()  # differs from what is published, so it is overwritten
    conditions = (document.get("status") or {}).get("conditions") or ()
    return ApiService(
        name=document["metadata"]["name"],
        resource_version=document["metadata"].get("resourceVersion", ""),
        trusted=trusted,
        insecure=bool(spec.get("insecureSkipTLSVerify")),
        available=any(
            (each.get("type"), each.get("status")) == ("Available", "True") for each in conditions
        ),
    )


def _availability(service: ApiService) -> str:
    return f"{service.name} {'available' if service.available else 'not available'}"
