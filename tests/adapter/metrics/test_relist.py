"""Relists of a real Prometheus; where it fails, a fake stands before it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import aiohttp
import prometheus_client
import pytest

from adapter import telemetry
from adapter.clients.prometheus import Prometheus
from adapter.metrics.relist import Relist
from rules import kinds as cluster
from rules import ruleset
from rules.diagnosis.inventory import ListingStatus
from rules.kinds import GroupResource, Kinds
from rules.query.label_binding import LabelBinding
from tests.fakes import prometheus as fakes
from tests.real import prometheus as real

Make = Callable[..., Relist]

PODS = GroupResource("", "pods")
NAMES = "/api/v1/label/__name__/values"

EXPORTED = LabelBinding(resource="exported_pod", namespace="namespace")
DIRECT = LabelBinding(resource="pod", namespace="namespace")


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


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[real.Prometheus]:
    with real.run(tmp_path_factory.mktemp("prometheus")) as found:
        yield found


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as found:
        yield found


class Ticks:
    """Seconds that pass by one with every look at the clock, and by more when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def make(session) -> Make:
    def relist(url: str, *rules: str, external: str = "", **arguments) -> Relist:
        text = "rules:\n" + "".join(rules) if rules else ""
        text += f"externalRules:\n{external}" if external else ""
        settings = {"kinds": lambda: BUILTIN, "interval": 600, "max_age": 600, **arguments}
        asking = Prometheus(session, url, timeout=settings.pop("timeout", 10))
        compiled = ruleset.load([("rules.yaml", text or "rules: []")])
        return Relist(compiled, asking, settings.pop("kinds"), **settings)

    return relist


@pytest.fixture
def before(running, aiohttp_server) -> Callable[..., Awaitable[fakes.Prometheus]]:
    """Starts a fake that hands on to the real one what it does not spoil."""

    async def start(behave: fakes.Behaviour | None = None, **arguments) -> fakes.Prometheus:
        fake = fakes.Prometheus(behave or fakes.through(running.url, **arguments))
        server = await aiohttp_server(fake.app())
        fake.url = str(server.make_url("/"))
        return fake

    return start


BUILTIN = Kinds.builtin()


def metrics(relist: Relist) -> set[str]:
    return {entry.metric for entry in relist.catalog.entries if entry.resource == PODS}


def asked_by(relist: Relist, metric: str) -> tuple[str, ...]:
    """The labels by which pods are asked about."""
    entry = relist.catalog.entry(PODS, metric)
    assert entry
    return tuple(binding.resource for source in entry.sources for binding in source.bindings)


@asynccontextmanager
async def following(relist: Relist) -> AsyncIterator[None]:
    task = asyncio.create_task(relist.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], object], *, seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.02)


# Names


async def test_names_of_a_selector_become_metrics_of_the_resources_that_they_carry(running, make):
    running.put('one_used{namespace="n",pod="p"} 1', 'one_free{namespace="n"} 1', "one_bare 1")
    relist = make(running.url, rule('{__name__=~"one_.*"}'))

    await relist.once()

    found = {(str(entry.resource), entry.metric) for entry in relist.catalog.entries}
    assert found == {
        ("pods", "one_used"),
        ("namespaces", "one_used"),
        ("namespaces", "one_free"),
    }


async def test_new_names_come_with_the_next_relist(running, make):
    running.put('new_a{namespace="n",pod="p"} 1')
    relist = make(running.url, rule('{__name__=~"new_.*"}'), monotonic=Ticks())
    await relist.once()

    running.put('new_b{namespace="n",pod="p"} 1')
    await relist.once()

    assert metrics(relist) == {"new_a", "new_b"}


async def test_names_that_ended_before_the_window_are_not_listed(running, make):
    running.put('past_old{namespace="n",pod="p"} 1', at=time.time() - 300)
    running.put('past_new{namespace="n",pod="p"} 1')
    now = time.time()
    window = {"start": str(now - 60), "end": str(now), "match[]": '{__name__=~"past_.*"}'}
    assert running.get(NAMES, **window) == ["past_new", "past_old"]  # the index is a superset

    relist = make(running.url, rule('{__name__=~"past_.*"}'), max_age=60)
    await relist.once()

    assert metrics(relist) == {"past_new"}


