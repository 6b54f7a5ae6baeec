"""Relists of a real Prometheus; failures come from a fake proxy before it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import threading
import time
import types
from collections.abc import Awaitable, Callable
from typing import Any

import prometheus_client
import pytest

from adapter import telemetry
from adapter.clients.prometheus import Prometheus
from adapter.server.series.relist import Relist
from rules import ruleset
from rules.causes.candidates import ListingStatus
from rules.document.sources import DEFAULT
from rules.kinds import PODS, Kinds
from rules.query import catalog, label_binding
from tests import world
from tools.fakes import prometheus as fakes
from tools.real import prometheus as real
from tools.waiting import Clock, running, until

Make = Callable[..., Relist]

NAMES = "/api/v1/label/__name__/values"
SERIES = "/api/v1/series"


def rule(
    series_query: str, *, labels: str = "namespace: namespace, pod: pod", more: str = ""
) -> str:
    """One rule; `labels` is `label: resource` pairs, in order."""
    pairs = (pair.split(": ") for pair in labels.split(", ") if pair)
    overrides = ", ".join(f"{label}: {{resource: {resource}}}" for label, resource in pairs)
    return (
        f"- seriesQuery: '{series_query}'\n"
        f"  resources: {{overrides: {{{overrides}}}{more}}}\n"
        "  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'\n"
    )


SWITCHING = "namespace: namespace, exported_pod: pod, pod: pod"


class Ticks:
    """A clock that advances by one second at each reading, and by more when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture(scope="module")
def server(empty_prometheus: real.Prometheus) -> real.Prometheus:
    return empty_prometheus


@pytest.fixture
def make(relist_on) -> Make:
    def relist(url: str, *rules: str, external: str = "", **options) -> Relist:
        text = "rules:\n" + "".join(rules) if rules else ""
        text += f"externalRules:\n{external}" if external else ""
        return relist_on(world.load(text or "rules: []"), url, **options)

    return relist


@pytest.fixture
def proxy(server, serve) -> Callable[..., Awaitable[fakes.Prometheus]]:
    """Starts a fake that passes requests on to the real Prometheus unless told otherwise."""
    return lambda behave=None, **options: serve(behave or fakes.through(server.url, **options))


BUILTIN = Kinds.builtin()


def only(behave: fakes.Behaviour, *, path: str = "", text: str = "") -> Any:
    """Return what spoils the requests to a path, or with a text among their parameters."""

    def spoil(received: fakes.Received) -> fakes.Behaviour | None:
        spoiled = path in received.path and text in str(received.parameters)
        return behave if spoiled else None

    return spoil


def metrics(relist: Relist) -> set[str]:
    return {entry.metric for entry in relist.generation.catalog.entries if entry.resource == PODS}


def pod_labels(relist: Relist, metric: str) -> tuple[str, ...]:
    """The labels by which the metric is queried for pods."""
    entry = relist.generation.catalog.entry(PODS, metric)
    assert entry
    return tuple(binding.resource for source in entry.sources for binding in source.bindings)


# Names


async def test_names_become_metrics_of_the_resources_that_their_labels_map_to(server, make):
    server.put('one_used{namespace="n",pod="p"} 1', 'one_free{namespace="n"} 1', "one_bare 1")
    relist = make(server.url, rule('{__name__=~"one_.*"}'))

    await relist.once()

    assert {(str(entry.resource), entry.metric) for entry in relist.generation.catalog.entries} == {
        ("pods", "one_used"),
        ("namespaces", "one_used"),
        ("namespaces", "one_free"),
    }


@pytest.mark.parametrize(
    ("selector", "listed"),
    [
        ('{__name__=~"past_.*"}', {"past_new"}),
        ('{__name__=~"past_.*"} # comment', {"past_new"}),
        ('past_old{__name__!~"x"}', set()),
        ('past_new{__name__!~"x"}', {"past_new"}),
    ],
)
async def test_names_that_ended_before_the_window_are_not_listed(
    server, make, caplog, selector, listed
):
    server.put('past_old{namespace="n",pod="p"} 1', at=time.time() - 300)
    server.put('past_new{namespace="n",pod="p"} 1')
    now = time.time()
    window = {"start": str(now - 60), "end": str(now), "match[]": '{__name__=~"past_.*"}'}
    assert server.get(NAMES, **window) == ["past_new", "past_old"]  # the index is a superset

    relist = make(server.url, rule(selector, labels=SWITCHING), max_age=60)
    await relist.once()

    assert metrics(relist) == listed
    assert not caplog.records


