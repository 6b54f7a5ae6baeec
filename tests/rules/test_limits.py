"""The table of limits, and whether each of them is reached."""

import dataclasses

import pytest

from adapter.settings import settings
from adapter.settings.command_line import UsageError
from rules import admission, limits
from rules.admission import Size
from rules.limits import Claim
from tests.adapter.clients import test_external_metrics, test_team_client
from tests.adapter.server.autoscalers import test_watch, test_watched_hpa
from tests.adapter.server.cluster import test_unreadable
from tests.rules import test_admission, test_team_limits, test_teams
from tests.rules.scrape import test_scraped
from tests.rules.team_edges import EDGES

SHARED = {
    "team_config_maps_all": "config_maps",
    "team_text_all": "characters",
    "team_rules_all": "rules",
    "team_pattern_memory_all": "pattern_memory",
}
REACHED = {
    "team_config_maps": test_admission.test_the_oldest_config_maps_of_a_namespace_are_read,
    "team_values": test_team_limits.test_values_that_aliases_repeat_are_limited,
    "team_template_steps": test_team_limits.test_steps_of_a_template_are_limited,
    "team_series": test_teams.test_a_rule_of_too_many_series_has_no_metrics,
    "team_pattern_memory": (
        test_admission.test_rules_refused_for_their_patterns_take_nothing_of_the_rules
    ),
    "team_requests": test_team_client.test_a_namespace_has_as_many_requests_at_a_time_as_its_limit,
    "team_requests_all": (
        test_team_client.test_a_prometheus_that_hangs_gets_at_most_twelve_requests_at_a_time
    ),
    "team_response": test_team_client.test_a_response_to_a_team_has_four_mebibytes_at_most,
    "team_samples": test_team_client.test_a_query_of_a_team_returns_as_many_samples_as_its_limit,
    "team_names": test_team_client.test_a_listing_of_a_team_returns_a_thousand_names_at_most,
    "hpa_metrics": test_watched_hpa.test_metrics_beyond_the_limit_of_one_hpa_are_left_out,
    "hpa_metrics_all": test_watch.test_what_is_left_out_is_in_the_gauge_and_once_in_the_log,
    "hpa_metric_text": test_watched_hpa.test_a_metric_of_too_many_bytes_is_left_out_alone,
    "workload_selector": test_unreadable.test_a_workload_with_too_large_a_selector_is_refused,
    "fallback_answer": test_external_metrics.test_a_larger_answer_is_refused_and_the_limit_named,
    "fallback_items": test_external_metrics.test_a_larger_answer_is_refused_and_the_limit_named,
    "fallback_requests": (
        test_external_metrics.test_who_waits_until_the_deadline_learns_which_limit_it_was
    ),
    "fallback_requests_all": (
        test_external_metrics.test_all_namespaces_have_so_many_requests_in_flight_and_the_others_wait
    ),
    **dict.fromkeys(test_scraped.LIMITED, test_scraped.test_pages_beyond_a_limit_are_not_scraped),
}
"""Limits that neither EDGES nor SHARED has, and the test that reaches them."""


def test_each_limit_is_reached_by_a_test():
    reached = [*EDGES, *SHARED, *REACHED]

    assert {each.name for each in dataclasses.fields(limits.Limits)} == set(reached)


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("name", SHARED)
def test_a_limit_of_all_namespaces_admits_as_much_as_it_says(name, more):
    limited = limits.DEFAULT.with_values({limits.name_of(name): 9})
    sizes = {"a": 4, "b": 5 + more}
    if name == "team_config_maps_all":
        places = [(each, str(number)) for each, size in sizes.items() for number in range(size)]
        found = admission.to_read([_claim(*each) for each in places], limited)
    else:
        used = {"rules": 0, "pattern_memory": 0, "characters": 0}
        found = admission.to_use(
            [_claim(each, "m") for each in sizes],
            {(each, "m"): Size(**(used | {SHARED[name]: size})) for each, size in sizes.items()},
            limited,
        )

    assert len(found.refused) == more
    assert all(f"--limit={limits.name_of(name)}" in each for each in found.refused.values())


def _claim(namespace: str, name: str) -> Claim:
    return Claim(namespace=namespace, name=name, created="2026-01-01T00:00:00Z")


def test_each_limit_says_what_it_limits():
    table = list(limits.DEFAULT.table())

    assert len({each.name for each in table}) == len(table)
    assert all(each.unit and each.what and each.beyond and each.value for each in table)


def test_a_flag_changes_a_limit():
    parsed = settings.parse(["--limit=team-rules=7", "--limit=team-text=100"])

    assert parsed.limited.limits == limits.Limits(team_rules=7, team_text=100)


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ("team-rules", "NAME=NUMBER"),
        ("team-rules=-1", "NAME=NUMBER"),
        ("team-rules=0", "team-rules: must be 1 or more"),
        ("rules=1", "rules: is not a limit; the limits are team-config-maps"),
    ],
)
def test_a_wrong_limit_is_refused(argument, problem):
    with pytest.raises(UsageError, match=problem):
        settings.parse([f"--limit={argument}"])


def test_a_limit_is_given_once():
    with pytest.raises(UsageError, match="--limit=team-rules: is given twice"):
        settings.parse(["--limit=team-rules=7", "--limit=team-rules=8"])
