from __future__ import annotations

import pytest

from adapter import errors
from adapter.server.evaluation.fallback import Demoted, Fallback
from rules import ruleset
from rules.selectors import selectors

(RULE,) = ruleset.load([("rules.yaml", "rules:\n- {seriesQuery: a, metricsQuery: a}")]).rules
WHERE = "rules[0] (rules.yaml:2)"
TOO_LARGE = errors.TooLarge("longer than 16 MiB")
TIMED_OUT = errors.TimedOut("no response within 30 s")
EVERYTHING = selectors.parse("")
REFUSED = errors.Refused("422 execution: duplicate series", status=422)


def failed(*failures: tuple[errors.BackendError, bool], at: float = 100.0) -> Fallback:
    fallback = Fallback(RULE, Demoted(), selector=EVERYTHING)
    for error, wide in failures:
        fallback.failed(error, wide=wide, now=at, error_ttl=1.0)
    return fallback


@pytest.mark.parametrize("error", [TOO_LARGE, REFUSED])
def test_rule_is_demoted_for_ten_minutes_and_the_error_is_not_shared(error):
    fallback = failed((error, False))

    assert fallback.demoted(100)
    assert fallback.demoted(699)
    assert not fallback.demoted(700)
    assert fallback.error(100) is None


def test_too_large_result_without_names_only_requires_names():
    fallback = failed((TOO_LARGE, True))

    assert not fallback.demoted(100)
    assert not fallback.wide(699)
    assert fallback.wide(700)


def test_timeout_is_shared_and_counts_for_a_minute_and_the_second_one_for_ten():
    once, twice = failed((TIMED_OUT, False)), failed(*[(TIMED_OUT, False)] * 2)

    assert str(once.error(100.9)) == str(TIMED_OUT)
    assert once.error(101) is None
    assert not once.demoted(160)
    assert twice.demoted(160)


@pytest.mark.parametrize(
    "error",
    [
        errors.Unreachable("no route"),
        errors.Broken("503 Service Unavailable"),
        errors.Refused("401 Unauthorized", status=401),
        errors.Refused("429 Too Many Requests", status=429),
    ],
)
def test_failure_of_prometheus_is_shared_and_demotes_nothing(error):
    fallback = failed((error, True))

    assert str(fallback.error(100.5)) == str(error)
    assert fallback.wide(100)
    assert not fallback.demoted(100)


def test_too_many_names_demote_the_rule_until_names_are_not_needed():
    fallback = failed((TIMED_OUT, True))

    fallback.cannot_merge("too many names", 110)

    assert fallback.demoted(159)
    assert not fallback.demoted(160)


def test_failure_with_a_metric_selector_demotes_only_the_requests_with_it(caplog):
    demoted = Demoted()
    selected, other = (
        Fallback(RULE, demoted, selector=selectors.parse(text)) for text in ("a=b", "a=c")
    )
    everything = Fallback(RULE, demoted, selector=EVERYTHING)
    for fail in (
        lambda: selected.failed(REFUSED, wide=False, now=100, error_ttl=1),
        lambda: selected.cannot_merge("too many names", 100),
    ):
        fail()

        assert selected.demoted(699)
        assert not selected.demoted(700)
        assert not other.demoted(100)
        assert not everything.demoted(100)
        assert demoted.rules(100) == ()
        assert caplog.messages.pop().startswith(
            f"{WHERE} with the metric selector 'a=b': the query"
        )

    everything.failed(REFUSED, wide=False, now=100, error_ttl=1)
    assert other.demoted(100)