async def test_metric_that_ended_is_removed_by_the_exact_query_and_stays_removed(
    server, make, session
):
    clock, monotonic = Clock(time.time()), Ticks()
    server.put('brief{namespace="n",pod="p"} 1', at=clock.now - 2)
    server.put('brief_not{namespace="n",pod="p"} 1', at=clock.now + 60)
    server.put('brief_not{namespace="n",pod="p"} 1', at=clock.now + 61)
    relist = make(
        server.url,
        rule('{__name__=~"brief.*"}'),
        max_age=3,
        clock=clock,
        monotonic=monotonic,
        sources={DEFAULT: Prometheus(session, server.url, clock=clock)},
    )
    await relist.once()
    assert "brief" in metrics(relist)

    clock.now += 10
    await relist.once()
    assert "brief" in metrics(relist)  # the exact query is not due yet

    monotonic.now += 1000
    await relist.once()
    assert "brief" not in metrics(relist)

    await relist.once()
    assert "brief" not in metrics(relist)  # although the index still has it


async def test_exact_query_runs_at_most_a_hundredth_of_the_time(server, make, proxy):
    server.put('pace{namespace="n",pod="p"} 1')
    fake = await proxy()
    monotonic = Ticks()
    relist = make(fake.url, rule("pace"), monotonic=monotonic)

    def exact() -> int:
        return sum("last_over_time" in each.parameters.get("query", "") for each in fake.requests)

    await relist.once()
    await relist.once()
    assert exact() == 1

    monotonic.now += 100
    await relist.once()
    assert exact() == 2


async def test_template_maps_labels_of_kinds_that_the_cluster_has(server, make, proxy):
    server.put('shaped{kube_pod="p",kube_namespace="n",kube_nothing="x",other="y"} 1')
    fake = await proxy()
    text = rule("shaped", labels="", more=", template: kube_<<.Resource>>")
    relist = make(fake.url, text)

    await relist.once()

    assert {(str(entry.resource), entry.metric) for entry in relist.generation.catalog.entries} == {
        ("pods", "shaped"),
        ("namespaces", "shaped"),
    }
    selectors = "".join(str(each.parameters.get("match[]")) for each in fake.requests)
    assert "kube_pod!=" in selectors
    assert "kube_nothing" not in selectors
    assert "other" not in selectors


async def test_a_rule_whose_series_cannot_be_used_is_logged_once(server, make, monkeypatch, caplog):
    server.put('sound{namespace="n",pod="p"} 1')
    build = catalog.build

    def failing(own: ruleset.RuleSet, *more: Any) -> catalog.Catalog:
        if any(each.pinned_series == "broken" for each in own.all):
            raise RecursionError
        return build(own, *more)

    monkeypatch.setattr(catalog, "build", failing)
    relist = make(server.url, rule("broken"), rule("sound"))

    await relist.once()
    first = relist.generation.catalog
    caplog.clear()
    await relist.once()

    assert first.entry(PODS, "sound")
    assert relist.generation.catalog is first
    assert not caplog.records


async def test_rules_with_the_same_selector_share_requests(server, make, proxy):
    server.put('shared{namespace="n",pod="p"} 1')
    fake = await proxy()
    relist = make(fake.url, rule("shared"), rule("shared") + "  name: {as: other}\n")

    await relist.once()

    plain = [each for each in fake.requests if each.parameters.get("match[]") == "shared"]
    assert len(plain) == 1
    assert metrics(relist) == {"shared", "other"}


async def test_window_is_the_last_max_age_seconds(make, proxy, server):
    fake = await proxy()

    await make(fake.url, rule("window"), max_age=120, clock=lambda: 1000.0).once()

    parameters = fake.requests[0].parameters
    assert (parameters["start"], parameters["end"]) == ("880.000", "1000.000")


async def test_external_rules_are_listed_without_resources(server, make):
    server.put('queue{namespace="n"} 1')
    relist = make(server.url, external=rule("queue", labels="namespace: namespace"))

    await relist.once()

    assert list(relist.generation.catalog.external) == ["queue"]


async def test_at_most_eight_requests_are_in_flight(make, proxy):
    in_flight, most = 0, 0
    all_in_flight = asyncio.Event()

    async def count(request, received):
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        if in_flight == 8:
            all_in_flight.set()
        await all_in_flight.wait()
        await asyncio.sleep(0.01)
        in_flight -= 1
        return await fakes.says('{"status":"success","data":[]}')(request, received)

    fake = await proxy(count)

    await make(fake.url, *(rule(f'busy_{number}{{a="b"}}') for number in range(30))).once()

    assert most == 8


