"""Whether Prometheus answers, from the outcomes of requests."""

from __future__ import annotations

import pytest

from adapter import errors
from adapter.clients.reachability import Reachability, problem_of
from rules.findings import State
from tools.waiting import Clock


@pytest.fixture
def clock():
    return Clock()


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (errors.Unreachable("10.0.0.1"), "cannot be reached (check --prometheus-url)"),
        (
            errors.NoCredentials("https://10.0.0.1"),
            (
                "has no credentials (the log says why; check --prometheus-token-file, "
                "--prometheus-header or another flag for credentials)"
            ),
        ),
        (
            errors.TimedOut("10.0.0.1"),
            "does not respond in time (check its load, and --prometheus-timeout)",
        ),
        (
            errors.Broken("10.0.0.1: 502"),
            "fails, or what answers is not Prometheus (check --prometheus-url)",
        ),
        (
            errors.Refused("10.0.0.1", status=403),
            (
                "refuses the credentials (status 403; set --prometheus-token-file, "
                "--prometheus-header or another flag for credentials)"
            ),
        ),
        (
            errors.Refused("10.0.0.1", status=404),
            "has no API at this URL (status 404; check --prometheus-url)",
        ),
    ],
)
def test_a_failure_lasts_since_the_first_one_until_an_answer(clock, error, problem):
    prometheus = Reachability(clock)
    assert prometheus.check().fact == "not queried yet"
    for clock.now in (60.0, 90.0):
        prometheus.failed(error, began=clock.now)

    assert prometheus.check().fact == f"{problem}, since 1970-01-01T00:01:00+00:00"
    assert prometheus.check().state is State.WARNING

    prometheus.answered(partial="")
    assert prometheus.check().fact == "answers"


def test_responses_are_whole_after_a_minute_without_a_partial_one(clock, caplog):
    caplog.set_level("INFO")
    prometheus = Reachability(clock, source="far")
    for clock.now, partial in ((60.0, "store-1"), (70.0, ""), (90.0, "store-1"), (149.0, "")):
        prometheus.answered(partial=partial)
        assert prometheus.check().fact == (
            "sends partial responses (check its storage nodes, stores and replicas; the log quotes "
            "it), since 1970-01-01T00:01:00+00:00"
        )
    prometheus.failed(errors.Refused("bad query", status=400), began=150.0)
    assert prometheus.check().state is State.WARNING

    clock.now = 151.0
    prometheus.answered(partial="")

    assert prometheus.check().fact == "answers"
    assert [each.message for each in caplog.records] == [
        "Prometheus (source far) is partial: store-1",
        "Prometheus (source far) is whole again",
    ]


@pytest.mark.parametrize(
    "error",
    [errors.Refused("bad query", status=400), errors.TooLarge("x"), errors.NotInstantError("x")],
)
def test_an_answer_that_concerns_one_request_is_an_answer(clock, error):
    prometheus = Reachability(clock)
    clock.now = 1.0

    prometheus.failed(error, began=0.5)

    assert prometheus.check().fact == "answers"


def test_one_slow_query_among_others_is_no_failure(clock):
    prometheus = Reachability(clock)
    clock.now = 20.0
    prometheus.answered(partial="")
    clock.now = 30.0

    prometheus.failed(errors.TimedOut("slow"), began=0.0)

    assert prometheus.check().fact == "answers"


def test_the_problem_of_a_source_names_its_keys():
    assert problem_of(errors.Unreachable("x"), "a").endswith("(check sources.a.url)")
    assert problem_of(errors.Refused("x", status=401), "a") == (
        "refuses the credentials (status 401; set tokenFile, headers or another key for "
        "credentials in sources.a)"
    )
