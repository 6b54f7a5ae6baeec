from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certs import renew
from certs.renew import CertificatePolicy
from tools.certificates import DAY, NOW

POLICY = CertificatePolicy(
    name="adapter",
    hosts=("adapter.ns.svc", "adapter.ns"),
    serving=10 * DAY,
    authority=100 * DAY,
    propagation=dt.timedelta(hours=1),
)
HOUR = dt.timedelta(hours=1)


def known_to_all(_certificate):
    return True


def known_to_none(_certificate):
    return False


def reconcile(state, now, *, policy=POLICY, known=known_to_all, jitter=0.0):
    return renew.reconcile(state, policy, now=now, known=known, jitter=jitter)


@pytest.fixture(scope="module")
def created():
    return renew.create(POLICY, now=NOW)


@pytest.fixture(scope="module")
def announced(created):
    return reconcile(created, NOW + 60 * DAY)


def test_a_new_state_has_a_ca_and_a_certificate(created):
    assert created.serving.names == POLICY.hosts
    assert created.serving.until == NOW + 10 * DAY
    assert created.trusted == (created.authority.certificate,)
    assert created.ca_bundle == created.authority.pem
    created.serving.leaf.verify_directly_issued_by(created.authority.certificate)


@pytest.mark.parametrize(
    ("after", "jitter", "renewed"),
    [
        pytest.param(0 * DAY, 0.0, False, id="new"),
        pytest.param(6 * DAY - HOUR, 0.0, False, id="before-60-percent"),
        pytest.param(6 * DAY, 0.0, True, id="due"),
        pytest.param(6 * DAY, 1.0, False, id="not-due-with-jitter"),
        pytest.param(7 * DAY, 1.0, True, id="due-with-jitter"),
        pytest.param(30 * DAY, 0.0, True, id="expired"),
    ],
)
def test_a_certificate_is_renewed_after_60_to_70_percent_of_its_lifetime(
    created, after, jitter, renewed
):
    now = NOW + after

    reconciled = reconcile(created, now, jitter=jitter)

    assert (reconciled is not created) is renewed
    assert reconciled.authority is created.authority
    assert reconciled.trusted == created.trusted
    if renewed:
        assert reconciled.serving.until == now + POLICY.serving


def test_a_certificate_is_reissued_at_once_for_other_hosts(created):
    policy = CertificatePolicy(name="adapter", hosts=("other.ns.svc",))

    reconciled = reconcile(created, NOW + HOUR, policy=policy)

    assert reconciled.serving.names == policy.hosts
    assert reconcile(reconciled, NOW + HOUR, policy=policy) is reconciled


def test_an_old_ca_announces_its_successor_and_continues_to_issue(created, announced):
    assert announced.authority is created.authority
    assert announced.next_ca is not None
    assert announced.trusted == (announced.next_ca.certificate, created.authority.certificate)
    announced.serving.leaf.verify_directly_issued_by(created.authority.certificate)


@pytest.mark.parametrize(
    ("after", "known"),
    [
        pytest.param(HOUR - dt.timedelta(seconds=1), known_to_all, id="too-new"),
        pytest.param(2 * HOUR, known_to_none, id="not-known-to-all"),
    ],
)
def test_the_next_ca_does_not_issue_until_all_clients_trust_it(announced, after, known):
    assert reconcile(announced, NOW + 60 * DAY + after, known=known) is announced


def test_the_next_ca_issues_then_and_the_old_ca_stays_trusted(announced):
    now = NOW + 60 * DAY + HOUR

    reconciled = reconcile(announced, now, known=lambda each: each == announced.next_ca.certificate)

    assert reconciled.authority is announced.next_ca
    assert reconciled.next_ca is None
    assert reconciled.trusted == announced.trusted
    reconciled.serving.leaf.verify_directly_issued_by(announced.next_ca.certificate)


def test_a_retired_ca_is_trusted_until_its_last_certificate_expires(announced):
    reconciled = reconcile(announced, NOW + 60 * DAY + HOUR)
    last = announced.serving.until

    before = reconcile(reconciled, last - dt.timedelta(seconds=1))
    after = reconcile(before, last)

    assert before.trusted == announced.trusted
    assert after.trusted == (announced.next_ca.certificate,)


def test_an_expiring_ca_is_replaced_even_if_clients_do_not_trust_the_next(created):
    state = created
    for day in range(100):
        state = reconcile(state, NOW + day * DAY, known=known_to_none)
    assert state.authority is created.authority
    assert state.serving.until == created.authority.certificate.not_valid_after_utc
    assert reconcile(state, NOW + 99 * DAY + HOUR, known=known_to_none) is state

    reconciled = reconcile(state, NOW + 100 * DAY - HOUR, known=known_to_none)

    assert reconciled.authority is state.next_ca


def test_an_expired_state_is_renewed_in_one_step(created):
    reconciled = reconcile(created, NOW + 1000 * DAY, known=known_to_none)

    assert reconciled.serving.until == NOW + 1010 * DAY
    assert reconciled.trusted == (reconciled.authority.certificate,)
    assert reconciled.authority is not created.authority


def test_a_next_ca_that_expired_is_replaced(announced):
    now = NOW + 1000 * DAY

    reconciled = reconcile(announced, now, known=known_to_none)

    assert reconciled.serving.until == now + POLICY.serving
    assert announced.next_ca.certificate not in reconciled.trusted


def test_announce_adds_one_next_ca(created):
    rotating = renew.announce(created, POLICY, now=NOW)

    assert rotating.next_ca is not None
    assert rotating.serving is created.serving
    assert renew.announce(rotating, POLICY, now=NOW + DAY) is rotating
    assert reconcile(rotating, NOW + HOUR).authority is rotating.next_ca


@settings(max_examples=10, deadline=None)
@given(
    pauses=st.lists(st.floats(min_value=0.01, max_value=30), min_size=10, max_size=40),
    delays=st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_every_served_certificate_is_of_a_ca_that_was_trusted_before(pauses, delays):
    """Clients have the caBundle of the last step and must trust what is served now."""
    state, now = renew.create(POLICY, now=NOW), NOW
    for pause, is_known in zip(pauses, delays, strict=False):
        before, now = state, now + dt.timedelta(days=pause)
        state = reconcile(state, now, known=known_to_all if is_known else known_to_none)
        assert state.serving.until > now
        if now < before.authority.certificate.not_valid_after_utc - POLICY.propagation:
            assert state.authority.certificate in before.trusted
            assert before.authority.certificate in state.trusted or before.serving.until <= now