async def test_metric_that_ended_leaves_by_the_exact_question_and_stays_away(running, make):
    running.put('brief{namespace="n",pod="p"} 1', at=time.time() - 2)
    running.put('brief_not{namespace="n",pod="p"} 1', at=time.time() + 60)
    running.put('brief_not{namespace="n",pod="p"} 1', at=time.time() + 61)
    monotonic = Ticks()
    relist = make(running.url, rule('{__name__=~"brief.*"}'), max_age=3, monotonic=monotonic)
    await relist.once()
    assert "brief" in metrics(relist)

    await asyncio.sleep(1.2)
    await relist.once()
    assert "brief" in metrics(relist)  # it is too early for the exact question

    monotonic.now += 1000
    await relist.once()
    assert "brief" not in metrics(relist)

    await relist.once()
    assert "brief" not in metrics(relist)  # though the index still has it


async def test_exact_question_is_asked_at_a_hundredth_of_its_own_duration(running, make, before):
    running.put('pace{namespace="n",pod="p"} 1')
    fake = await before()
    monotonic = Ticks()
    relist = make(fake.url, rule("pace"), monotonic=monotonic)

    def exact() -> int:
        return sum("last_over_time" in each.parameters.get("query", "") for each in fake.asked)

    await relist.once()
    await relist.once()
    assert exact() == 1

    monotonic.now += 100
    await relist.once()
    assert exact() == 2


async def test_labels_of_a_template_are_those_that_the_cluster_knows(running, make, before):
    running.put('shaped{kube_pod="p",kube_namespace="n",kube_nothing="x",other="y"} 1')
    fake = await before()
    text = rule("shaped", labels="", more=", template: kube_<<.Resource>>")
    relist = make(fake.url, text)

    await relist.once()

    found = {(str(entry.resource), entry.metric) for entry in relist.catalog.entries}
    assert found == {("pods", "shaped"), ("namespaces", "shaped")}
    asked = "".join(str(each.parameters.get("match[]")) for each in fake.asked)
    assert "kube_pod!=" in asked
    assert "kube_nothing" not in asked
    assert "other" not in asked


async def test_nothing_is_asked_for_series(running, make, before):
    running.put('plain{namespace="n",pod="p"} 1')
    fake = await before()

    await make(fake.url, rule("plain")).once()

    assert "/api/v1/series" not in {asked.path for asked in fake.asked}


async def test_rules_that_share_a_selector_ask_once(running, make, before):
    running.put('shared{namespace="n",pod="p"} 1')
    fake = await before()
    relist = make(fake.url, rule("shared"), rule("shared") + "  name: {as: other}\n")

    await relist.once()

    plain = [asked for asked in fake.asked if asked.parameters.get("match[]") == "shared"]
    assert len(plain) == 1
    assert metrics(relist) == {"shared", "other"}


async def test_window_is_the_last_max_age_seconds(make, before, running):
    fake = await before()

    await make(fake.url, rule("window"), max_age=120, clock=lambda: 1000.0).once()

    asked = fake.asked[0].parameters
    assert (asked["start"], asked["end"]) == ("880.000", "1000.000")


async def test_external_rules_are_listed_without_resources(running, make):
    running.put('queue{namespace="n"} 1')
    relist = make(running.url, external=rule("queue", labels="namespace: namespace"))

    await relist.once()

    assert list(relist.catalog.external) == ["queue"]


async def test_many_questions_are_asked_at_once_but_not_all(make, before):
    under_way, most = 0, 0

    async def counts(request, asked):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        return await fakes.says('{"status":"success","data":[]}')(request, asked)

    fake = await before(counts)

    await make(fake.url, *(rule(f'busy_{number}{{a="b"}}') for number in range(30))).once()

    assert most == 8


