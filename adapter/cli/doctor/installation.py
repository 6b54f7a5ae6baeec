"""Checks of `doctor`: API server, Service, pods of the adapter, front proxy, listed metrics."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import orjson
from cryptography import x509

from adapter import errors
from adapter.background import gather_or_cancel
from adapter.clients import own_rights
from adapter.clients.kubernetes import Kube, Reply, status_message
from adapter.clients.rights import Account
from certs.bundle import UNREADABLE
from rules import rbac
from rules.findings import Finding, State, failure, ok, skipped, warning
from rules.metrics_apis import CUSTOM

_HELM = "meta.helm.sh/release"
"""Beginning of the annotations of what Helm installs."""
_SELF_REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_MAX_SKEW = 5.0
"""Seconds. Certificates and tokens tolerate more, timestamps of metrics do not."""
_MAX_PODS = 5
NO_SERIES = "no rule selects a series that Prometheus has"
"""Why no metric is listed, unless the checks of Prometheus say why."""
_BEYOND = re.compile(
    r"\[\+\](team-rules|autoscalers) ok: .*\b[1-9][0-9]* (refused|metrics left out)"
)
"""Lines of /readyz about objects that limits may refuse. They are no fault of the adapter."""
_STATES = {"[+]": State.OK, "[!]": State.WARNING, "[-]": State.FAILURE}
_SEE = "see the log, and docs/operations.md#what-do-the-health-checks-mean"
_RAISE = (
    "read the Events of the ConfigMaps (RulesRefused) and the log about HPAs; where a limit is the "
    "reason, start the adapter with --limit=NAME=NUMBER"
)
_SOON = 86400.0
"""Seconds before the end of a certificate; the adapter renews its own earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The installation to check, as `registration.find` finds it, and the user who checks it."""

    api: Kube
    user: str
    apiservices: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    """Documents of the APIServices of all groups and versions; None for one that does not exist."""
    namespace: str = ""
    service: str = ""
    """Service in front of the adapter; empty if no APIService refers to one."""

    @property
    def name(self) -> str:
        """Namespace and name of the Service."""
        return f"{self.namespace}/{self.service}"

    @property
    def own(self) -> Mapping[str, Mapping[str, Any]]:
        """APIServices that refer to the Service."""
        found = {name: each for name, each in self.apiservices.items() if each is not None}
        return {name: each for name, each in found.items() if owner(each) == self.name}

    @property
    def command(self) -> str:
        """Return the command that runs doctor in a pod."""
        return (
            f"kubectl -n {self.namespace} exec service/{self.service} -- gpu-metrics-adapter doctor"
        )

    @property
    def apply(self) -> str:
        """Return how to apply again what was installed."""
        for document in self.own.values():
            annotations = (document.get("metadata") or {}).get("annotations") or {}
            if release := annotations.get(f"{_HELM}-name"):
                within = annotations.get(f"{_HELM}-namespace", self.namespace)
                again = f"helm -n {within} get manifest {release} | kubectl apply -f -"
                return f"apply the manifests again: {again}"
        return "apply the manifests again: kubectl apply -k with your overlay"

    @property
    def path(self) -> str:
        """Path of the namespace in the API."""
        return f"/api/v1/namespaces/{self.namespace}"

    async def find(self, path: str) -> Mapping[str, Any] | None:
        """Return the document at a path; None if it does not exist. Raises BackendError."""
        try:
            document: Mapping[str, Any] = await self.api.get(path)
        except errors.Refused as error:
            if error.status != 404:
                raise
            return None
        return document

    async def service_spec(self) -> Mapping[str, Any] | None:
        """Return the `spec` of the Service; None if it does not exist. Raises BackendError."""
        document = await self.find(f"{self.path}/services/{self.service}") if self.service else None
        return None if document is None else document.get("spec") or {}

    async def pods(self) -> Sequence[Mapping[str, Any]]:
        """Return the pods that the Service selects, at most five. Raises BackendError."""
        found = (await self.service_spec() or {}).get("selector") or {}
        if not found:
            return ()
        selector = ",".join(f"{key}={value}" for key, value in found.items())
        listed = await self.api.get(f"{self.path}/pods", {"labelSelector": selector, "limit": "50"})
        return (listed.get("items") or ())[:_MAX_PODS]


def owner(apiservice: Mapping[str, Any]) -> str:
    """Return `NAMESPACE/NAME` of the Service of an APIService; `/` without one."""
    service = (apiservice.get("spec") or {}).get("service") or {}
    return f"{service.get('namespace', '')}/{service.get('name', '')}"


async def api_server(api: Kube) -> tuple[Sequence[Finding], str]:
    """Return what answers and as whom it knows us, and the user. Raises BackendError."""
    reply = await api.fetch("/version")
    now = time.time()
    if reply.status != 200:
        raise errors.Refused(f"GET /version: status {reply.status}", status=reply.status)
    version = orjson.loads(reply.body).get("gitVersion", "an unknown version")
    try:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await api.post(_SELF_REVIEW, review)
        user = str(answer["status"]["userInfo"].get("username", ""))
    except (errors.BackendError, KeyError, TypeError):
        user = ""
    findings = [ok("api-server", f"Kubernetes {version} answers {user or 'an unknown user'}")]
    try:
        skew = now - parsedate_to_datetime(reply.headers["Date"]).timestamp() - 0.5
    except (KeyError, ValueError):
        return findings, user
    return [*findings, clock("API server", skew)], user


def clock(of: str, skew: float) -> Finding:
    """Return what follows from our clock being `skew` seconds ahead of another one."""
    name = f"clock of {of}"
    if abs(skew) <= _MAX_SKEW:
        return ok(name, f"equals the local clock within {_MAX_SKEW:g} s")
    direction = "behind" if skew > 0 else "ahead of"
    return warning(
        name,
        f"is {abs(skew):.0f} s {direction} the local clock",
        cause="samples look older or newer than they are, and certificates may not be valid",
        cure="run NTP on all nodes, and on the computer that runs doctor",
    )


async def endpoints(installed: Installed) -> Iterable[Finding]:
    """Return whether ready pods are behind the Service; if not, why."""
    if not installed.service:
        fact = "not known, because no APIService refers to this adapter"
        if not installed.apiservices:
            fact = "not known, because the APIServices cannot be read"
        return [skipped("service", fact, cure="see apiservices")]
    spec = await installed.service_spec()
    if spec is None:
        fact = f"Service {installed.name} does not exist"
        return [failure("service", fact, cure=installed.apply)]
    if spec.get("type") == "ExternalName":
        return [ok("service", f"{installed.name} stands for {spec.get('externalName')}")]
    slices = await installed.api.get(
        f"/apis/discovery.k8s.io/v1/namespaces/{installed.namespace}/endpointslices",
        {"labelSelector": f"kubernetes.io/service-name={installed.service}"},
    )
    ready = sum(
        (each.get("conditions") or {}).get("ready") is not False
        for item in slices.get("items") or ()
        for each in item.get("endpoints") or ()
    )
    if ready:
        return [ok("service", f"{installed.name} has {ready} ready endpoints")]
    return [
        failure(
            "service",
            f"{installed.name} has no ready endpoint",
            cause=_unready(await installed.pods(), spec.get("selector") or {}),
            cure=f"kubectl -n {installed.namespace} describe pods, and read their log",
        )
    ]


def _unready(pods: Sequence[Mapping[str, Any]], selector: Mapping[str, str]) -> str:
    if not pods:
        labels = ",".join(f"{key}={value}" for key, value in selector.items())
        return f"no pod has the labels of its selector ({labels or 'it has none'})"
    return "; ".join(f"pod {pod['metadata']['name']} is {_state(pod)}" for pod in pods)


def _state(pod: Mapping[str, Any]) -> str:
    """Return why a pod is not ready, as its status says."""
    status = pod.get("status") or {}
    for each in status.get("containerStatuses") or ():
        waiting = (each.get("state") or {}).get("waiting")
        if waiting:
            message = waiting.get("message", "")
            return f"waiting: {waiting.get('reason', '')}{message and f' ({message})'}"
    phase = status.get("phase", "Unknown")
    for each in status.get("conditions") or ():
        if each.get("type") in {"PodScheduled", "Ready"} and each.get("status") != "True":
            return f"{phase}, {each['type']} is false: {each.get('message') or each.get('reason')}"
    return str(phase)


async def account(installed: Installed) -> Account:
    """Return the account of the adapter's pods.

    If they cannot be read, it is that of the caller, who may be such a pod, or has the name of the
    Service as in the manifests.
    """
    try:
        pods = await installed.pods()
    except errors.Refused:
        pods = ()
    for pod in pods:
        if name := (pod.get("spec") or {}).get("serviceAccountName"):
            return Account(namespace=installed.namespace, name=name)
    own = Account(namespace=installed.namespace, name=installed.user.rpartition(":")[2])
    if own.user == installed.user:
        return own
    return Account(namespace=installed.namespace, name=installed.service)


async def health(installed: Installed) -> Iterable[Finding]:
    """Return the degraded and failing health checks of each pod, through the API server."""
    if not (found := await installed.pods()):
        return [skipped("adapter", "its health was not read: the Service selects no pod")]
    every = await gather_or_cancel(_health(installed, pod) for pod in found)
    return [finding for findings in every for finding in findings]


async def readyz(installed: Installed, pod: Mapping[str, Any]) -> Reply:
    """Return what a pod answers to /readyz?verbose, through the API server."""
    containers = (pod.get("spec") or {}).get("containers") or [{}]
    ports = containers[0].get("ports") or [{"containerPort": 6443}]
    address = f"https:{pod['metadata']['name']}:{ports[0]['containerPort']}"
    return await installed.api.fetch(
        f"{installed.path}/pods/{address}/proxy/readyz", {"verbose": ""}
    )


async def _health(installed: Installed, pod: Mapping[str, Any]) -> Sequence[Finding]:
    name = pod["metadata"]["name"]
    reply = await readyz(installed, pod)
    text = reply.body.decode(errors="replace")
    if reply.status in rbac.STATUSES:
        message = status_message(reply.body)
        return [rbac.forbidden(f"adapter {name}", reply.status, message)]
    if "[+]ping" not in text:
        return [skipped(f"adapter {name}", f"/readyz was not read: status {reply.status}")]
    subject = f"adapter {name}"
    return [
        replace(each, subject=subject, fact=f"/readyz: {each.fact}")
        for each in health_checks(text)
        if each.state is not State.OK
    ] or [ok(subject, "all health checks pass")]


def health_checks(text: str) -> Iterator[Finding]:
    """Yield each check in an answer to /readyz?verbose; the subject is its name."""
    for line in text.splitlines():
        if line[:3] in _STATES:
            beyond = _BEYOND.match(line)
            yield Finding(
                state=State.WARNING if beyond else _STATES[line[:3]],
                subject=line[3:].partition(" ")[0],
                fact=line[3:],
                cure=_RAISE if beyond else _SEE,
            )


async def front_proxy(installed: Installed) -> Iterable[Finding]:
    """Return whether the adapter can learn which front proxy to trust."""
    right = own_rights.AUTHENTICATION_CONFIG
    config = f"{right.namespace}/{right.name}"
    path = f"/api/v1/namespaces/{right.namespace}/configmaps/{right.name}"
    data = (await installed.find(path) or {}).get("data") or {}
    if not data.get("requestheader-client-ca-file"):
        return [
            failure(
                "front-proxy",
                f"ConfigMap {config} has no requestheader-client-ca-file",
                cause="the API server runs without the aggregation layer",
                cure="start kube-apiserver with --requestheader-client-ca-file and "
                "--proxy-client-cert-file",
            )
        ]
    problem = certificates_problem(data["requestheader-client-ca-file"].encode())
    if problem:
        return [failure("front-proxy", f"the CA in {config} {problem}", cure="renew this CA")]
    names = data.get("requestheader-allowed-names", "[]")
    return [ok("front-proxy", f"its CA in {config} is valid; allowed names: {names}")]


def certificates_problem(pem: bytes) -> str:
    """Return why no certificate in `pem` is valid now; empty if one is."""
    try:
        ends = [each.not_valid_after_utc for each in x509.load_pem_x509_certificates(pem)]
    except UNREADABLE:
        return "is not a certificate in PEM"
    latest = max(ends)
    return f"expired on {latest:%Y-%m-%d}" if latest < datetime.now(UTC) else ""


def expires_soon(certificate: x509.Certificate) -> bool:
    """Return whether a certificate ends within a day."""
    return (certificate.not_valid_after_utc - datetime.now(UTC)).total_seconds() < _SOON


async def metrics(installed: Installed) -> Iterable[Finding]:
    """Return whether rules select something, as the API server sees it."""
    if installed.own and not any(installed.apiservices[each] for each in CUSTOM.apiservices):
        return [skipped("metrics", f"the cluster has no APIService of {CUSTOM.name}")]
    try:
        document = await installed.api.get(CUSTOM.path())
    except errors.BackendError as error:
        if error.status in rbac.STATUSES:
            raise
        cure = "see apiservice and service: the API server does not reach the adapter"
        if error.status == 404:
            cure = "see apiservice: the API is not registered"
        return [failure("metrics", str(error), cure=cure)]
    number = len(document.get("resources") or ())
    if number:
        return [ok("metrics", f"{CUSTOM.name} lists {number} metrics")]
    return [
        failure(
            "metrics",
            f"{CUSTOM.name} lists no metric",
            cause=NO_SERIES,
            cure="compare the presets and rules with the findings about exporters; "
            "`check FILE --prometheus-url=URL` tells what each rule takes",
        )
    ]
