"""Creates what secures the server: TLS, authentication and authorization.

The cluster authenticates and authorizes callers. With --objects there is no cluster, so there is
no guard; the settings then allow loopback addresses only.
"""

from __future__ import annotations

import datetime as dt
import os
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from adapter import errors, telemetry
from adapter.clients import own_rights
from adapter.clients.kubernetes import Kube
from adapter.server.api.groups.group import AnyGroup
from adapter.server.app.host import Host
from adapter.server.auth import trust
from adapter.server.auth.authentication import Authenticator
from adapter.server.auth.authorization import Authorizer
from adapter.server.auth.filters import Guard
from adapter.server.auth.in_flight import WaitingForReview
from adapter.server.auth.tokens import TokenReviews
from adapter.server.tls import context as tls
from adapter.server.tls import serving_certificate
from adapter.server.tls.apiservices import APIServiceController
from adapter.settings import Settings
from adapter.settings.serving import CertKeyPair
from certs import secret
from certs.bundle import CertificateError
from certs.issue import issue_temporary
from certs.renew import CertificatePolicy

_REVIEW_QPS, _REVIEW_BURST = 200.0, 400
"""TokenReviews per second, and SubjectAccessReviews per second, as in the original's clients."""
_CONTROL_QPS, _CONTROL_BURST = 20.0, 40
"""Requests per second for the ConfigMap, the Secret and the APIServices. A start takes about 15."""
_NAMESPACE = "gpu-metrics-adapter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """TLS and access control of the server."""

    context: ssl.SSLContext
    guard: Guard | None
    """None without a cluster: every request is allowed."""
    on_listening: Callable[[], None]
    """Function to call once the server listens."""


async def connect(host: Host, groups: Iterable[AnyGroup]) -> Security:
    """Build TLS and access control, and start their background tasks. Raises StartError."""
    settings = host.settings
    meter = telemetry.CertificateMetrics(host.registry)
    pair = _pair(settings)
    try:
        default = None if pair is None else tls.watch(pair)
        bundle = (
            issue_temporary((settings.serving.bind_address,), now=dt.datetime.now(dt.UTC))
            if default is None
            else default.value
        )
        live = tls.ReloadingContext(bundle, options=settings.serving.tls_options, meter=meter)
        watcher = tls.CertificateWatcher(live, default, settings.serving.sni)
    except CertificateError as error:
        raise errors.StartError(str(error)) from error
    host.start("certificate files", watcher.run())
    host.check("serving-certificate", live.check)
    if settings.cluster.objects:
        return Security(context=live.context, guard=None, on_listening=lambda: None)
    api = await _connect(host, settings.authentication.kubeconfig or settings.cluster.kubeconfig)
    guard = await _guard(host, api, live)
    service = settings.serving.service_name
    namespace = namespace_of(settings)
    names = [name for group in groups for name in group.API.apiservices]
    apiservices = APIServiceController(api, names, service=service, namespace=namespace)
    host.rights.require(api, lambda: own_rights.of_apiservices(names))
    if pair is None:
        host.rights.require(api, lambda: (own_rights.of_secret(service, namespace),))
        issuer = serving_certificate.ServingCertificateController(
            api,
            apiservices,
            live.serve,
            name=secret.name_of(service),
            namespace=namespace,
            policy=CertificatePolicy.of_service(service, namespace),
            meter=meter,
        )
        await issuer.attempt()
        host.start("serving certificate", issuer.run())
        host.check("serving-ca", issuer.check, public=False)
    host.check("apiservices", apiservices.check, public=False)
    return Security(
        context=live.context,
        guard=guard,
        on_listening=lambda: host.start("apiservices", apiservices.run()),
    )


def namespace_of(settings: Settings) -> str:
    """Return the namespace of the adapter's Service."""
    return settings.serving.service_namespace or os.environ.get("POD_NAMESPACE") or _NAMESPACE


def _pair(settings: Settings) -> CertKeyPair | None:
    """Return the files of --tls-cert-file, else those in --cert-dir if both exist."""
    serving = settings.serving
    if serving.tls_cert_file is not None and serving.tls_key_file is not None:
        return CertKeyPair(certificate=Path(serving.tls_cert_file), key=Path(serving.tls_key_file))
    folder = Path(serving.cert_dir)
    pair = CertKeyPair(certificate=folder / "apiserver.crt", key=folder / "apiserver.key")
    return pair if pair.certificate.exists() and pair.key.exists() else None


async def _guard(host: Host, api: Kube, live: tls.ReloadingContext) -> Guard:
    settings, meter = host.settings, telemetry.AuthMetrics(host.registry)
    flags = settings.authentication
    client_cas, proxy_cas = flags.client_ca_file, flags.requestheader_client_ca_file
    source = trust.TrustSource(
        None if flags.skip_lookup else api,
        client_ca_file=None if client_cas is None else Path(client_cas),
        proxy_ca_file=None if proxy_cas is None else Path(proxy_cas),
        headers=trust.RequestHeaderConfig(
            allowed_names=flags.requestheader_allowed_names,
            username_headers=flags.requestheader_username_headers,
            uid_headers=flags.requestheader_uid_headers,
            group_headers=flags.requestheader_group_headers,
            extra_prefixes=flags.requestheader_extra_headers_prefix,
        ),
        tolerant=flags.tolerate_lookup_failure,
    )
    try:
        await source.start()
    except CertificateError as error:
        raise errors.StartError(str(error)) from error
    except errors.BackendError as error:
        raise errors.StartError(
            f"client CAs and request-header settings: {error}\n"
            "--authentication-tolerate-lookup-failure starts the server without them"
        ) from error
    source.subscribe(lambda trust: live.request_client_certs((trust.client_cas, trust.proxy_cas)))
    if not flags.skip_lookup or client_cas or proxy_cas:
        host.start("trust", source.run())
    reviewer = api
    if settings.authorization.kubeconfig is not None:
        reviewer = await _connect(host, settings.authorization.kubeconfig)
    followed = () if flags.skip_lookup else (own_rights.AUTHENTICATION_CONFIG,)
    host.rights.require(api, lambda: (own_rights.TOKEN_REVIEWS, *followed))
    host.rights.require(reviewer, lambda: (own_rights.ACCESS_REVIEWS,))
    # Callers cause reviews. Their rate limits are separate, so that a flood of callers delays
    # neither the serving certificate nor the CAs.
    waiting = WaitingForReview()
    token_reviews = TokenReviews(
        api.with_rate(qps=_REVIEW_QPS, burst=_REVIEW_BURST), ttl=flags.token_ttl, waiting=waiting
    )
    authenticator = Authenticator(lambda: source.current, token_reviews, meter=meter)
    authorizer = Authorizer(
        reviewer.with_rate(qps=_REVIEW_QPS, burst=_REVIEW_BURST),
        allowed_ttl=settings.authorization.allowed_ttl,
        denied_ttl=settings.authorization.denied_ttl,
        always_allow_paths=settings.authorization.always_allow_paths,
        waiting=waiting,
        meter=meter,
    )
    guard = Guard(authenticator, authorizer)
    host.lookups.add("tokens", token_reviews.results.entries)
    host.lookups.add("decisions", authorizer.decisions.entries)
    return guard


async def _connect(host: Host, kubeconfig: str | None) -> Kube:
    try:
        kube = await Kube.connect(kubeconfig, qps=_CONTROL_QPS, burst=_CONTROL_BURST)
    except errors.BackendError as error:
        raise errors.StartError(str(error)) from error
    host.connections.push_async_callback(kube.close)
    return kube