async def test_rules_that_name_their_series_and_map_alike_are_one_question(running, make, before):
    asked: list[str] = []

    async def notes(request, each):
        asked.append(each.parameters.get("match[]", "") or each.parameters.get("query", ""))
        return await through(request, each)

    running.put('named_0{namespace="n",pod="p"} 1', 'named_2{namespace="n"} 1')
    through = fakes.through(running.url)
    fake = await before(notes)
    relist = make(fake.url, *(rule(f"named_{number}") for number in range(3)))

    await relist.once()

    assert {str(e.resource): e.metric for e in relist.catalog.entries} == {
        "namespaces": "named_2",
        "pods": "named_0",
    }
    assert [state.names for state in relist.states] == [1, 0, 1]
    assert all("named_0|named_1|named_2" in each or "probe" in each for each in asked)


async def test_name_that_was_not_there_is_seen_by_the_next_look(running, make):
    running.put('early{namespace="n",pod="p"} 1')
    relist = make(running.url, rule("early"), rule("late"))
    await relist.once()

    running.put('late{namespace="n",pod="p"} 1')
    await relist.refresh_live_labels()

    assert "late" in {entry.metric for entry in relist.catalog.entries}


async def test_many_names_are_asked_for_in_several_questions(make, before):
    asked: list[str] = []

    async def notes(request, each):
        asked.append(each.parameters.get("match[]", ""))
        return await fakes.says('{"status":"success","data":[]}')(request, each)

    fake = await before(notes)

    await make(fake.url, *(rule(f"many_{number}") for number in range(120))).once()

    assert len({each for each in asked if each.startswith("{")}) == 3


async def test_what_is_known_of_each_rule_is_what_was_found_and_not_what_it_pins(running, make):
    running.put('known_a{namespace="n",other="p"} 1')
    relist = make(running.url, rule("known_a"), rule("known_b"), rule("bad["), clock=lambda: 90.0)
    before = relist.seen
    relist = make(running.url, rule("known_a"), rule("known_b"), rule("bad["))

    await relist.once()

    after = relist.seen
    assert before.listings == {}
    assert before.heard == dict.fromkeys(range(3), ListingStatus(listed=None, failed=False))
    assert before.now == 90
    known, unknown = after.listings[0].series, after.listings[1].series
    assert ([each.name for each in known], unknown) == (["known_a"], ())
    assert [after.heard[index].failed for index in range(3)] == [False, False, True]
    assert after.heard[0].listed == pytest.approx(after.now, abs=60)
    assert after.catalog is relist.catalog


async def test_the_labels_that_series_carry_can_be_asked_for(running, make):
    running.put('carry_a{namespace="n",other="p"} 1', 'carry_b{namespace="n",more="p"} 1')
    relist = make(running.url, rule('{__name__=~"carry_.*"}'))
    (only,) = relist.seen.ruleset.rules
    assert await relist.labels(only, "carry_a") == frozenset()  # not before match[] is trusted

    await relist.once()

    assert await relist.labels(only, "carry_a") == {"namespace", "other"}


# A Prometheus that is not what it should be


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_prometheus_that_refuses_match_is_asked_for_series(running, make, before, status):
    running.put('refused_a{namespace="n",pod="p"} 1', 'refused_b{namespace="n"} 1')
    fake = await before(
        spoil=lambda asked: fakes.says("no", status=status) if asked.path == NAMES else None
    )
    relist = make(fake.url, rule('{__name__=~"refused_.*"}'))

    await relist.once()
    await relist.once()

    assert metrics(relist) == {"refused_a"}
    assert sum(asked.path == NAMES for asked in fake.asked) == 1  # remembered
    assert not any("last_over_time" in str(asked.parameters) for asked in fake.asked)


async def test_prometheus_that_ignores_match_is_found_out_and_asked_for_series(
    running, make, before
):
    running.put('ignored_a{namespace="n",pod="p"} 1', 'ignored_other{namespace="n",pod="p"} 1')
    fake = await before(without=lambda asked: frozenset({"match[]"} if asked.path == NAMES else ()))
    relist = make(fake.url, rule("ignored_a"))

    await relist.once()
    await relist.once()

    assert metrics(relist) == {"ignored_a"}
    assert sum(asked.path == NAMES for asked in fake.asked) == 2  # the question and the probe
    assert await relist.labels(relist.seen.ruleset.rules[0], "ignored_a") == frozenset()


