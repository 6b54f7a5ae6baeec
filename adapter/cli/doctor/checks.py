"""The checks of `doctor`, and the connections that they need."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from adapter import errors, settings
from adapter.cli.doctor import (
    autoscalers,
    backend,
    deployment,
    installation,
    permissions,
    registration,
    report,
)
from adapter.cli.doctor.client import default_namespace
from adapter.cli.doctor.installation import Installed
from adapter.clients import sources
from adapter.clients.kubernetes import Kube
from adapter.settings.kubectl import KubectlSettings, NamespaceSettings
from rules import rbac
from rules.findings import Finding, State, failure, skipped

_QPS, _BURST = 50.0, 100
_TIMEOUT = 5.0
"""Seconds for one request, and until the API server must have answered."""
_FROM_HERE = "set --prometheus-url to a URL that is reachable from here"
_EVERY = NamespaceSettings()
_OUTSIDE = "run doctor on a computer with a kubeconfig: the adapter needs no such right"
_KUBECONFIG = "set --kubeconfig or --context to a cluster that kubectl reaches"


async def examine(
    cluster: KubectlSettings,
    *,
    prometheus: settings.PrometheusSettings | None,
    namespaces: NamespaceSettings = _EVERY,
) -> tuple[Finding, ...]:
    """Return what all checks found, root causes first."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            api = await Kube.connect(cluster, qps=_QPS, burst=_BURST, timeout=_TIMEOUT)
            stack.push_async_callback(api.close)
            async with asyncio.timeout(_TIMEOUT):
                found, user = await installation.api_server(api)
        except (errors.BackendError, TimeoutError) as error:
            fact = str(error) or f"no answer within {_TIMEOUT:g} s"
            unreached = (
                failure("api-server", fact, cure=_KUBECONFIG),
                skipped("cluster", "not checked without the API server"),
            )
            return (*unreached, *await report.run({"prometheus": _prometheus(prometheus)}))
        try:
            installed = await registration.find(api, user)
            registered = registration.registered(installed)
        except errors.BackendError as error:
            installed, registered = Installed(api=api, user=user), _fail(error)
        checks = {
            "apiservices": registered,
            "service": installation.endpoints(installed),
            "serving-certificate": _of_service(installed, registration.served),
            "front-proxy": installation.front_proxy(installed),
            "rights": _of_service(installed, permissions.of_adapter),
            "rights of the HPA controller": permissions.of_hpas(installed),
            "prometheus": _deployed(installed, prometheus),
            "adapter": _of_service(installed, installation.health),
            "autoscalers": autoscalers.metrics(installed, namespaces, default_namespace(cluster)),
            "metrics": installation.metrics(installed),
        }
        findings = tuple(_related(await report.run(checks)))
        if installed.namespace and user.startswith(f"system:serviceaccount:{installed.namespace}:"):
            findings = tuple(map(_from_pod, findings))
        return (*found, *findings)


def _from_pod(finding: Finding) -> Finding:
    """Return a finding of a pod of the adapter, whose account should get no further right."""
    return replace(finding, cure=_OUTSIDE) if finding.reason == rbac.REASON else finding


async def _fail(error: Exception) -> Iterable[Finding]:
    raise error


async def _of_service(
    installed: Installed, check: Callable[[Installed], Awaitable[Iterable[Finding]]]
) -> Iterable[Finding]:
    """Return what a check of the Service finds; nothing without one, as the check of it says."""
    return await check(installed) if installed.service else ()


def _related(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the findings; what Prometheus lacks is the cause why no metric is listed."""
    cause = cure = ""
    for each in findings:
        if each.subject == "prometheus" and each.state is State.FAILURE:
            cause, cure = "no rule could be listed, because queries fail", "see prometheus"
        elif each.reason == backend.EMPTY:
            cause, cure = "Prometheus has no series at all", "see exporters"
    for each in findings:
        related = cause and each.cause == installation.NO_SERIES
        yield replace(each, cause=cause, cure=cure) if related else each


async def _deployed(
    installed: Installed, told: settings.PrometheusSettings | None
) -> Sequence[Finding]:
    """Return the findings about Prometheus, with the flags of the Deployment unless `told`."""
    try:
        found = await deployment.flags(installed)
    except errors.BackendError:
        found = None
    if found is None:
        return await _prometheus(told, api=installed.api)
    sources_used = found.rules.sources
    automatic = not sources_used or settings.AUTO in sources_used
    presets = frozenset(each.name for each in sources_used if each.kind == "preset")
    presets = frozenset() if automatic else presets
    elsewhere = f"run {installed.command}; or {_FROM_HERE}"
    in_pods = found.embedded.url == found.prometheus.url
    if in_pods and not told and os.environ.get("POD_NAMESPACE") != installed.namespace:
        return [skipped("prometheus", "it listens in the adapter's pods only", elsewhere)]
    # Pods that Prometheus does not scrape may be those that the one in the adapter's pods does.
    api = installed.api if in_pods or found.embedded.url is None else None
    return await _prometheus(
        told or found.prometheus, presets, api=api, elsewhere="" if told else elsewhere
    )


async def _prometheus(
    flags: settings.PrometheusSettings | None,
    presets: frozenset[str] = frozenset(),
    *,
    api: Kube | None = None,
    elsewhere: str = "",
) -> Sequence[Finding]:
    """Return the findings; `elsewhere` is as for `backend.findings`: the flags are of the pods."""
    if flags is None:
        return [skipped("prometheus", "its URL is not known", _FROM_HERE)]
    bounded = replace(flags, timeout=min(flags.timeout, _TIMEOUT))
    try:
        async with sources.connect_prometheus(bounded) as connected:
            return await backend.findings(connected, presets, api=api, elsewhere=elsewhere)
    except errors.StartError as error:
        if elsewhere:
            return [skipped("prometheus", f"not from here: {error}", elsewhere)]
        return [failure("prometheus", str(error), cure="correct the flag")]
