"""Checks of `doctor`: APIServices and the certificate that the API server must trust."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from collections.abc import Iterable, Mapping
from typing import Any

from cryptography import x509

from adapter import errors
from adapter.background import gather_or_cancel
from adapter.cli.doctor.installation import Installed, certificates_problem, expires_soon
from rules.findings import Finding, failure, ok, skipped, warning
from rules.metrics_apis import APIS, CUSTOM, MetricsApi

_PATH = "/apis/apiregistration.k8s.io/v1/apiservices"
_DIAL_TIMEOUT = 3.0
_APPLY = "kubectl apply -k manifests/base"
_NETWORK = (
    "the API server cannot connect to the adapter",
    "allow traffic from the API servers to the port of the pods (firewall, NetworkPolicy)",
)
_TRUST = (
    "the adapter rejects the API server's front proxy, whose certificate is of another CA",
    (
        "update the file of --requestheader-client-ca-file if the adapter has this flag; otherwise "
        "let it `get` and `watch` the ConfigMap kube-system/extension-apiserver-authentication"
    ),
)
_CAUSES: Mapping[str, tuple[str, str]] = {
    "certificate has expired": (
        "the serving certificate has expired",
        (
            "renew the files of --tls-cert-file and --tls-private-key-file; the adapter reads them "
            "again"
        ),
    ),
    "x509": (
        "the caBundle does not fit the serving certificate",
        (
            "set caBundle to the CA of the certificate in --tls-cert-file; without this flag, the "
            "adapter sets caBundle itself if it may patch the APIService (see rights)"
        ),
    ),
    "context deadline exceeded": _NETWORK,
    "Client.Timeout": _NETWORK,
    "i/o timeout": _NETWORK,
    "connection refused": (
        "nothing listens there: the adapter does not run, or listens on another port",
        (
            "start the adapter (kubectl get pods), and compare --secure-port with the port of the "
            "Service"
        ),
    ),
    "no route": _NETWORK,
    "no such host": _NETWORK,
    ": 401": _TRUST,
    ": 403": _TRUST,
    "unknown certificate": _TRUST,
    ": EOF": _TRUST,  # the server of Python ends a handshake without an alert
}
"""Part of the message of the condition -> cause and cure."""
_BY_REASON: Mapping[str, tuple[str, str]] = {
    "ServiceNotFound": ("its Service does not exist", f"{_APPLY}, or correct spec.service"),
    "ServicePortError": ("its Service has no such port", "correct spec.service.port"),
    "EndpointsNotFound": ("no pod is behind its Service", "see service"),
    "MissingEndpoints": ("no ready pod is behind its Service", "see service"),
}


async def registered(installed: Installed) -> Iterable[Finding]:
    """Return the state of the APIService of each group and version."""
    names = [name for api in APIS for name in api.apiservices]
    documents = await gather_or_cancel(installed.find(f"{_PATH}/{name}") for name in names)
    return [
        _judge(name, document, installed) for name, document in zip(names, documents, strict=True)
    ]


async def is_own(installed: Installed, api: MetricsApi) -> bool:
    """Return whether the APIService of a group refers to the adapter's Service."""
    document = await installed.find(f"{_PATH}/{api.apiservices[-1]}")
    return document is not None and _owner(document) == installed.name


def _owner(document: Mapping[str, Any]) -> str:
    """Return `NAMESPACE/NAME` of the Service of an APIService."""
    service = (document.get("spec") or {}).get("service") or {}
    return f"{service.get('namespace', '')}/{service.get('name', '')}"


def _judge(name: str, document: Mapping[str, Any] | None, installed: Installed) -> Finding:
    subject, required = f"apiservice {name}", name.endswith(f".{CUSTOM.name}")
    if document is None:
        if not required:
            return ok(subject, "does not exist: the component for this API is not installed")
        cure = f"apply the manifests: {_APPLY}"
        return failure(subject, "does not exist", cure=cure)
    spec, owner = document.get("spec") or {}, _owner(document)
    if owner != installed.name:
        return _of_another(subject, owner, installed, required=required)
    if finding := _unavailable(subject, document):
        return finding
    if spec.get("insecureSkipTLSVerify"):
        return warning(
            subject,
            "is Available, with insecureSkipTLSVerify",
            cause="whoever takes over the adapter's address can answer the API server",
            cure="remove it; the adapter then publishes its caBundle",
        )
    return ok(subject, f"is Available, served by {owner}")