async def test_prometheus_is_not_trusted_for_having_found_nothing(running, make, before):
    running.put('late_a{namespace="n",pod="p"} 1')
    empty = fakes.says('{"status":"success","data":[]}')
    fake = await before(
        spoil=lambda asked: empty if asked.path == NAMES and not filled else None,
        without=lambda asked: frozenset({"match[]"} if asked.path == NAMES else ()),
    )
    filled = False
    relist = make(fake.url, rule("late_a"))
    await relist.once()
    assert not metrics(relist)

    filled = True
    await relist.once()

    assert metrics(relist) == {"late_a"}


async def test_names_of_series_vanish_at_once(running, make, before):
    running.put('gone_a{namespace="n",pod="p"} 1')
    fake = await before(
        spoil=lambda asked: fakes.says("no", status=404) if asked.path == NAMES else None
    )
    relist = make(fake.url, rule("gone_a"))
    await relist.once()

    fake.behave = fakes.says('{"status":"success","data":[]}')
    await relist.once()

    assert not metrics(relist)


# Failures


async def test_one_bad_selector_does_not_disturb_the_others(running, make, caplog):
    running.put('good{namespace="n",pod="p"} 1')
    caplog.set_level(logging.INFO, "adapter")
    relist = make(running.url, rule("good"), rule('{bad=~"("}'))

    await relist.once()
    await relist.once()

    assert metrics(relist) == {"good"}
    good, bad = relist.states
    assert (good.error, good.names, good.succeeded) == ("", 1, good.attempted)
    assert "400 bad_data" in bad.error
    assert bad.succeeded is None
    told = [record.message for record in caplog.records]
    assert len(told) == 1
    assert told[0].startswith("rules[1]: series are not listed, known metrics stay")
    assert relist.states[0].seconds > 0


async def test_bad_selector_does_not_make_the_whole_prometheus_be_asked_for_series(
    running, make, before
):
    running.put('also_good{namespace="n",pod="p"} 1')
    fake = await before()
    relist = make(fake.url, rule('{bad=~"("}'), rule("also_good"))

    await relist.once()
    await relist.once()

    series = [asked for asked in fake.asked if asked.path == "/api/v1/series"]
    assert "also_good" not in {asked.parameters["match[]"] for asked in series}
    assert len(series) <= 1
    assert metrics(relist) == {"also_good"}


async def test_failing_rule_keeps_its_last_good_listing(running, make, before, caplog):
    running.put('kept{namespace="n",pod="p"} 1')
    caplog.set_level(logging.INFO, "adapter")
    fake = await before()
    relist = make(fake.url, rule('{__name__=~"kept"}'))
    await relist.once()
    works, fake.behave = fake.behave, fakes.says("down", status=503)

    await relist.once()
    await relist.once()
    assert metrics(relist) == {"kept"}
    assert "503" in relist.states[0].error
    assert relist.states[0].succeeded < relist.states[0].attempted

    fake.behave = works
    await relist.once()
    assert relist.states[0].error == ""
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_without_the_exact_answer_the_index_is_believed(running, make, before, caplog):
    running.put('inexact{namespace="n",pod="p"} 1', at=time.time() - 300)
    fake = await before(
        spoil=lambda asked: fakes.says("too much", status=422) if "query" in asked.path else None
    )
    relist = make(fake.url, rule("inexact"), max_age=60)

    await relist.once()

    assert metrics(relist) == {"inexact"}
    assert relist.states[0].error == ""
    assert any("metrics that ended may stay listed" in each for each in relist.states[0].remarks)
    assert len(caplog.records) == 1


async def test_answer_in_part_makes_no_name_vanish(running, make, before):
    running.put('partly{namespace="n",pod="p"} 1')
    nothing = (
        '{"status":"success","data":{"resultType":"vector","result":[]},"warnings":["store away"]}'
    )
    fake = await before(
        spoil=lambda asked: fakes.says(nothing) if asked.path == "/api/v1/query" else None
    )
    relist = make(fake.url, rule("partly"))

    await relist.once()

    assert metrics(relist) == {"partly"}


