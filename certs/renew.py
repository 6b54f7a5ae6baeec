"""Rotation of serving certificates and their CAs, with an overlap in which both CAs are trusted.

Clients trust `State.trusted`. A new CA is in it as `next_ca` before it issues a certificate; an old
CA stays in it as `retired` until the last certificate that it issued has expired.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509

from certs.bundle import Bundle, pem_of
from certs.issue import BACKDATED, Authority

_RENEW_AFTER = 0.6
"""Part of the lifetime after which a certificate is renewed; `_JITTER` of it is added at most."""
_JITTER = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RetiredCA:
    """A CA that issues no more certificates."""

    last_issued: x509.Certificate
    """Clients must trust the CA until this certificate expires."""
    certificate: x509.Certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedKeys:
    """Certificates and keys that all replicas share."""

    authority: Authority
    serving: Bundle
    """Issued by `authority`."""
    next_ca: Authority | None = None
    """The successor of `authority`; trusted, but not issuing yet."""
    retired: tuple[RetiredCA, ...] = ()

    @property
    def trusted(self) -> tuple[x509.Certificate, ...]:
        """The CA certificates that clients must trust, the newest first."""
        next_ca = () if self.next_ca is None else (self.next_ca.certificate,)
        retired = (each.certificate for each in self.retired)
        return (*next_ca, self.authority.certificate, *retired)

    @property
    def ca_bundle(self) -> bytes:
        """`trusted` in PEM, as for the caBundle of an APIService."""
        return pem_of(self.trusted)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificatePolicy:
    """Names and lifetimes of certificates."""

    name: str
    """Prefix of the subjects."""
    hosts: tuple[str, ...]
    serving: timedelta = timedelta(days=7)
    """Lifetime of serving certificates."""
    authority: timedelta = timedelta(days=365)
    """Lifetime of CAs."""
    propagation: timedelta = timedelta(minutes=5)
    """How long a new CA is trusted before it issues; by then every API server has its caBundle."""

    @classmethod
    def of_service(cls, service: str, namespace: str) -> CertificatePolicy:
        """Return the policy for certificates with the DNS names of a Service."""
        names = (f"{service}.{namespace}.svc", f"{service}.{namespace}", service)
        return cls(name=service, hosts=(*names, f"{service}.{namespace}.svc.cluster.local"))


def create(policy: CertificatePolicy, *, now: datetime) -> SharedKeys:
    """Create a CA and a serving certificate."""
    authority = Authority.create(policy.name, now=now, valid=policy.authority)
    return SharedKeys(authority=authority, serving=_issue(authority, policy, now))


def announce(state: SharedKeys, policy: CertificatePolicy, *, now: datetime) -> SharedKeys:
    """Add a new `next_ca` unless there is one; return the new state."""
    if state.next_ca is not None:
        return state
    next_ca = Authority.create(policy.name, now=now, valid=policy.authority)
    return dataclasses.replace(state, next_ca=next_ca)


def reconcile(
    state: SharedKeys,
    policy: CertificatePolicy,
    *,
    now: datetime,
    known: Callable[[x509.Certificate], bool],
    jitter: float,
) -> SharedKeys:
    """Renew what is due and return the new state; return `state` itself if nothing is due.

    `known` returns whether a CA certificate is in the caBundle of all clients. `jitter`, from 0 to
    1, differs between replicas, so that they do not renew at the same moment.
    """
    if state.next_ca is not None and now >= state.next_ca.certificate.not_valid_after_utc:
        state = dataclasses.replace(state, next_ca=None)
    if _due(state.authority.certificate, now, jitter):
        state = announce(state, policy, now=now)
    if state.next_ca is not None and _may_issue(state, policy, now, known):
        retired = RetiredCA(last_issued=state.serving.leaf, certificate=state.authority.certificate)
        state = SharedKeys(
            authority=state.next_ca,
            serving=_issue(state.next_ca, policy, now),
            retired=(retired, *state.retired),
        )
    elif _must_reissue(state, policy, now, jitter):
        state = dataclasses.replace(state, serving=_issue(state.authority, policy, now))
    needed = tuple(each for each in state.retired if now < each.last_issued.not_valid_after_utc)
    if needed != state.retired:
        state = dataclasses.replace(state, retired=needed)
    return state


def _may_issue(
    state: SharedKeys,
    policy: CertificatePolicy,
    now: datetime,
    known: Callable[[x509.Certificate], bool],
) -> bool:
    assert state.next_ca is not None
    settled = now >= _issued_at(state.next_ca.certificate) + policy.propagation
    # Clients without the new CA lose nothing: the old one expires now in any case.
    expiring = now >= state.authority.certificate.not_valid_after_utc - policy.propagation
    return expiring or (settled and known(state.next_ca.certificate))


def _must_reissue(
    state: SharedKeys, policy: CertificatePolicy, now: datetime, jitter: float
) -> bool:
    lacks_hosts = not set(policy.hosts) <= set(state.serving.names)
    # A certificate that expires with its CA cannot be extended by the same CA.
    extendable = state.serving.until < state.authority.certificate.not_valid_after_utc
    return lacks_hosts or (extendable and _due(state.serving.leaf, now, jitter))


def _issue(authority: Authority, policy: CertificatePolicy, now: datetime) -> Bundle:
    return authority.issue(policy.hosts, name=policy.name, now=now, valid=policy.serving)


def _due(certificate: x509.Certificate, now: datetime, jitter: float) -> bool:
    issued_at = _issued_at(certificate)
    lifetime = certificate.not_valid_after_utc - issued_at
    return now >= issued_at + lifetime * (_RENEW_AFTER + _JITTER * jitter)


def _issued_at(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_before_utc + BACKDATED