async def test_rules_of_one_name_each_with_the_same_labels_share_requests(server, make, proxy):
    selectors: list[str] = []

    async def record(request, received):
        parameters = received.parameters
        selectors.append(parameters.get("match[]", "") or parameters.get("query", ""))
        return await through(request, received)

    server.put('named_0{namespace="n",pod="p"} 1', 'named_2{namespace="n"} 1')
    through = fakes.through(server.url)
    fake = await proxy(record)
    relist = make(fake.url, *(rule(f"named_{number}") for number in range(3)))

    await relist.once()

    assert {str(each.resource): each.metric for each in relist.generation.catalog.entries} == {
        "namespaces": "named_2",
        "pods": "named_0",
    }
    listings = relist.generation.listings
    assert [len(listings[rule].series) for rule in range(3)] == [1, 0, 1]
    assert all("named_0|named_1|named_2" in each or 'namespace=""' in each for each in selectors)


async def test_missing_name_is_listed_by_the_next_refresh(server, make):
    server.put('early{namespace="n",pod="p"} 1')
    relist = make(server.url, rule("early"), rule("late"), refresh_interval=0.1)

    async with running(relist.run()):
        await until(lambda: "early" in metrics(relist))
        server.put('late{namespace="n",pod="p"} 1')
        await until(lambda: "late" in metrics(relist))


async def test_many_names_are_split_into_several_selectors(make, proxy):
    selectors: list[str] = []

    async def record(request, received):
        selectors.append(received.parameters.get("match[]", ""))
        return await fakes.says('{"status":"success","data":[]}')(request, received)

    fake = await proxy(record)

    await make(fake.url, *(rule(f"many_{number}") for number in range(120))).once()

    assert len({each for each in selectors if each.startswith("{")}) == 3


async def test_a_generation_has_what_relists_found_and_not_what_rules_pin(server, make):
    server.put('known_a{namespace="n",other="p"} 1')
    rules = rule("known_a"), rule("known_b"), rule("bad[")
    relist = make(server.url, *rules)
    assert relist.generation.listings == {}
    assert relist.generation.statuses == dict.fromkeys(
        range(3), ListingStatus(listed=None, failed=False)
    )

    await relist.once()

    inventory = relist.generation.inventory(now=time.time())
    known, unknown = inventory.listings[0].series, inventory.listings[1].series
    assert ([each.name for each in known], unknown) == (["known_a"], ())
    assert inventory.series_of(inventory.ruleset.rules[0], "known_a") == known
    assert [inventory.statuses[index].failed for index in range(3)] == [False, False, True]
    assert inventory.statuses[0].listed == pytest.approx(inventory.now, abs=60)


async def test_labels_of_a_series_name_can_be_queried(server, make):
    server.put('carry_a{namespace="n",other="p"} 1', 'carry_b{namespace="n",more="p"} 1')
    relist = make(server.url, rule('{__name__=~"carry_.*"}'))
    (only,) = relist.generation.ruleset.rules
    assert await relist.labels(only, "carry_a") == frozenset()  # match[] is not probed yet

    await relist.once()

    assert await relist.labels(only, "carry_a") == {"namespace", "other"}


# The catalog


class PausedBuild:
    """Holds back every catalog until `proceed` is set."""

    def __init__(self) -> None:
        self.started, self.proceed = threading.Event(), threading.Event()
        self.number = 0
        self._build = catalog.build

    def __call__(self, *arguments):
        self.number += 1
        self.started.set()
        assert self.proceed.wait(60)
        return self._build(*arguments)


async def test_event_loop_is_not_blocked_while_a_catalog_is_built(server, make, monkeypatch):
    server.put('loop_a{namespace="n",pod="p"} 1')
    relist = make(server.url, rule('{__name__=~"loop_.*"}'))
    build = PausedBuild()
    monkeypatch.setattr(catalog, "build", build)

    listing = asyncio.create_task(relist.once())
    await until(build.started.is_set)
    assert not metrics(relist)
    assert not relist.attempted.is_set()

    build.proceed.set()
    await listing
    assert metrics(relist) == {"loop_a"}
    assert relist.attempted.is_set()