async def test_exact_answer_without_names_is_not_believed(running, make, before):
    running.put('nameless{namespace="n",pod="p"} 1')
    element = '{"metric":{},"value":[1,"1"]}'
    body = f'{{"status":"success","data":{{"resultType":"vector","result":[{element}]}}}}'
    fake = await before(
        spoil=lambda asked: fakes.says(body) if asked.path == "/api/v1/query" else None
    )
    relist = make(fake.url, rule("nameless"))

    await relist.once()

    assert metrics(relist) == {"nameless"}
    assert "series without a name" in relist.states[0].remarks[0]


async def test_pinned_rules_can_be_asked_before_anything_was_listed(make, before):
    fake = await before(fakes.says("down", status=503))
    relist = make(fake.url, rule("pinned"), rule('{job="x"}'))

    await relist.once()

    assert metrics(relist) == {"pinned"}


async def test_attempted_is_set_when_patience_ends_though_prometheus_hangs(make, before):
    fake = await before(fakes.hangs)
    relist = make(fake.url, rule("hanging"), timeout=0.1)

    async with following(relist), asyncio.timeout(5):
        await relist.attempted.wait()

    assert relist.states[0].attempted
    assert relist.states[0].succeeded is None


async def test_attempted_is_set_by_failure_as_well(make, before):
    fake = await before(fakes.says("down", status=503))
    relist = make(fake.url, rule("failing"), rule("failing_too"))
    assert not relist.attempted.is_set()

    await relist.once()

    assert relist.attempted.is_set()


async def test_without_rules_there_is_nothing_to_wait_for(make, running):
    relist = make(running.url)

    assert relist.attempted.is_set()
    async with following(relist):
        await asyncio.sleep(0.05)
    assert relist.catalog.entries == ()


async def test_prometheus_that_is_down_at_start_is_found_when_it_comes(make, tmp_path):
    late = real.Prometheus(tmp_path)
    relist = make(late.url, rule('{__name__=~"late"}'), random=lambda: 0.0)
    try:
        async with following(relist):
            async with asyncio.timeout(5):
                await relist.attempted.wait()
            assert relist.catalog.entries == ()
            assert relist.states[0].error

            await asyncio.to_thread(late.start)
            late.put('late{namespace="n",pod="p"} 1')

            await until(lambda: metrics(relist) == {"late"})
            await until(lambda: not relist.states[0].error)
    finally:
        late.stop()


async def test_retries_back_off_and_stay_below_the_interval(make, before):
    fake = await before(fakes.says("down", status=503))
    relist = make(fake.url, rule("retried"), interval=0.2, random=lambda: 0.99)

    async with following(relist):
        await until(lambda: len(fake.asked) >= 4, seconds=5)

    assert [relist._pause(n) for n in (0, 1)] == [0.2, pytest.approx(0.2, rel=0.01)]
    slow = make(fake.url, rule("retried"), random=lambda: 0.0)
    assert [slow._pause(n) for n in (1, 2, 3, 20)] == [0.5, 1.0, 2.0, 30.0]


# Labels that compete


async def test_exporters_own_pod_is_not_taken_for_the_workloads(running, make):
    running.put('own{namespace="n",exported_pod="work",pod="exporter"} 1')
    relist = make(running.url, rule("own", labels=SWITCHING))

    await relist.once()

    assert asked_by(relist, "own") == ("exported_pod",)


async def test_fleet_that_switches_is_asked_by_the_right_label_soon(running, make):
    running.put('fleet{namespace="n",exported_pod="p"} 1')
    relist = make(running.url, rule("fleet", labels=SWITCHING), interval=600, look_interval=0.1)

    async with following(relist):
        await until(lambda: asked_by(relist, "fleet") == ("exported_pod",))

        running.put('fleet{namespace="n",pod="p"} 1')  # a rolling change: both are live
        await until(lambda: asked_by(relist, "fleet") == ("exported_pod", "pod"))

        running.end('fleet{namespace="n",exported_pod="p"} 1')
        await until(lambda: asked_by(relist, "fleet") == ("pod",))


