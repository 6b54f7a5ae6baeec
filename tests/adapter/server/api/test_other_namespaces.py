"""Two worlds that differ only in what other namespaces have answer a team alike, word for word.

Each is a real Prometheus. In the second, other namespaces have series, targets and rules, too.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from adapter import telemetry
from adapter.clients import detection
from adapter.clients.confinement import Confinement
from adapter.clients.prometheus import Prometheus
from adapter.server.api.explain import Explainer
from adapter.server.api.groups.backend import Backend
from adapter.server.causes.collector import CauseCollector
from adapter.server.causes.evidence import Probes
from adapter.server.evaluation.evaluation import Evaluation
from adapter.server.http import server
from adapter.server.series.relist import Relist
from rules import ruleset, teams
from rules.document.sources import DEFAULT
from rules.kinds import PODS, Kinds
from rules.query import plan
from rules.ruleset import CompiledRule, RuleSet
from tests.adapter import wired
from tests.adapter.server.api import test_causes
from tools.presets.api import GROUP
from tools.real import prometheus as real

NOW = float(int(time.time()))
CLUSTER = """
rules:
- seriesQuery: kept
  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
"""
REFUSED = {"refused"}
"""Would refuse the whole ConfigMap."""
FAULTS = [each for each in test_causes.QUERIES if each not in REFUSED]
OWN = "rules:\n" + "".join(
    f"- seriesQuery: {name}\n"
    "  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}\n"
    f"  metricsQuery: '{query}'\n"
    for name, query in {
        **{name: test_causes.QUERIES[name] for name in FAULTS},
        "mine": test_causes.PLAIN,
        "absent_here": test_causes.PLAIN,
        "DCGM_FI_DEV_GPU_UTIL": test_causes.PLAIN,
        "of_pods": f"{test_causes.PLAIN} + on () group_left () count(up)",
    }.items()
)
PATTERN = """
- seriesQuery: '{__name__=~"(shown|hidden)_.*"}'
  resources: {template: <<.Resource>>}
  name: {matches: "(.*)_total", as: $1}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
"""
OTHERS = """
rules:
- seriesQuery: secret_metric
  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
- seriesQuery: divided_more
  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
