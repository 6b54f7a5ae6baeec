"""Requests the metrics of HPAs from two metrics servers, and reports how the answers differ.

The server that the APIServices name is reached through the API server, which needs only the right
to read the metrics. The other one is reached at a URL, such as that of `kubectl port-forward`. The
proxy of the API server for Services would not do: it drops the identity of the caller, and metrics
servers refuse anonymous requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yarl

from adapter import errors
from adapter.cli.doctor.client import ApiClient
from adapter.clients.credentials import Credentials, token_file
from adapter.clients.kubernetes import Kube
from rules.errors import RulesError, UnreadableError
from rules.findings import Finding, State, ok, skipped
from rules.hpa import autoscaler, reading
from rules.hpa.reading import ApiRequest
from rules.metrics_apis import CUSTOM, EXTERNAL
from rules.migration.comparison import differences

_HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
_API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices/"
_NOT_V2 = "it is not an HPA of autoscaling/v2 that the API server accepts"
_QPS, _BURST, _TIMEOUT = 50.0, 100, 20.0


_VERDICTS = {
    State.OK: "same",
    State.WARNING: "close",
    State.FAILURE: "differs",
    State.SKIPPED: "not compared",
}


@contextlib.asynccontextmanager
async def server(text: str, api: ApiClient, token: str | None) -> AsyncIterator[ApiClient]:
    """Yield a client of a URL or a Service, or `api` if its APIServices name the Service.

    An empty text means the server that the APIServices name. `token` is a file with the bearer
    token for a URL; the credentials of `api` are not sent there. The certificate is not verified on
    loopback, where a port-forward ends. Raises UnreadableError.
    """
    if "://" not in text:
        if text:
            await _registered(text, api)
        yield api
        return
    try:
        url = yarl.URL(text.rstrip("/"))
        local = _is_loopback(url.host or "")
        if token and url.scheme != "https" and not local:
            raise UnreadableError(f"{text} would get the token in clear text: use https")
        authorization = token_file(Path(token)) if token else None
        credentials = Credentials(verified=not local, authorization=authorization)
        kube = Kube.of_server(str(url), credentials, qps=_QPS, burst=_BURST, timeout=_TIMEOUT)
    except (errors.BackendError, ValueError) as error:
        raise UnreadableError(str(error)) from error
    try:
        yield ApiClient(kube)
    finally:
        await kube.close()


async def compare(
    api: ApiClient, original: ApiClient, ours: ApiClient, hpas: Sequence[Mapping[str, Any]] = ()
) -> list[Finding]:
    """Compare the metrics of the HPAs, or of all in the cluster. Raises UnreadableError."""
    found = []
    for document in hpas or (await api.run(reading.get(_HPAS)))["items"] or ():
        found += [each async for each in _of_hpa(api, original, ours, document)]
    return found


async def _of_hpa(
    api: ApiClient, original: ApiClient, ours: ApiClient, document: Mapping[str, Any]
) -> AsyncIterator[Finding]:
    metadata = document["metadata"]
    name = f"{metadata['namespace']}/{metadata.get('name', '(without a name)')}"
    try:
        hpa = autoscaler.autoscaler(document)
        requests = await api.run(reading.requests(hpa))
    except (RulesError, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = str(error) if isinstance(error, UnreadableError) else _NOT_V2
        yield skipped(name, reason)
        return
    for metric, request in zip(hpa.metrics, requests, strict=True):
        if metric.type in {"Resource", "ContainerResource"}:
            continue
        subject = f"{name}: {metric}"
        if isinstance(request, UnreadableError):
            yield skipped(subject, str(request))
            continue
        # At the same time, because values change.
        one, other = await asyncio.gather(original.reply(request), ours.reply(request))
        for each in [*differences(one, other)] or [ok(subject, "")]:
            yield replace(each, subject=subject)


def line(finding: Finding) -> str:
    """Return the line of the report about one metric."""
    return ": ".join(filter(None, (finding.subject, _VERDICTS[finding.state], finding.fact)))


async def _registered(text: str, api: ApiClient) -> None:
    namespace, _, name = text.partition("/")
    for api_group in (CUSTOM, EXTERNAL):
        reply = await api.reply(ApiRequest(path=f"{_API_SERVICES}{api_group.apiservices[0]}"))
        service = (reply.document.get("spec") or {}).get("service") or {}
        if (service.get("namespace"), service.get("name")) == (namespace, name):
            return
    raise UnreadableError(
        f"{text} serves no APIService. Run: kubectl -n {namespace} port-forward service/{name} "
        "6443:443, and pass https://127.0.0.1:6443 in its place"
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
