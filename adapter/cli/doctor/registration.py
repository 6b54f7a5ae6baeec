"""Checks of `doctor`: APIServices and the certificate that the API server must trust."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cryptography import x509

from adapter import errors
from adapter.background import gather_or_cancel
from adapter.cli.doctor import installation
from adapter.cli.doctor.installation import Installed, certificates_problem, expires_soon, owner
from adapter.clients import own_rights, rights
from adapter.clients.kubernetes import Kube
from rules.findings import Finding, failure, ok, skipped, warning
from rules.metrics_apis import APIS, CUSTOM, OPENAPI_TITLE, USAGE, openapi

_PATH = "/apis/apiregistration.k8s.io/v1/apiservices"
_DIAL_TIMEOUT = 3.0
_TITLE_TIMEOUT = 2.0
"""Seconds until a program must have said what it is."""
_INSTALL = "install this adapter (docs/install.md; in place of another one: docs/migration.md)"
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
            "start the adapter (kubectl -n {namespace} get pods), and compare --secure-port with "
            "the port of the Service"
        ),
    ),
    "no route": _NETWORK,
    "no such host": _NETWORK,
    ": 401": _TRUST,
    ": 403": _TRUST,
    "unknown certificate": _TRUST,
    ": EOF": _TRUST,  # the server of Python ends a handshake without an alert
}
"""Part of the message of the condition -> cause and cure, in which the namespace is left open."""
_BY_REASON: Mapping[str, tuple[str, str]] = {
    "ServiceNotFound": ("its Service does not exist", "{apply}; or correct spec.service"),
    "ServicePortError": ("its Service has no such port", "correct spec.service.port"),
    "EndpointsNotFound": ("no pod is behind its Service", "see service"),
    "MissingEndpoints": ("no ready pod is behind its Service", "see service"),
}


async def find(api: Kube, user: str) -> Installed:
    """Return the installation to which the APIServices refer. Raises BackendError.

    If they refer to several Services, it is the first whose program says that it is this one. If
    none does, it is the first that does not say what it is: the API server does not know the
    documents of a new APIService yet, or the program does not run. Other servers, such as KEDA and
    metrics-server, say it; that of metrics.k8s.io is taken for another one if it does not.
    """
    nothing = Installed(api=api, user=user)
    names = [name for group in APIS for name in group.apiservices]
    found = await gather_or_cancel(nothing.find(f"{_PATH}/{name}") for name in names)
    documents = dict(zip(names, found, strict=True))
    this: dict[str, bool | None] = {}
    for available in (True, False):
        for name, document in documents.items():
            service = owner(document or {})
            if service in (*this, owner({})) or _is_available(document or {}) is not available:
                continue
            answer = await _is_this_program(api, name) if available else None
            if answer is not None or name not in USAGE.apiservices:
                this[service] = answer
    certain = [each for each, answer in this.items() if answer]
    possible = [each for each, answer in this.items() if answer is None]
    namespace, _, service = [*certain, *possible, owner({})][0].partition("/")
    return replace(nothing, apiservices=documents, namespace=namespace, service=service)


async def _is_this_program(api: Kube, apiservice: str) -> bool | None:
    """Return whether the OpenAPI document behind an APIService has our title; None without one."""
    try:
        async with asyncio.timeout(_TITLE_TIMEOUT):
            title = (await api.get(openapi(apiservice)))["info"]["title"]
    except (errors.BackendError, TimeoutError, KeyError, TypeError):
        return None
    return bool(title == OPENAPI_TITLE)


async def registered(installed: Installed) -> Iterable[Finding]:
    """Return the state of the APIService of each group and version."""
    return [
        _judge(name, document, installed, required=await _is_required(name, installed))
        for name, document in installed.apiservices.items()
    ]


async def _is_required(name: str, installed: Installed) -> bool:
    """Return whether an APIService is part of the installation, or of any.

    An installation may serve external metrics only. Then its account may not patch the others.
    """
    if not name.endswith(f".{CUSTOM.name}"):
        return False
    if installed.apiservices[name] is not None or not installed.service:
        return True
    (right,) = own_rights.of_apiservices([name])
    try:
        account = await installation.account(installed)
        missing = await rights.missing_of(installed.api, right, account)
    except errors.Refused:
        return True
    return not any("patch" in each.verbs for each in missing)


def _judge(
    name: str, document: Mapping[str, Any] | None, installed: Installed, *, required: bool
) -> Finding:
    subject = f"apiservice {name}"
    if document is None:
        if not required:
            return ok(subject, "does not exist: the component for this API is not installed")
        cure = installed.apply if installed.service else _INSTALL
        return failure(subject, "does not exist", cure=cure)
    if name not in installed.own:
        return _of_another(subject, owner(document), installed, required=required)
    if finding := _unavailable(subject, document, installed):
        return finding
    if (document.get("spec") or {}).get("insecureSkipTLSVerify"):
        return warning(
            subject,
            "is Available, with insecureSkipTLSVerify",
            cause="a server that takes over the adapter's address can answer the API server",
            cure="remove it; the adapter then publishes its caBundle",
        )
    return ok(subject, f"is Available, served by {installed.name}")


def _of_another(subject: str, service: str, installed: Installed, *, required: bool) -> Finding:
    this = installed.name if installed.service else "this adapter"
    fact = f"belongs to {service.strip('/') or 'the API server itself'}, not to {this}"
    if not required:
        return ok(subject, fact)
    return failure(
        subject,
        fact,
        cause="only one adapter can serve an API group, and this is another one",
        cure="uninstall the other adapter, then "
        f"{installed.apply if installed.service else _INSTALL}",
    )


def _condition(document: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the condition Available of an APIService; empty without one."""
    for each in (document.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Available":
            condition: Mapping[str, str] = each
            return condition
    return {}


def _is_available(document: Mapping[str, Any]) -> bool:
    return _condition(document).get("status") == "True"


def _unavailable(subject: str, document: Mapping[str, Any], installed: Installed) -> Finding | None:
    if _is_available(document):
        return None
    available = _condition(document)
    reason = available.get("reason", "the API server has not checked it yet")
    message = " ".join(available.get("message", "").split())
    cause, cure = _BY_REASON.get(reason) or next(
        (known for part, known in _CAUSES.items() if part in message),
        ("", "see service and serving-certificate, and the log of the adapter"),
    )
    fact = f"is not Available: {reason}{message and f': {message}'}"
    cure = cure.format(namespace=installed.namespace, apply=installed.apply)
    return failure(subject, fact, cause=cause, cure=cure)


async def served(installed: Installed) -> Iterable[Finding]:
    """Return whether the caBundle is valid and verifies the certificate that is served."""
    name, document = next(iter(installed.own.items()))
    spec = document.get("spec") or {}
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