def _of_another(subject: str, owner: str, installed: Installed, *, required: bool) -> Finding:
    fact = f"belongs to {owner.strip('/') or 'the API server itself'}, not to {installed.name}"
    if not required:
        return ok(subject, fact)
    return failure(
        subject,
        fact,
        cause="only one adapter can serve an API group, and this is another one",
        cure=f"uninstall the other adapter, then {_APPLY}; or set --namespace and --service",
    )


def _unavailable(subject: str, document: Mapping[str, Any]) -> Finding | None:
    conditions = (document.get("status") or {}).get("conditions") or ()
    found = [each for each in conditions if each.get("type") == "Available"]
    available: Mapping[str, str] = found[0] if found else {}
    if available.get("status") == "True":
        return None
    reason = available.get("reason", "the API server has not checked it yet")
    message = " ".join(available.get("message", "").split())
    cause, cure = _BY_REASON.get(reason) or next(
        (known for part, known in _CAUSES.items() if part in message),
        ("", "see service and serving-certificate, and the log of the adapter"),
    )
    fact = f"is not Available: {reason}{message and f': {message}'}"
    return failure(subject, fact, cause=cause, cure=cure)


async def served(installed: Installed) -> Iterable[Finding]:
    """Return whether the caBundle is valid and verifies the certificate that is served."""
    name = CUSTOM.apiservices[-1]
    document = await installed.find(f"{_PATH}/{name}")
    if document is None:
        return [skipped("serving-certificate", f"APIService {name} does not exist")]
    spec = document.get("spec") or {}
    if _owner(document) != installed.name:
        return [skipped("serving-certificate", f"APIService {name} is not this adapter's")]
    if spec.get("insecureSkipTLSVerify"):
        return [skipped("serving-certificate", f"APIService {name} has insecureSkipTLSVerify")]
    cure = "see rights: the adapter publishes the caBundle if it may patch the APIService"
    try:
        bundle = base64.b64decode(spec.get("caBundle") or "", validate=True)
    except binascii.Error:
        bundle = b"-"
    if not bundle:
        fact = f"APIService {name} has no caBundle"
        return [failure("serving-certificate", fact, cure=cure)]
    if problem := certificates_problem(bundle):
        fact = f"the caBundle of APIService {name} {problem}"
        return [failure("serving-certificate", fact, cure=cure)]
    return [await _dial(installed, int(spec["service"].get("port") or 443), bundle, cure)]


async def _dial(installed: Installed, port: int, bundle: bytes, cure: str) -> Finding:
    """Return whether a TLS connection as by the API server succeeds."""
    name = f"{installed.service}.{installed.namespace}.svc"
    try:
        host = (await installed.service_spec() or {}).get("externalName") or name
    except errors.Refused:
        host = name
    context = ssl.create_default_context(cadata=bundle.decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Go does not make these checks
    try:
        async with asyncio.timeout(_DIAL_TIMEOUT):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        fact = f"{name}:{port} has a certificate that the caBundle does not verify"
        return failure("serving-certificate", fact, cause=error.verify_message, cure=cure)
    except (OSError, TimeoutError) as error:
        cause = str(error) or "no answer"
        return skipped("serving-certificate", f"{name}:{port} is not reachable from here: {cause}")
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    certificate = x509.load_der_x509_certificate(der)
    until = f"valid until {certificate.not_valid_after_utc:%Y-%m-%d}"
    if expires_soon(certificate):
        return warning("serving-certificate", f"is {until}", cure="renew it; see the log")
    return ok("serving-certificate", f"is verified by the caBundle, {until}")