async def test_listings_that_change_during_a_build_share_the_next_one(server, make, monkeypatch):
    names = [f"many_{letter}" for letter in "abcde"]
    server.put(*(f'{name}{{namespace="n",pod="p"}} 1' for name in names))
    relist = make(server.url, *(rule(f'{{__name__="{name}"}}') for name in names))
    build = PausedBuild()
    monkeypatch.setattr(catalog, "build", build)

    listing = asyncio.create_task(relist.once())
    await until(lambda: all(each.listed for each in relist.statuses.values()))
    build.proceed.set()
    await listing

    assert metrics(relist) == set(names)
    assert build.number == 2


async def test_catalog_is_kept_while_neither_series_nor_kinds_change(server, make):
    server.put('same{namespace="n",pod="p"} 1')
    relist = make(server.url, rule("same"), kinds=lambda: Kinds.of(BUILTIN.groups))
    await relist.once()
    before = relist.generation.catalog

    await relist.once()

    assert relist.generation.catalog is before


# Backends without match[]


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_series_are_fetched_if_match_is_refused(server, make, proxy, status):
    server.put('refused_a{namespace="n",pod="p"} 1', 'refused_b{namespace="n"} 1')
    fake = await proxy(spoil=only(fakes.says("no", status=status), path=NAMES))
    relist = make(fake.url, rule('{__name__=~"refused_.*"}'))

    await relist.once()
    await relist.once()

    assert metrics(relist) == {"refused_a"}
    assert sum(each.path == NAMES for each in fake.requests) == 1  # the refusal is remembered
    assert not any("last_over_time" in str(each.parameters) for each in fake.requests)


async def test_series_are_fetched_if_match_is_ignored(server, make, proxy):
    server.put('ignored_a{namespace="n",pod="p"} 1', 'ignored_other{namespace="n",pod="p"} 1')
    fake = await proxy(
        without=lambda received: frozenset({"match[]"} if received.path == NAMES else ())
    )
    relist = make(fake.url, rule("ignored_a"))

    await relist.once()
    await relist.once()

    assert metrics(relist) == {"ignored_a"}
    assert sum(each.path == NAMES for each in fake.requests) == 2  # the names and the probe
    assert await relist.labels(relist.generation.ruleset.rules[0], "ignored_a") == frozenset()


def matches_a_name_twice(received):
    return str(received.parameters.get("match[]")).count("__name__") > 1


async def test_two_matchers_of_a_name_are_never_sent(server, make, proxy):
    # VictoriaMetrics refuses them.
    server.put('twice_a{namespace="n",pod="p"} 1')
    refused = fakes.says("metric name must not be set twice", status=422)
    fake = await proxy(spoil=lambda received: refused if matches_a_name_twice(received) else None)
    relist = make(fake.url, rule("twice_a"))

    await relist.once()

    assert metrics(relist) == {"twice_a"}
    assert not any(each.path == SERIES for each in fake.requests)


@pytest.mark.parametrize("status", [400, 422])
async def test_series_are_fetched_if_the_probe_is_refused(server, make, proxy, status):
    server.put('probed_a{namespace="n",pod="p"} 1')
    refused = fakes.says("no", status=status)
    fake = await proxy(spoil=only(refused, text='namespace=""'))
    relist = make(fake.url, rule("probed_a"))

    await relist.once()

    assert metrics(relist) == {"probed_a"}
    assert any(each.path == SERIES for each in fake.requests)


async def test_empty_result_does_not_count_as_support_of_match(server, make, proxy):
    server.put('late_a{namespace="n",pod="p"} 1')
    empty = fakes.says('{"status":"success","data":[]}')
    filled = False
    fake = await proxy(
        spoil=lambda received: empty if received.path == NAMES and not filled else None,
        without=lambda received: frozenset({"match[]"} if received.path == NAMES else ()),
    )
    relist = make(fake.url, rule("late_a"))
    await relist.once()
    assert not metrics(relist)

    filled = True
    await relist.once()

    assert metrics(relist) == {"late_a"}


async def test_names_from_fetched_series_are_removed_at_once(server, make, proxy):
    server.put('gone_a{namespace="n",pod="p"} 1')
    fake = await proxy(spoil=only(fakes.says("no", status=404), path=NAMES))
    relist = make(fake.url, rule("gone_a"))
    await relist.once()

    fake.behave = fakes.says('{"status":"success","data":[]}')
    await relist.once()

    assert not metrics(relist)


# Failures


