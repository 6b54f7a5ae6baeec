"""Our APIServices: whom the API server must trust, and that it looks again as soon as we listen.

Only those are touched that exist and name our Service. One with `insecureSkipTLSVerify` has it on
purpose, and cannot have a caBundle besides: it is left alone, with a warning.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from cryptography import x509

from adapter import errors
from certs.bundle import UNREADABLE

log = logging.getLogger(__name__)

INTERVAL = 30.0
"""Seconds between two looks."""

_PATH = "/apis/apiregistration.k8s.io/v1/apiservices/"
_PAUSES = (0.5, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds after each annotation. Then it is up to the API server, which tries every 30 s anyway."""
_ANNOTATION = "gpu-metrics-adapter/listened-at"
_FORBIDDEN, _NOT_FOUND, _CONFLICT = 403, 404, 409


class Api(Protocol):
    """Knows how to read and change objects of the cluster; see `kube.Kube`."""

    async def get(self, path: str) -> Any: ...

    async def patch(self, path: str, document: Any) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiService:
    """One that names our Service."""

    name: str
    resource_version: str
    trusted: frozenset[x509.Certificate]
    """What its caBundle holds."""
    insecure: bool
    available: bool

    def trusts(self, authority: x509.Certificate) -> bool:
        return self.insecure or authority in self.trusted


class APIServiceController:
    """The APIServices `names` (`v1beta1.custom.metrics.k8s.io`) of one Service."""

    def __init__(
        self,
        api: Api,
        names: Iterable[str],
        *,
        service: str,
        namespace: str,
        interval: float = INTERVAL,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._names = tuple(names)
        self._service = {"name": service, "namespace": namespace}
        self._interval = interval
        self._clock = clock
        self._sleep = sleep
        self._remark = "not looked at yet"
        self._insecure: frozenset[str] = frozenset()
        self._forbidden: frozenset[str] = frozenset()

    def check(self) -> str:
        """For /readyz: how they stand. Never fails, for only what is ready can become available."""
        return self._remark

    async def look(self) -> tuple[ApiService, ...]:
        """Ours as they are now, save those that we may not read. Raises BackendError."""
        found: list[ApiService] = []
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
                found.append(_read(document, spec))
        if len(forbidden) == len(self._names):
            raise errors.Refused(next(iter(forbidden.values())), status=_FORBIDDEN)
        told = (*map(_standing, found), *(f"{name} not ours to read" for name in forbidden))
        self._remark = ", ".join(told) or "there are none that name our Service"
        self._warn_of_forbidden(forbidden)
        self._warn(frozenset(each.name for each in found if each.insecure))
        return tuple(found)

    async def publish(
        self, found: Iterable[ApiService], authorities: frozenset[x509.Certificate], pem: bytes
    ) -> bool:
        """Have `authorities`, and nobody else, trusted by those that `look` found.

        False if one has changed since: look again, then decide again whom to trust. Raises
        BackendError.
        """
        spec = {"caBundle": base64.b64encode(pem).decode()}
        for each in found:
            if each.insecure or each.trusted == authorities:
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
        """Annotate those that are not available, now that we listen, and whenever that is lost.

        Any write makes the API server try us at once, where it would wait for up to 30 s.
        """
        written, failures, failure = 0, 0, ""
        while True:
            try:
                written = await self._have_looked(written)
                failures, failure = 0, ""
            except errors.BackendError as error:
                if str(error) != failure:
                    log.warning("the APIServices cannot be told that we listen: %s", error)
                failures, failure = failures + 1, str(error)
            pause = self._interval
            if failures:
                pause = min(pause, 2.0 ** (failures - 1))
            elif 0 < written <= len(_PAUSES):
                pause = _PAUSES[written - 1]
            await self._sleep(pause)

    async def _have_looked(self, written: int) -> int:
        """How often they were annotated by now, one after the other; 0 when all are available."""
        lacking = [each for each in await self.look() if not each.available]
        if not lacking:
            return 0
        if written < len(_PAUSES):
            for each in lacking:
                await self._annotate(each)
        return written + 1

    async def _annotate(self, service: ApiService) -> None:
        # A write that changes nothing is none.
        annotations = {_ANNOTATION: self._clock().isoformat()}
        await self._api.patch(_PATH + service.name, {"metadata": {"annotations": annotations}})

    def _warn_of_forbidden(self, forbidden: Mapping[str, str]) -> None:
        """Rights from before a group was served must not cost the others theirs."""
        for name in sorted(forbidden.keys() - self._forbidden):
            log.warning(
                "APIService %s is passed over; if it names our Service, add it to the names that "
                "manifests/base/rbac.yaml lets us get and patch: %s",
                name,
                forbidden[name],
            )
        self._forbidden = frozenset(forbidden)

    def _warn(self, insecure: frozenset[str]) -> None:
        for name in sorted(insecure - self._insecure):
            log.warning(
                "APIService %s has insecureSkipTLSVerify: the API server sends its questions, and "
                "believes the answers, of whoever takes our address; without it, the caBundle is "
                "published here",
                name,
            )
        self._insecure = insecure


def _read(document: Mapping[str, Any], spec: Mapping[str, Any]) -> ApiService:
    try:
        pem = base64.b64decode(spec.get("caBundle") or "")
        trusted = frozenset(x509.load_pem_x509_certificates(pem) if pem.strip() else ())
    except UNREADABLE:
        # Whatever this is, it is not what is to be published.
        trusted = frozenset()
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


def _standing(service: ApiService) -> str:
    return f"{service.name} {'available' if service.available else 'not available'}"
