from __future__ import annotations

import pytest

from adapter.server.evaluation.shared_query import Freshness
from rules import kinds, ruleset
from rules.document.sources import DEFAULT
from rules.query import catalog
from rules.query.catalog import Step


def steps(*own: str) -> list[Step]:
    """Return a step of one rule for each freshness; of a rule without one, if it is empty."""
    rules = "".join(
        f"- {{seriesQuery: m{number}, metricsQuery: m, resources: {{namespaced: false}}"
        f"{each and ', freshness: ' + each}}}\n"
        for number, each in enumerate(own)
    )
    compiled = ruleset.load([("rules.yaml", f"externalRules:\n{rules}")])
    sources = [
        entry.source
        for entry in catalog.build(compiled, {}, kinds.Kinds.builtin()).external.values()
    ]
    return [Step(source=source, binding=source.bindings[0]) for source in sources]


@pytest.mark.parametrize(
    ("took", "seconds"), [(0, 1), (0.001, 1), (0.02, 1), (0.04, 2), (0.1, 5), (60, 5)]
)
def test_automatic_freshness_is_fifty_times_the_duration(took, seconds):
    assert Freshness(default=None).of(steps(""), took) == seconds


@pytest.mark.parametrize(
    ("interval", "seconds"), [(0.5, 1), (1.0, 1), (2.0, 2), (5.0, 4), (30.0, 4)]
)
def test_automatic_freshness_is_at_most_the_scrape_interval(interval, seconds):
    known = Freshness(default=None, intervals={DEFAULT: interval})

    assert known.of(steps(""), took=0.08) == seconds


@pytest.mark.parametrize(
    ("own", "server", "seconds"),
    [
        ([""], 3.0, 3),
        (["20s"], 3.0, 20),
        (["20s"], 0.0, 20),
        ([""], 0.0, 0),
        (["0s"], None, 0),
        (["", "20s"], 3.0, 20),
        (["20s", "10s"], 3.0, 10),
    ],
)
def test_freshness_of_a_rule_counts_before_that_of_the_server(own, server, seconds):
    assert Freshness(default=server).of(steps(*own), took=0.08) == seconds