async def test_bad_selector_does_not_affect_other_rules(server, make, caplog):
    server.put('good{namespace="n",pod="p"} 1')
    caplog.set_level(logging.INFO, "adapter")
    relist = make(server.url, rule("good"), rule('{bad=~"("}'))

    await relist.once()
    await relist.once()

    assert metrics(relist) == {"good"}
    assert not relist.statuses[0].failed
    status = relist.statuses[1]
    assert (status.listed, status.failed) == (None, True)
    assert status.failing_since is not None
    (record,) = caplog.records
    assert record.message.startswith(
        "rules[1] (rules.yaml:5): relist failed, and no earlier one succeeded: "
    )
    assert "400 bad_data" in record.message


@pytest.mark.parametrize(
    ("clock", "named"),
    [
        (lambda: 0, "{}, {}, {} and 3 more rules since 1970-01-01T00:00:00+00:00"),
        (Ticks(), "{} since 1970-01-01T00:00:"),
    ],
)
async def test_the_health_check_names_rules_with_their_file(make, clock, named):
    relist = make(
        "http://127.0.0.1:9", *(rule(f'{{a="{number}"}}') for number in range(6)), clock=clock
    )

    await relist.once()

    places = [f"rules[{number}] (rules.yaml:{2 + 3 * number})" for number in range(6)]
    assert f"; cannot list {named.format(*places)}" in relist.check().fact


@pytest.mark.parametrize("failing", ["ambiguous_bindings", "choices"])
@pytest.mark.parametrize("failure", [RecursionError, MemoryError])
async def test_whatever_fails_for_one_rule_affects_no_other(
    server, make, caplog, monkeypatch, failing, failure
):
    """Its series are written by others; the failure is that of a defect."""
    server.put(*(f'{name}{{namespace="n",pod="p"}} 1' for name in ("sound", "hit", "other")))
    function = getattr(label_binding, failing)

    def fail_for_one(rule, *others):
        if rule.config.series_query == "hit":
            raise failure
        return function(rule, *others)

    monkeypatch.setattr(label_binding, failing, fail_for_one)
    relist = make(server.url, rule("sound"), rule("hit", labels=SWITCHING), interval=0.1)

    async with running(relist.run()):
        await until(lambda: any(each.exc_info for each in caplog.records))
        await until(lambda: "sound" in metrics(relist))
        rules = "rules:\n" + rule("hit", labels=SWITCHING) + rule("other") + rule("sound")
        await relist.adopt(ruleset.load([("rules.yaml", rules)]))
        assert metrics(relist) - {"hit"} == {"sound", "other"}


async def test_bad_selector_is_not_taken_for_missing_support_of_match(server, make, proxy):
    server.put('also_good{namespace="n",pod="p"} 1')
    fake = await proxy()
    relist = make(fake.url, rule('{bad=~"("}'), rule("also_good"))

    await relist.once()
    await relist.once()

    series = [each for each in fake.requests if each.path == "/api/v1/series"]
    assert "also_good" not in {each.parameters["match[]"] for each in series}
    assert len(series) <= 1
    assert metrics(relist) == {"also_good"}


async def test_failing_rule_keeps_its_last_good_listing(server, make, proxy, caplog):
    server.put('kept{namespace="n",pod="p"} 1')
    caplog.set_level(logging.INFO, "adapter")
    fake = await proxy()
    relist = make(fake.url, rule('{__name__=~"kept"}'))
    await relist.once()
    before = relist.statuses[0]
    works, fake.behave = fake.behave, fakes.says("down", status=503)

    await relist.once()
    await relist.once()
    assert metrics(relist) == {"kept"}
    status = relist.statuses[0]
    assert status.failing_since is not None
    assert status == dataclasses.replace(before, failed=True, failing_since=status.failing_since)
    assert "503" in caplog.text

    fake.behave = works
    await relist.once()
    assert not relist.statuses[0].failed
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_names_of_the_index_stay_if_the_exact_query_fails(server, make, proxy, caplog):
    server.put('inexact{namespace="n",pod="p"} 1', at=time.time() - 300)
    server.put("present 1")  # without a present sample, the index has no past ones
    fake = await proxy(spoil=only(fakes.says("too much", status=422), path="query"))
    relist = make(fake.url, rule("inexact"), max_age=60)

    await relist.once()

    assert metrics(relist) == {"inexact"}
    assert not relist.statuses[0].failed
    (record,) = caplog.records
    assert "exact query failed, metrics that ended may stay listed: " in record.message


