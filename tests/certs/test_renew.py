from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certs import renew
from certs.renew import Policy
from tests.certificates import DAY, NOW

POLICY = Policy(
    name="adapter",
    hosts=("adapter.ns.svc", "adapter.ns"),
    serving=10 * DAY,
    authority=100 * DAY,
    settle=dt.timedelta(hours=1),
)
HOUR = dt.timedelta(hours=1)


def everywhere(_certificate):
    return True


def nowhere(_certificate):
    return False


def reconcile(state, now, *, policy=POLICY, known=everywhere, jitter=0.0):
    return renew.reconcile(state, policy, now=now, known=known, jitter=jitter)


@pytest.fixture(scope="module")
def begun():
    return renew.create(POLICY, now=NOW)


@pytest.fixture(scope="module")
def announced(begun):
    return reconcile(begun, NOW + 60 * DAY)


def test_it_begins_with_an_authority_and_what_that_issued(begun):
    assert begun.serving.names == POLICY.hosts
    assert begun.serving.until == NOW + 10 * DAY
    assert begun.trusted == (begun.authority.certificate,)
    assert begun.ca_bundle == begun.authority.pem
    begun.serving.leaf.verify_directly_issued_by(begun.authority.certificate)


@pytest.mark.parametrize(
    ("after", "jitter", "renewed"),
    [
        pytest.param(0 * DAY, 0.0, False, id="new"),
        pytest.param(6 * DAY - HOUR, 0.0, False, id="not-yet"),
        pytest.param(6 * DAY, 0.0, True, id="due"),
        pytest.param(6 * DAY, 1.0, False, id="another-replica-is-first"),
        pytest.param(7 * DAY, 1.0, True, id="due-for-the-last"),
        pytest.param(30 * DAY, 0.0, True, id="long-expired"),
    ],
)
def test_a_certificate_is_renewed_with_a_third_of_its_life_to_go(begun, after, jitter, renewed):
    now = NOW + after

    stepped = reconcile(begun, now, jitter=jitter)

    assert (stepped is not begun) is renewed
    assert stepped.authority is begun.authority
    assert stepped.trusted == begun.trusted
    if renewed:
        assert stepped.serving.until == now + POLICY.serving


def test_other_hosts_get_another_certificate_at_once(begun):
    policy = Policy(name="adapter", hosts=("other.ns.svc",))

    stepped = reconcile(begun, NOW + HOUR, policy=policy)

    assert stepped.serving.names == policy.hosts
    assert reconcile(stepped, NOW + HOUR, policy=policy) is stepped


def test_an_old_authority_announces_its_successor_and_issues_on(begun, announced):
    assert announced.authority is begun.authority
    assert announced.next_ca is not None
    assert announced.trusted == (announced.next_ca.certificate, begun.authority.certificate)
    announced.serving.leaf.verify_directly_issued_by(begun.authority.certificate)


@pytest.mark.parametrize(
    ("after", "known"),
    [
        pytest.param(HOUR - dt.timedelta(seconds=1), everywhere, id="too-fresh"),
        pytest.param(2 * HOUR, nowhere, id="not-known-to-all"),
    ],
)
def test_the_successor_waits_until_everybody_knows_it(announced, after, known):
    assert reconcile(announced, NOW + 60 * DAY + after, known=known) is announced


def test_the_successor_issues_then_and_the_old_one_stays_trusted(announced):
    now = NOW + 60 * DAY + HOUR

    stepped = reconcile(announced, now, known=lambda each: each == announced.next_ca.certificate)

    assert stepped.authority is announced.next_ca
    assert stepped.next_ca is None
    assert stepped.trusted == announced.trusted
    stepped.serving.leaf.verify_directly_issued_by(announced.next_ca.certificate)


def test_the_old_one_goes_with_the_last_that_it_issued(announced):
    stepped = reconcile(announced, NOW + 60 * DAY + HOUR)
    last = announced.serving.until

    before = reconcile(stepped, last - dt.timedelta(seconds=1))
    after = reconcile(before, last)

    assert before.trusted == announced.trusted
    assert after.trusted == (announced.next_ca.certificate,)


def test_an_authority_near_its_end_gives_way_unknown_or_not(begun):
    state = begun
    for day in range(100):
        state = reconcile(state, NOW + day * DAY, known=nowhere)
    assert state.authority is begun.authority
    assert state.serving.until == begun.authority.certificate.not_valid_after_utc
    assert reconcile(state, NOW + 99 * DAY + HOUR, known=nowhere) is state

    stepped = reconcile(state, NOW + 100 * DAY - HOUR, known=nowhere)

    assert stepped.authority is state.next_ca


def test_what_was_off_for_years_begins_anew_in_one_step(begun):
    stepped = reconcile(begun, NOW + 1000 * DAY, known=nowhere)

    assert stepped.serving.until == NOW + 1010 * DAY
    assert stepped.trusted == (stepped.authority.certificate,)
    assert stepped.authority is not begun.authority


def test_a_change_can_be_asked_for_and_is_asked_for_once(begun):
    asked = renew.announce(begun, POLICY, now=NOW)

    assert asked.next_ca is not None
    assert asked.serving is begun.serving
    assert renew.announce(asked, POLICY, now=NOW + DAY) is asked
    assert reconcile(asked, NOW + HOUR).authority is asked.next_ca


@settings(max_examples=10, deadline=None)
@given(
    pauses=st.lists(st.floats(min_value=0.01, max_value=30), min_size=10, max_size=40),
    delays=st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_whatever_is_served_was_issued_by_who_was_trusted_one_look_before(pauses, delays):
    """Clients know what was trusted at the last look; so they must trust what is served now."""
    state, now = renew.create(POLICY, now=NOW), NOW
    for pause, told in zip(pauses, delays, strict=False):
        before, now = state, now + dt.timedelta(days=pause)
        state = reconcile(state, now, known=everywhere if told else nowhere)
        assert state.serving.until > now
        if now < before.authority.certificate.not_valid_after_utc - POLICY.settle:
            assert state.authority.certificate in before.trusted
            assert before.authority.certificate in state.trusted or before.serving.until <= now