externalRules:
- seriesQuery: secret_queue
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
"""
METRICS = (
    *FAULTS,
    "mine",
    "absent_here",
    "DCGM_FI_DEV_GPU_UTIL",
    "of_pods",
    "aged",
    "shown_bytes",
    "hidden_bytes",
    "secret_metric",
    "secretmetric",
    "divided_mor",
    "kept",
    "nothing_like_it",
)
EXTERNAL = ("divided", "elsewhere", "absent_here", "secret_queue", "secretqueue", "kept")


REASONS = {
    "LabelDropped",
    "LabelsMissing",
    "NoObject",
    "NoRule",
    "NoSample",
    "NoSeries",
    "NotFinite",
    "NotScraped",
    "OtherResource",
    "SampleTooOld",
    "SeriesEnded",
    "TargetGone",
    "UnknownResource",
    "WrongName",
}


def _is_own(line: str) -> bool:
    return 'ns="default"' in line and "exported_ns" not in line


ENDED = (
    *test_causes.ENDED,
    'mine{ns="default",pod="a",job="own",instance="mine:1"} 1',
)
LIVE = (
    *test_causes.LIVE,
    'up{ns="default",job="own",instance="mine:1"} 0',
    'shown_bytes_total{ns="default",pod="a"} 1',
    'kept{ns="default",pod="a"} 1',
    'of_pods{ns="default",pod="z"} 1',
    # Of others:
    'absent_here{ns="team-b",pod="a"} 1',
    'hidden_bytes_total{ns="team-b",pod="a"} 1',
    'shown_bytes_total{ns="team-b",pod="a",node="n"} 1',
    'secret_metric{ns="team-b",pod="a"} 1',
    'secret_queue{ns="team-b"} 1',
    'divided_more{ns="team-b",pod="a"} 1',
    'DCGM_FI_DEV_GPU_UTIL_RATIO{ns="team-b",pod="a",UUID="u"} 0.2',
    *(f'{name}{{ns="team-b",pod="a",job="gpu",instance="up:1"}} 7' for name in FAULTS),
    *(f'{name}{{ns="team-b",pod="b"}} 7' for name in ("mine", "aged", "of_pods", "idle")),
)


@pytest.fixture(scope="module")
def worlds(
    real_servers: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[real.Prometheus, real.Prometheus]]:
    with contextlib.ExitStack() as stack:
        both = []
        for name, chosen in (("alone", _is_own), ("with others", lambda _: True)):
            each = stack.enter_context(real.run(tmp_path_factory.mktemp(name)))
            fill(each, chosen)
            both.append(each)
        yield both[0], both[1]


def fill(world: real.Prometheus, chosen: Callable[[str], bool]) -> None:
    """Write the samples of `test_causes` at fixed times."""
    ended, live = list(filter(chosen, ENDED)), list(filter(chosen, LIVE))
    for later in range(4):
        world.put(*ended, at=NOW - test_causes.BEFORE - 180 + 60 * later)
    over = [line for line in ended if not line.startswith("old")]
    world.end(*over, at=NOW - test_causes.BEFORE + 1)
    world.put('aged{ns="default",pod="a"} 1', at=NOW - 120)
    world.put(*live, at=NOW)
    stopped = 'stopped{ns="default",pod="a"} 1'
    world.put(stopped, at=NOW - 60)
    world.end(stopped, at=NOW - 45)


def rules_of(*, others: bool) -> RuleSet:
    """Return the rules of the cluster and of the team, and those of another team."""
    texts = {"default": OWN + test_causes.AGED + PATTERN + test_causes.EXTERNAL}
    if others:
        texts["team-b"] = OTHERS
    cluster = ruleset.load([("rules.yaml", CLUSTER)])
    index, of_teams = len(cluster.all), {}
    for namespace, text in texts.items():
        written = teams.ConfigMap(namespace=namespace, name="m", data=(("r.yaml", text),))
        own = teams.load(written, label="ns")
        numbered = [replace(rule, index=place) for place, rule in enumerate(own.all, index)]
        index += len(numbered)
        first = len(own.rules)
        of_teams[namespace] = replace(
            own, rules=tuple(numbered[:first]), external=tuple(numbered[first:])
        )
    return replace(cluster, teams=of_teams)


@dataclass(frozen=True)
class Server:
    """A server whose time stands still."""

    url: str
    session: aiohttp.ClientSession

    async def get(self, path: str) -> tuple[int, str, Any]:
        """Return status, warning and document."""
        async with self.session.get(self.url + path) as response:
            document = json.loads(await response.read())
            return response.status, response.headers.get("Warning", ""), document


@contextlib.asynccontextmanager
async def serving(
    world: real.Prometheus, session: aiohttp.ClientSession, *, others: bool
) -> AsyncIterator[Server]:
    """Run the parts that answer, as `adapter.server.app.server` connects them."""

    def clock() -> float:
        return NOW

    rules, kinds = rules_of(others=others), Kinds.builtin()
    cluster = Prometheus(session, world.url, timeout=10, clock=clock)
    of_teams = Prometheus(session, world.url, timeout=10, clock=clock, source=teams.SOURCE)
    clients = {DEFAULT: cluster, teams.SOURCE: of_teams}
    relist = Relist(rules, clients, lambda: kinds, interval=600, max_age=600, clock=clock)
    await relist.once()

    def query_of(rule: CompiledRule) -> Any:
        return clients[rule.config.source].for_team(rule.team).query

    metrics = telemetry.EvaluationMetrics(CollectorRegistry())
    evaluation = Evaluation(clients, metrics=metrics, clock=clock)
    backend = Backend(
        generation=relist.generation,
        kinds=kinds,
        objects=wired.Objects(kinds, {(PODS, "default"): {"a": {}, "b": {}}}),
        evaluation=evaluation,
        collector=CauseCollector(
            relist.labels,
            probes=Probes(query_of, lambda: detection.report(cluster), clock=Ticks(), now=clock),
            metrics=telemetry.CauseMetrics(CollectorRegistry()),
        ),
        clock=clock,
    )
    handler = wired.router_of(lambda: backend, explainer=Explainer())
    listener = server.Listener(handler, "127.0.0.1", 0)
    listener.start()
    try:
        yield Server(listener.url, session)
    finally:
        await listener.close()
        await evaluation.close()


class Ticks:
    """Clock that gives the rate limit of diagnoses no reason to refuse one."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.2
        return self.now