@pytest.mark.parametrize("ignores_match", [False, True])
async def test_partial_responses_remove_nothing_and_add_what_is_new(
    server, make, proxy, ignores_match
):
    one, two, new = names = [f"part{ignores_match}_{each}" for each in ("one", "two", "new")]
    server.put(
        f'{one}{{namespace="n",pod="p"}} 1',
        f'{two}{{namespace="n",pod="p"}} 1',
        f'{two}{{namespace="n",exported_pod="p"}} 1',
    )
    data: dict[str, object] = {}

    def partly(received: fakes.Received) -> fakes.Behaviour | None:
        """Return what a store has that knows only the new name, which carries no label."""
        if not data:
            return None
        labelled = received.path == NAMES and '!=""' in received.parameters["match[]"]
        found = [] if labelled else data.get(received.path, [])
        return fakes.says(json.dumps({"status": "success", "data": found, "isPartial": True}))

    removed = frozenset({"match[]"} if ignores_match else ())
    fake = await proxy(
        spoil=partly, without=lambda received: removed if received.path == NAMES else frozenset()
    )
    meter = telemetry.RelistMetrics(registry := prometheus_client.CollectorRegistry())
    text = rule(f'{{__name__=~"{"|".join(names)}"}}', labels=SWITCHING)
    relist = make(fake.url, text, meter=meter)
    await relist.once()
    assert listed(relist) == {one, two}
    labels = pod_labels(relist, two)
    assert labels == ("exported_pod", "pod")

    data[NAMES] = [new]
    data["/api/v1/series"] = [{"__name__": new}]
    data["/api/v1/query"] = {"resultType": "vector", "result": []}
    for _ in range(2):
        await relist.once()

    assert listed(relist) == {one, two, new}
    assert pod_labels(relist, two) == labels
    assert relist.statuses[0].partial
    outcome = {"rule": "rules[0]", "outcome": "Partial"}
    assert registry.get_sample_value("gpu_metrics_adapter_relists_total", outcome) == 2

    data.clear()
    await relist.once()
    assert not relist.statuses[0].partial


def listed(relist: Relist) -> set[str]:
    """The names of series, whatever their labels."""
    return {series.name for series in relist.generation.listings[0].series}


async def test_exact_result_without_names_is_an_error(server, make, proxy, caplog):
    server.put('nameless{namespace="n",pod="p"} 1')
    element = '{"metric":{},"value":[1,"1"]}'
    body = f'{{"status":"success","data":{{"resultType":"vector","result":[{element}]}}}}'
    fake = await proxy(spoil=only(fakes.says(body), path="query"))
    relist = make(fake.url, rule("nameless"))

    await relist.once()

    assert metrics(relist) == {"nameless"}
    assert "series without a name" in caplog.text


async def test_metrics_of_pinned_rules_exist_before_any_listing(make, proxy):
    fake = await proxy(fakes.says("down", status=503))
    relist = make(fake.url, rule("pinned"), rule('{job="x"}'))

    await relist.once()

    assert metrics(relist) == {"pinned"}


async def test_attempted_is_set_after_the_timeout_if_prometheus_hangs(make, proxy):
    fake = await proxy(fakes.hangs)
    relist = make(fake.url, rule("hanging"), timeout=0.1)

    async with running(relist.run()), asyncio.timeout(60):
        await relist.attempted.wait()

    assert relist.statuses[0].listed is None


async def test_attempted_is_set_without_rules(make, server):
    relist = make(server.url)

    assert relist.attempted.is_set()
    async with running(relist.run()):
        await asyncio.sleep(0.05)
    assert relist.generation.catalog.entries == ()


@pytest.mark.usefixtures("real_servers")
async def test_prometheus_that_is_down_at_start_is_retried(make, tmp_path):
    late = real.Prometheus(tmp_path)
    relist = make(late.url, rule('{__name__=~"late"}'), random=lambda: 0.0)
    try:
        async with running(relist.run()):
            async with asyncio.timeout(60):
                await relist.attempted.wait()
            assert relist.generation.catalog.entries == ()
            assert relist.statuses[0].failed

            await asyncio.to_thread(late.start)
            late.put('late{namespace="n",pod="p"} 1')

            await until(lambda: metrics(relist) == {"late"})
            await until(lambda: not relist.statuses[0].failed)
    finally:
        late.stop()


