"""Who is let in, and with which certificate: TLS, authentication and authorization, put together.

A part of the composition root. With a cluster, callers are judged as it would judge them, and the
certificate is one of files or of the authority that the replicas share; with `--objects` there is
nobody to ask, and the server listens on a loopback address.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from adapter import errors, telemetry
from adapter.api import health
from adapter.api.groups import GROUPS
from adapter.auth.authentication import Authenticator
from adapter.auth.authorization import Authorizer
from adapter.auth.filters import Guard
from adapter.auth.tokens import TokenReviews
from adapter.auth.trust import TrustSource
from adapter.background import Background
from adapter.clients.kubernetes import Kube
from adapter.settings import Settings
from adapter.tls import context as tls
from adapter.tls import serving_certificate
from adapter.tls.apiservices import APIServiceController
from adapter.tls.files import CertificateWatcher, CertKeyPair
from certs.bundle import CertificateError

log = logging.getLogger(__name__)

QPS, BURST = 200.0, 400
"""Reviews a second, as the original's webhook clients have it."""
_NAMESPACE = "gpu-metrics-adapter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secure:
    """What the server needs to be safe to reach."""

    context: ssl.SSLContext
    guard: Guard | None
    """None where there is no cluster to ask."""
    checks: tuple[health.Check, ...]
    listening: Callable[[], None]
    """To be called once the server listens."""


async def from_settings(
    settings: Settings,
    stack: contextlib.AsyncExitStack,
    background: Background,
    registry: CollectorRegistry,
) -> Secure:
    """Everything as `settings` say. Raises StartError."""
    meter = telemetry.Certificates(registry)
    pair = _pair(settings)
    try:
        now = dt.datetime.now(dt.UTC)
        first = (
            tls.issued(settings.bind_address, now=now)
            if pair is None
            else tls.load(pair.certificate, pair.key)
        )
        live = tls.ReloadingContext(first, options=settings.tls_options, meter=meter)
        files = CertificateWatcher(live, pair, settings.tls_sni)
    except CertificateError as error:
        raise errors.StartError(str(error)) from error
    background.start("certificate files", files.run())
    checks = [health.Check(name="serving-certificate", run=live.check)]
    if settings.objects:
        return Secure(
            context=live.context, guard=None, checks=tuple(checks), listening=lambda: None
        )
    api = await _connect(settings.authentication_kubeconfig or settings.lister_kubeconfig, stack)
    access = telemetry.Access(registry)
    guard = await _guard(settings, api, live, stack, background, access)
    service = settings.service_name
    namespace = settings.service_namespace or os.environ.get("POD_NAMESPACE") or _NAMESPACE
    names = [f"{version}.{group.NAME}" for group in GROUPS for version in group.VERSIONS]
    registration = APIServiceController(api, names, service=service, namespace=namespace)
    if pair is None:
        ours = serving_certificate.ServingCertificateController(
            api,
            registration,
            live.serve,
            name=serving_certificate.secret_name(service),
            namespace=namespace,
            policy=serving_certificate.policy(service, namespace),
            meter=meter,
        )
        await ours.attempt()
        background.start("identity", ours.run())
        checks.append(health.Check(name="identity", run=lambda: _remark(ours.check)))
    checks.append(health.Check(name="apiservices", run=registration.check))
    return Secure(
        context=live.context,
        guard=guard,
        checks=tuple(checks),
        listening=lambda: background.start("registration", registration.run()),
    )


def _pair(settings: Settings) -> CertKeyPair | None:
    """The pair of files that is named, else the one in --cert-dir."""
    if settings.tls_cert_file is not None and settings.tls_private_key_file is not None:
        return CertKeyPair(
            certificate=Path(settings.tls_cert_file), key=Path(settings.tls_private_key_file)
        )
    folder = Path(settings.cert_dir)
    pair = CertKeyPair(certificate=folder / "apiserver.crt", key=folder / "apiserver.key")
    return pair if pair.certificate.exists() and pair.key.exists() else None


async def _guard(
    settings: Settings,
    api: Kube,
    live: tls.ReloadingContext,
    stack: contextlib.AsyncExitStack,
    background: Background,
    meter: telemetry.Access,
) -> Guard:
    client_cas, proxy_cas = settings.client_ca_file, settings.requestheader_client_ca_file
    source = TrustSource(
        None if settings.skip_lookup else api,
        client_ca_file=None if client_cas is None else Path(client_cas),
        proxy_ca_file=None if proxy_cas is None else Path(proxy_cas),
        headers=settings.requestheader,
        tolerant=settings.tolerate_lookup_failure,
    )
    try:
        await source.start()
    except (errors.BackendError, CertificateError) as error:
        raise errors.StartError(
            f"whom to trust cannot be read: {error}\n"
            "--authentication-tolerate-lookup-failure starts without, believing no front proxy"
        ) from error
    source.subscribe(lambda trust: live.request_client_certs((trust.client_cas, trust.proxy_cas)))
    if not settings.skip_lookup or client_cas or proxy_cas:
        background.start("trust", source.run())
    reviewer = api
    if settings.authorization_kubeconfig is not None:
        reviewer = await _connect(settings.authorization_kubeconfig, stack)
    return Guard(
        Authenticator(
            lambda: source.current, TokenReviews(api, ttl=settings.token_ttl), meter=meter
        ),
        Authorizer(
            reviewer,
            allowed_seconds=settings.allowed_ttl,
            denied_seconds=settings.denied_ttl,
            open_paths=settings.always_allow_paths,
            meter=meter,
        ),
    )


async def _connect(kubeconfig: str | None, stack: contextlib.AsyncExitStack) -> Kube:
    try:
        kube = await Kube.connect(kubeconfig, qps=QPS, burst=BURST)
    except errors.BackendError as error:
        raise errors.StartError(str(error)) from error
    stack.push_async_callback(kube.close)
    return kube


def _remark(check: Callable[[], str]) -> str:
    """What `check` says; that it fails is said too, for an unready adapter would be worse off."""
    try:
        return check()
    except RuntimeError:
        return "not shared with other replicas, nor published; the log says why"