def paths(metrics: Iterable[str]) -> Iterator[str]:
    """Yield the requests of somebody in the namespace of the team."""
    external = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default"
    for metric in metrics:
        for objects in ("pods/*", "pods/a", "pods/nope", "deployments.apps/a", "foos/a"):
            yield f"{GROUP}/namespaces/default/{objects}/{metric}"
        yield f"{GROUP}/namespaces/default/metrics/{metric}"
    for metric in EXTERNAL if metrics is METRICS else ():
        yield f"{external}/{metric}"
        yield f"{external}/{metric}?labelSelector=pod%3Da"


async def answers(
    world: real.Prometheus,
    session: aiohttp.ClientSession,
    *,
    others: bool,
    metrics: Iterable[str] = METRICS,
) -> dict[str, tuple[int, str, Any]]:
    found = {}
    async with serving(world, session, others=others) as served:
        for path in paths(metrics):
            more = "&" if "?" in path else "?"
            for each in (path, f"{path}{more}explain=true"):
                found[each] = await served.get(each)
    return found


def differing(
    first: Mapping[str, tuple[int, str, Any]], second: Mapping[str, tuple[int, str, Any]]
) -> list[str]:
    return [path for path in first if first[path] != second[path]]


async def test_what_other_namespaces_have_changes_no_answer_cause_or_explanation(worlds, session):
    alone, beside = worlds

    one = await answers(alone, session, others=False)
    two = await answers(beside, session, others=True)

    assert len(one) > 150
    for path in differing(one, two):
        assert two[path] == one[path], path
    assert {status for status, _, _ in one.values()} == {200, 404}
    reasons = {
        cause["reason"] for _, _, document in one.values() for cause in document.get("causes", ())
    }
    assert reasons == REASONS


def leaves_requests(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(Confinement, "confined", lambda _, params: params)


def leaves_everything(patched: pytest.MonkeyPatch) -> None:
    leaves_requests(patched)
    patched.setattr(plan, "confine", lambda query, _: query.text)


@pytest.mark.parametrize(
    ("mutate", "expected"),
    [
        (leaves_requests, ("pods/a/down", "pods/a/ended")),
        (leaves_everything, ("pods/a/down", "pods/a/ended", "metrics/of_pods")),
    ],
)
async def test_without_the_matcher_answers_differ(worlds, session, monkeypatch, mutate, expected):
    alone, beside = worlds
    mutate(monkeypatch)
    metrics = ("down", "ended", "of_pods")

    one = await answers(alone, session, others=False, metrics=metrics)
    two = await answers(beside, session, others=True, metrics=metrics)

    found = differing(one, two)
    for each in expected:
        assert f"{GROUP}/namespaces/default/{each}" in found
        assert f"{GROUP}/namespaces/default/{each}?explain=true" in found


async def test_whether_a_target_of_another_namespace_is_up_cannot_be_said(worlds, session):
    _, beside = worlds
    async with serving(beside, session, others=True) as served:
        _, _, elsewhere = await served.get(f"{GROUP}/namespaces/default/pods/a/down")
        _, _, own = await served.get(f"{GROUP}/namespaces/default/pods/a/mine")

    (cause,) = elsewhere["details"]["causes"]
    assert cause["reason"] == "SeriesEnded"
    assert (
        "Whether the target gpu/down:1 is up cannot be said: its `up` is not in namespace"
        in (cause["message"])
    )
    (cause,) = own["details"]["causes"]
    assert (cause["reason"], "own/mine:1 is down (up = 0)" in cause["message"]) == (
        "TargetGone",
        True,
    )
