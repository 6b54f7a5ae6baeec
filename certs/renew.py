"""When a certificate and its authority are replaced, so that no client ever meets a stranger.

Clients trust the authorities of `State.trusted`. A new authority is among them, as `next_ca`, from
before it issues the first certificate; an old one stays, as `former`, until the last certificate
that it issued has expired and so is gone from every replica.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from certs.bundle import Bundle
from certs.issue import BACKDATED, Authority

_SPENT = 0.6
"""The part of its life after which a certificate may be replaced; it must be `_SPREAD` later."""
_SPREAD = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RetiredCA:
    """An authority that issues nothing any more."""

    last: x509.Certificate
    """What it issued last; until this expires, the authority is trusted."""
    certificate: x509.Certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What all replicas share."""

    authority: Authority
    serving: Bundle
    """Issued by `authority`."""
    next_ca: Authority | None = None
    former: tuple[RetiredCA, ...] = ()

    @property
    def trusted(self) -> tuple[x509.Certificate, ...]:
        """The authorities that clients have to trust, the newest first."""
        next_ca = () if self.next_ca is None else (self.next_ca.certificate,)
        former = (each.certificate for each in self.former)
        return (*next_ca, self.authority.certificate, *former)

    @property
    def ca_bundle(self) -> bytes:
        """Those in PEM."""
        pem = serialization.Encoding.PEM
        return b"".join(certificate.public_bytes(pem) for certificate in self.trusted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """For whom certificates are, and for how long."""

    name: str
    """For the subjects."""
    hosts: tuple[str, ...]
    serving: timedelta = timedelta(days=7)
    authority: timedelta = timedelta(days=365)
    settle: timedelta = timedelta(minutes=5)
    """How long a new authority is trusted before it issues anything: every API server has seen it
    by then."""


def create(policy: Policy, *, now: datetime) -> State:
    """A new authority, and what it issued."""
    authority = Authority.create(policy.name, now=now, valid=policy.authority)
    return State(authority=authority, serving=_issue(authority, policy, now))


def announce(state: State, policy: Policy, *, now: datetime) -> State:
    """The same with a new authority to come, whether the present one is old or not."""
    if state.next_ca is not None:
        return state
    next_ca = Authority.create(policy.name, now=now, valid=policy.authority)
    return dataclasses.replace(state, next_ca=next_ca)


def reconcile(
    state: State,
    policy: Policy,
    *,
    now: datetime,
    known: Callable[[x509.Certificate], bool],
    jitter: float,
) -> State:
    """What is to be shared from now on; `state` itself, where nothing is due.

    `known` tells of an authority whether every client has been told to trust it. `jitter`, from 0
    to 1, tells replicas apart, lest all of them renew at the same moment.
    """
    if _due(state.authority.certificate, now, jitter):
        state = announce(state, policy, now=now)
    if state.next_ca is not None and _may_issue(state, policy, now, known):
        former = RetiredCA(last=state.serving.leaf, certificate=state.authority.certificate)
        state = State(
            authority=state.next_ca,
            serving=_issue(state.next_ca, policy, now),
            former=(former, *state.former),
        )
    elif _replaceable(state, policy, now, jitter):
        state = dataclasses.replace(state, serving=_issue(state.authority, policy, now))
    trusted = tuple(each for each in state.former if now < each.last.not_valid_after_utc)
    if trusted != state.former:
        state = dataclasses.replace(state, former=trusted)
    return state


def _may_issue(
    state: State, policy: Policy, now: datetime, known: Callable[[x509.Certificate], bool]
) -> bool:
    assert state.next_ca is not None
    settled = now >= _since(state.next_ca.certificate) + policy.settle
    # Clients that were never told lose nothing more when the old one expires anyway.
    ending = now >= state.authority.certificate.not_valid_after_utc - policy.settle
    return ending or (settled and known(state.next_ca.certificate))


def _replaceable(state: State, policy: Policy, now: datetime, jitter: float) -> bool:
    lacking = not set(policy.hosts) <= set(state.serving.names)
    # Near its own end an authority could issue nothing that lasts longer.
    lasting = state.serving.until < state.authority.certificate.not_valid_after_utc
    return lacking or (lasting and _due(state.serving.leaf, now, jitter))


def _issue(authority: Authority, policy: Policy, now: datetime) -> Bundle:
    return authority.issue(policy.hosts, name=policy.name, now=now, valid=policy.serving)


def _due(certificate: x509.Certificate, now: datetime, jitter: float) -> bool:
    since = _since(certificate)
    life = certificate.not_valid_after_utc - since
    return now >= since + life * (_SPENT + _SPREAD * jitter)


def _since(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_before_utc + BACKDATED