def test_unless_told_otherwise_one_looks_twice_a_minute():
    assert inspect.signature(Relist).parameters["look_interval"].default == 30.0


async def test_looking_asks_only_about_what_could_change_the_choice(running, make, before):
    running.put('steady{namespace="n",exported_pod="p"} 1')
    fake = await before()
    relist = make(fake.url, rule("steady", labels=SWITCHING))
    await relist.once()
    fake.asked.clear()

    await relist.refresh_live_labels()

    (asked,) = fake.asked
    assert 'exported_pod="",pod!=""' in asked.parameters["query"]


async def test_last_choice_stays_while_nothing_is_live(running, make):
    running.put('idle{namespace="n",pod="p"} 1', at=time.time() - 1)
    running.put('idle{namespace="n",exported_pod="p"} 1', at=time.time() - 1)
    running.end('idle{namespace="n",exported_pod="p"} 1', at=time.time() - 0.5)
    relist = make(running.url, rule("idle", labels=SWITCHING))
    await relist.once()
    assert asked_by(relist, "idle") == ("pod",)

    running.end('idle{namespace="n",pod="p"} 1')
    await relist.once()

    assert asked_by(relist, "idle") == ("pod",)


async def test_last_choice_stays_while_live_series_cannot_be_asked(running, make, before):
    running.put('blind{namespace="n",pod="p"} 1')
    fake = await before()
    relist = make(fake.url, rule("blind", labels=SWITCHING))
    await relist.once()

    fake.behave = fakes.through(
        running.url,
        spoil=lambda asked: fakes.says("no", status=503) if "query" in asked.path else None,
    )
    await relist.once()

    assert asked_by(relist, "blind") == ("pod",)
    assert any("labels to ask by stay" in remark for remark in relist.states[0].remarks)


# Kinds


async def test_new_kinds_of_the_cluster_make_a_new_catalog(running, make):
    running.put('widget_load{namespace="n",widget="w"} 1')
    known = BUILTIN
    labels = "namespace: namespace, widget: widget"
    relist = make(running.url, rule("widget_load", labels=labels), kinds=lambda: known)
    await relist.once()
    assert [str(entry.resource) for entry in relist.catalog.entries] == ["namespaces"]

    known = with_widgets()

    found = {str(entry.resource) for entry in relist.catalog.entries}
    assert found == {"namespaces", "widgets.example.com"}


async def test_new_kinds_of_the_cluster_make_templates_ask_anew(running, make):
    running.put('gadget_load{k_namespace="n",k_widget="w"} 1')
    known = BUILTIN
    text = rule("gadget_load", labels="", more=", template: k_<<.Resource>>")
    relist = make(running.url, text, kinds=lambda: known, look_interval=0.1)

    async with following(relist):
        await until(lambda: len(relist.catalog.entries) == 1)
        known = with_widgets()
        await until(lambda: len(relist.catalog.entries) == 2)


def with_widgets() -> Kinds:
    widgets = cluster.ApiResource(name="widgets", kind="Widget", namespaced=True)
    group = cluster.ApiGroup(
        name="example.com", versions=("v1",), preferred="v1", resources={"v1": (widgets,)}
    )
    return Kinds.of((*BUILTIN.groups, group))


# Our own metrics


async def test_relists_are_counted_by_rule(running, make, before):
    running.put('counted{namespace="n",pod="p"} 1')
    registry = prometheus_client.CollectorRegistry()
    fake = await before()
    relist = make(fake.url, rule("counted"), meter=telemetry.Relists(registry))
    await relist.once()
    fake.behave = fakes.says("down", status=503)
    await relist.once()

    def value(name: str, **labels: str) -> float | None:
        name = f"gpu_metrics_adapter_{name}"
        return registry.get_sample_value(name, {"rule": "rules[0]", **labels})

    assert value("relists_total", outcome="ok") == 1
    assert value("relists_total", outcome="Broken") == 1
    assert value("relist_series_names") == 1
    assert value("relist_last_success_timestamp_seconds") == relist.states[0].succeeded
