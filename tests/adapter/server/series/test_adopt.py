"""Rules that are replaced while relists run, against a real Prometheus."""

from __future__ import annotations

import asyncio
import gc
import types
from dataclasses import replace

import pytest

from adapter import telemetry
from adapter.clients.prometheus import Prometheus
from adapter.server.series import relist as relists
from adapter.server.series.relist import Relist
from adapter.server.series.series_index import SeriesIndex
from rules import limits, teams
from rules.kinds import PODS, Kinds
from rules.ruleset import CompiledRule, RuleSet
from tests import world
from tools.fakes import prometheus as fakes
from tools.real import prometheus as real
from tools.waiting import running, until


def rule(selector: str, more: str = "") -> str:
    return f"""
- seriesQuery: '{selector}'
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}},
    exported_pod: {{resource: pod}}}}}}
  metricsQuery: '<<.Series>>{{<<.LabelMatchers>>}}'
  {more}
"""


def rules(*some: str) -> RuleSet:
    return world.load("rules:\n" + "".join(some) if some else "rules: []")


A, B, PATTERN = rule("swap_a"), rule("swap_b"), rule('{__name__=~"other_.*"}')


@pytest.fixture(scope="module")
def server(empty_prometheus: real.Prometheus) -> real.Prometheus:
    for name in ("swap_a", "swap_b", "swap_c", "other_a"):
        empty_prometheus.put(f'{name}{{namespace="n",pod="p",exported_pod="q"}} 1')
    return empty_prometheus


@pytest.fixture
async def proxy(server, serve) -> fakes.Prometheus:
    return await serve(fakes.through(server.url))


@pytest.fixture
def timeout() -> float:
    return 90.0


@pytest.fixture
async def relist(relist_on, proxy, registry, timeout) -> Relist:
    meter = telemetry.RelistMetrics(registry)
    relist = relist_on(rules(A, B, PATTERN), proxy.url, timeout=timeout, meter=meter)
    await relist.once()
    proxy.requests.clear()
    return relist


def metrics(relist: Relist) -> set[str]:
    return {entry.metric for entry in relist.generation.catalog.entries if entry.resource == PODS}


async def test_unchanged_rules_are_not_listed_anew_wherever_they_are(relist, proxy):
    before = relist.generation
    moved = rules(rule("swap_c"), B, PATTERN, A)

    await relist.adopt(moved)

    assert metrics(relist) == {"swap_a", "swap_b", "swap_c", "other_a"}
    assert proxy.requests
    assert all("swap_c" in str(each.parameters) for each in proxy.requests)
    after = relist.generation
    by_series = {each.config.series_query: each.index for each in before.ruleset.rules}
    for each in moved.rules[1:]:
        old = by_series[each.config.series_query]
        assert after.listings[each.index] == before.listings[old]
        assert after.statuses[each.index] == before.statuses[old]


async def test_adopted_rules_without_a_new_one_cause_no_request(relist, proxy):
    await relist.adopt(rules(PATTERN, A))

    assert metrics(relist) == {"swap_a", "other_a"}
    assert not proxy.requests

    await relist.once()

    assert "swap_a" in str([each.parameters for each in proxy.requests])
    assert "swap_b" not in str([each.parameters for each in proxy.requests])


async def test_changed_rule_is_listed_anew_before_the_old_one_ends(relist, proxy):
    seen = []
    behave = proxy.behave

    async def watch(request, received):
        seen.append(metrics(relist))
        return await behave(request, received)

    proxy.behave = watch
    await relist.adopt(rules(A, B, rule('{__name__=~"other_.*"}', "name: {as: renamed}")))

    assert metrics(relist) == {"swap_a", "swap_b", "renamed"}
    assert seen == [{"swap_a", "swap_b", "other_a"}] * len(seen) != []


@pytest.mark.parametrize("timeout", [0.05])
async def test_rules_are_replaced_even_if_prometheus_does_not_answer(relist, proxy):
    proxy.behave = fakes.hangs

    await relist.adopt(rules(A, rule("swap_c")))

    assert metrics(relist) == {"swap_a", "swap_c"}  # the rules fix both names