@pytest.mark.parametrize(("number", "seconds"), [(0.0, 540), (0.5, 600), (0.999999, 660)])
async def test_interval_has_ten_per_cent_of_jitter(make, proxy, monkeypatch, number, seconds):
    fake = await proxy(fakes.says('{"status":"success","data":[]}'))
    pauses = await pauses_of(make, fake, monkeypatch, interval=600, random=lambda: number)

    assert pauses == pytest.approx([seconds] * 4, abs=0.01)


async def test_a_partial_relist_is_repeated_after_the_interval(make, proxy, monkeypatch):
    fake = await proxy(fakes.says('{"status":"success","data":[],"isPartial":true}'))
    pauses = await pauses_of(make, fake, monkeypatch, interval=600, random=lambda: 0.5)

    assert pauses == [600] * 4


@pytest.mark.parametrize(("interval", "seconds"), [(600, [0.5, 1, 2, 4]), (0.2, [0.1] * 4)])
async def test_retries_back_off_up_to_the_interval(make, proxy, monkeypatch, interval, seconds):
    fake = await proxy(fakes.says("down", status=503))

    pauses = await pauses_of(make, fake, monkeypatch, interval=interval, random=lambda: 0.0)

    assert pauses == pytest.approx(seconds)


async def pauses_of(make, fake, monkeypatch, **options):
    """Return the seconds of the first four pauses between relists, which take no time."""
    monotonic, pauses, timeout = Clock(), [], asyncio.timeout

    def advance(seconds):
        pauses.append(seconds)
        monotonic.now += seconds
        return timeout(0.001)

    relist = make(fake.url, rule("paused"), monotonic=monotonic, refresh_interval=1e9, **options)
    patched = types.SimpleNamespace(**{**vars(asyncio), "timeout": advance})
    monkeypatch.setattr("adapter.server.series.relist.asyncio", patched)
    async with running(relist.run()):
        await until(lambda: len(pauses) >= 4)
    return pauses[:4]


# Several labels for one resource


async def test_fleet_that_switches_labels_is_queried_by_the_live_label(server, make):
    server.put('fleet{namespace="n",exported_pod="p"} 1')
    relist = make(server.url, rule("fleet", labels=SWITCHING), refresh_interval=0.1)

    async with running(relist.run()):
        await until(lambda: pod_labels(relist, "fleet") == ("exported_pod",))

        server.put('fleet{namespace="n",pod="p"} 1')  # a rolling change: both are live
        await until(lambda: pod_labels(relist, "fleet") == ("exported_pod", "pod"))

        server.end('fleet{namespace="n",exported_pod="p"} 1')
        await until(lambda: pod_labels(relist, "fleet") == ("pod",))


async def test_refresh_probes_only_labels_that_could_change_the_choice(server, make, proxy):
    server.put('steady{namespace="n",exported_pod="p"} 1')
    fake = await proxy()
    relist = make(fake.url, rule("steady", labels=SWITCHING), refresh_interval=0.1)

    async with running(relist.run()):
        await relist.attempted.wait()
        listed, fake.requests[:] = relist.generation, []
        await until(lambda: len(fake.requests) > 1)

    assert all('exported_pod="",pod!=""' in each.parameters["query"] for each in fake.requests)
    assert relist.generation is listed  # nothing has changed


async def test_last_choice_stays_while_no_series_is_live(server, make):
    server.put('idle{namespace="n",pod="p"} 1', at=time.time() - 1)
    server.put('idle{namespace="n",exported_pod="p"} 1', at=time.time() - 1)
    server.end('idle{namespace="n",exported_pod="p"} 1', at=time.time() - 0.5)
    relist = make(server.url, rule("idle", labels=SWITCHING))
    await relist.once()
    assert pod_labels(relist, "idle") == ("pod",)

    server.end('idle{namespace="n",pod="p"} 1')
    await relist.once()

    assert pod_labels(relist, "idle") == ("pod",)


async def test_last_choice_stays_while_the_probes_fail(server, make, proxy, caplog):
    server.put('blind{namespace="n",pod="p"} 1')
    fake = await proxy()
    relist = make(fake.url, rule("blind", labels=SWITCHING))
    await relist.once()

    spoil = only(fakes.says("no", status=503), path="query")
    fake.behave = fakes.through(server.url, spoil=spoil)
    await relist.once()

    assert pod_labels(relist, "blind") == ("pod",)
    assert "query of live labels failed" in caplog.text