async def test_present_rules_are_followed_and_no_others(relist_on, proxy):
    relist = relist_on(rules(A, PATTERN), proxy.url, interval=0.05)
    async with running(relist.run()):
        await until(relist.attempted.is_set)
        await relist.adopt(rules(rule("swap_c")))
        proxy.requests.clear()
        await until(lambda: len(proxy.requests) > 20)
    texts = [str(each.parameters) for each in proxy.requests[5:]]  # others may have been on the way
    assert all("swap_c" in text for text in texts)


async def test_removed_rules_leave_nothing_behind(relist, registry):
    await relist.adopt(rules(A, B, rule('{__name__=~"other_[ab]"}')))  # of this test only
    removed = relist.generation.ruleset.rules[2].content
    assert registry.get_sample_value(
        "gpu_metrics_adapter_relist_series_names", {"rule": "rules[2]"}
    )

    await relist.adopt(rules(A))

    def is_gone() -> bool:
        gc.collect()
        alive = (each for each in gc.get_objects() if isinstance(each, CompiledRule))
        return removed not in {each.content for each in alive}

    await until(is_gone)  # a cancelled task ends a little later
    kept = {
        sample.labels["rule"]
        for metric in registry.collect()
        for sample in metric.samples
        if "rule" in sample.labels
    }
    assert kept == {"rules[0]"}


def of_teams(*namespaces: str) -> RuleSet:
    """Return a rule for each of these namespaces."""
    present: dict[str, RuleSet] = {}
    for index, namespace in enumerate(namespaces):
        written = teams.ConfigMap(
            namespace=namespace, name="m", data=(("r.yaml", f"rules:\n{rule('swap_a')}"),)
        )
        own = teams.load(written, label="namespace")
        present[namespace] = replace(own, rules=(replace(own.rules[0], index=index),))
    return replace(rules(), teams=present)


async def test_a_team_whose_listing_hangs_delays_the_rules_of_others_for_a_moment(
    relist_on, server, serve, session, monkeypatch
):
    limits: dict[float, asyncio.Timeout] = {}
    relist_index = SeriesIndex.relist

    def limit(seconds: float) -> asyncio.Timeout:
        return limits.setdefault(seconds, asyncio.timeout(None))

    async def list_in_time(index: SeriesIndex, kinds: Kinds) -> bool:
        """List series; the time for those of teams is over once the first are listed."""
        listed = await relist_index(index, kinds)
        limits[3.0].reschedule(asyncio.get_running_loop().time())
        return listed

    patched = types.SimpleNamespace(**{**vars(asyncio), "timeout": limit})
    monkeypatch.setattr(relists, "asyncio", patched)
    monkeypatch.setattr(SeriesIndex, "relist", list_in_time)

    def spoil(received: fakes.Received) -> fakes.Behaviour | None:
        texts = received.parameters.values()
        return fakes.hangs if any('namespace="slow"' in text for text in texts) else None

    proxy = await serve(fakes.through(server.url, spoil=spoil))
    of_team = Prometheus(session, proxy.url)
    relist = relist_on(rules(), proxy.url, sources={teams.SOURCE: of_team}, timeout=600)

    changed = of_teams("slow", "n")
    await relist.adopt(changed)

    statuses = {
        namespace: relist.statuses[own.rules[0].index] for namespace, own in changed.teams.items()
    }
    assert statuses["slow"].listed is None
    assert statuses["n"].listed is not None
    assert relist.generation.of("n").catalog.entries


async def test_a_listing_of_a_team_beyond_a_limit_fails_and_the_status_names_the_limit(
    relist_on, session, server, serve
):
    proxy = await serve(fakes.through(server.url))
    of_team = Prometheus(session, proxy.url)
    changed = of_teams("n")
    own = changed.teams["n"].rules[0]
    small = replace(own.team, limits=limits.DEFAULT.with_values({"team-response": 10}))
    narrow = replace(own, team=small)
    changed = replace(rules(), teams={"n": replace(changed.teams["n"], rules=(narrow,))})
    relist = relist_on(rules(), proxy.url, sources={teams.SOURCE: of_team})

    await relist.adopt(changed)

    status = relist.statuses[0]
    assert status.failed
    assert "--limit=team-response=10" in status.refusal