async def test_a_rule_is_not_listed_until_the_labels_of_live_series_are_known(server, make, proxy):
    server.put('guessed{namespace="n",pod="p"} 1')
    server.put('guessed{namespace="n",exported_pod="p"} 1', at=time.time() - 1)
    server.end('guessed{namespace="n",exported_pod="p"} 1')
    fake = await proxy(spoil=only(fakes.says("no", status=503), path="query", text='pod!=""'))
    relist = make(fake.url, rule("guessed", labels=SWITCHING))

    await relist.once()

    status = relist.generation.statuses[0]
    assert (status.listed, status.failed) == (None, True)
    assert "cannot list rules[0]" in relist.check().fact
    assert "guessed" in {entry.metric for entry in relist.generation.catalog.entries}

    fake.behave = fakes.through(server.url)
    await relist.once()

    assert pod_labels(relist, "guessed") == ("pod",)
    assert relist.generation.statuses[0].listed is not None
    assert not relist.generation.statuses[0].failed


async def test_labels_are_not_known_before_the_catalog_has_them(server, make, monkeypatch):
    server.put('halfway{namespace="n",pod="p"} 1')
    relist = make(server.url, rule("halfway", labels=SWITCHING))
    before = relist.generation
    build = PausedBuild()
    monkeypatch.setattr(catalog, "build", build)

    task = asyncio.create_task(relist.once())
    await until(lambda: relist.statuses[0].listed is not None)
    during = relist.generation
    build.proceed.set()
    await task

    assert during.statuses == before.statuses
    assert relist.generation.statuses[0].listed is not None


# Kinds


async def test_new_kinds_of_the_cluster_rebuild_the_catalog(server, make):
    server.put('widget_load{namespace="n",widget="w"} 1')
    known = BUILTIN
    labels = "namespace: namespace, widget: widget"
    relist = make(server.url, rule("widget_load", labels=labels), kinds=lambda: known)

    async with running(relist.run()):
        await relist.attempted.wait()
        assert [str(entry.resource) for entry in relist.generation.catalog.entries] == [
            "namespaces"
        ]

        known = with_widgets()

        await until(lambda: len(relist.generation.catalog.entries) == 2)
    assert str(relist.generation.catalog.entries[1].resource) == "widgets.example.com"
    assert relist.generation.kinds == known


async def test_new_kinds_of_the_cluster_relist_the_labels_of_templates(server, make):
    server.put('gadget_load{k_namespace="n",k_widget="w"} 1')
    known = BUILTIN
    text = rule("gadget_load", labels="", more=", template: k_<<.Resource>>")
    relist = make(server.url, text, kinds=lambda: known, refresh_interval=300)

    async with running(relist.run()):
        await until(lambda: len(relist.generation.catalog.entries) == 1)
        known = with_widgets()
        await until(lambda: len(relist.generation.catalog.entries) == 2)


async def test_kinds_discovered_during_the_first_relist_are_listed_at_once(server, make, proxy):
    server.put('gizmo_load{g_namespace="n",g_widget="w"} 1')
    known, widgets = BUILTIN, with_widgets()

    async def discovers(request, asked):
        nonlocal known
        known = widgets
        return await through(request, asked)

    through = fakes.through(server.url)
    fake = await proxy(discovers)
    text = rule("gizmo_load", labels="", more=", template: g_<<.Resource>>")
    relist = make(fake.url, text, kinds=lambda: known)

    async with running(relist.run()):
        await until(lambda: len(relist.generation.catalog.entries) == 2)


def with_widgets() -> Kinds:
    return Kinds.of((*BUILTIN.groups, world.group("example.com", "widgets Widget")))


# Our own metrics


async def test_relists_are_counted_by_rule(server, make, proxy):
    server.put('counted{namespace="n",pod="p"} 1')
    registry = prometheus_client.CollectorRegistry()
    fake = await proxy()
    relist = make(fake.url, rule("counted"), meter=telemetry.RelistMetrics(registry))
    await relist.once()
    fake.behave = fakes.says("down", status=503)
    await relist.once()

    def value(name: str, **labels: str) -> float | None:
        name = f"gpu_metrics_adapter_{name}"
        return registry.get_sample_value(name, {"rule": "rules[0]", **labels})

    assert value("relists_total", outcome="ok") == 1
    assert value("relists_total", outcome="Broken") == 1
    assert value("relist_series_names") == 1
    assert value("relist_last_success_timestamp_seconds") == relist.statuses[0].listed
