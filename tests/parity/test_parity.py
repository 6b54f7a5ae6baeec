"""Parity with the original: its recorded answers, compared with ours to the byte.

`*.json` have requests and the answers of prometheus-adapter, those in protobuf with the bytes in
hexadecimal form and the time of the answer; `config.yaml` is the rules file that
it used. `differences.json` lists the cases where we differ on purpose: the number of the
difference (0 if the original's answer cannot be equalled), the reason, and what our answer
contains. Difference 10, `details.causes` of a 404, has a test of its own: causes are sent only to
callers who may read discovery, which the other tests' callers may not.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from adapter import errors
from adapter.server.api import health
from adapter.server.apimachinery import encoding
from adapter.server.evaluation.evaluation import Evaluated
from rules import ruleset
from rules.kinds import ApiGroup, ApiResource, GroupResource, Kinds
from rules.query import resource as resources
from rules.query.aggregate import ExternalValue, Value
from rules.query.resource import Usage
from tests import world
from tests.adapter import wired

HERE = Path(__file__).parent
FILES = ("values", "errors", "failures", "options", "negotiation", "paths", "documents", "resource")
CASES = {
    case["name"]: case for name in FILES for case in json.loads((HERE / f"{name}.json").read_text())
}
DIFFERENCES = json.loads((HERE / "differences.json").read_text())
SAME = [name for name in CASES if name not in DIFFERENCES]
OF_USAGE = [name for name in SAME if CASES[name]["target"].startswith("/apis/metrics.k8s.io/v")]
NOT_FOUND = [
    name for name in SAME if "could not find the metric" in (CASES[name].get("body") or "")
]

UNSERVED = "/statusz"
V1 = "/apis/metrics.k8s.io/v1"
PORT = 16443

HOOKS = [
    health.Check(name=f"poststarthook/{name}", run=lambda: None)
    for name in (
        "generic-apiserver-start-informers",
        "max-in-flight-filter",
        "storage-object-count-tracker-hook",
    )
]
INFORMERS = health.Check(name="informer-sync", run=lambda: None)
SHUTDOWN = health.Check(name="shutdown", run=lambda: None)

PODS = GroupResource("", "pods")
NODES = GroupResource("", "nodes")
NAMESPACES = GroupResource("", "namespaces")
DEPLOYMENTS = GroupResource("apps", "deployments")
WIDGETS = GroupResource("example.com", "widgets")

SERIES = {
    "http_requests_total": {"namespace", "pod", "node"},
    "dep_metric": {"namespace", "deployment"},
    "wid_metric": {"namespace", "widget"},
    "ns_metric": {"namespace"},
    "queue_len": {"namespace", "queue"},
}
MILLI = {
    (PODS, "pod-a"): 20500,
    (PODS, "pod-b"): 20500,
    (NODES, "node-1"): 1234567890500,
    (NODES, "node-2"): 1234567890500,
    (NAMESPACES, "default"): 10**18,
    (DEPLOYMENTS, "dep-a"): 7000,
    (WIDGETS, "wid-a"): 0,
}
QUEUE = {"queue": "q1", "namespace": "default", "__name__": "queue_len"}
CONTAINER_USE: dict[str, int] = {"cpu": 250, "memory": 14 * 1024**3 * 1000}
NODE_USE = {"cpu": 1500, "memory": 1234567890500}
LISTED: Mapping[tuple[GroupResource, str], Mapping[str, Any]] = {
    (PODS, "default"): {name: {"app": "demo", "name": name} for name in ("pod-a", "pod-b")},
    (PODS, "other"): {"pod-c": {"app": "demo", "name": "pod-c"}},
    (NODES, ""): {name: {"app": "demo", "name": name} for name in ("node-1", "node-2")},
    (NAMESPACES, ""): {"default": {}, "other": {}},
    (DEPLOYMENTS, "default"): {"dep-a": {}},
    (WIDGETS, "default"): {"wid-a": {}},
}


RULES = ruleset.load([("config.yaml", (HERE / "config.yaml").read_text())])
RESOURCES = resources.compile(RULES.resource_rules)


class Prometheus(wired.Evaluation):
    """Fails, waits or returns nothing if the metric selector has a certain key.

    The Prometheus of the recordings did the same.
    """

    async def values(self, plan, **more):
        keys = await self._selector_keys(plan)
        if "SCALAR" in keys:
            raise errors.Broken("requested by the selector")
        return Evaluated(values={}) if "EMPTYVEC" in keys else await super().values(plan)

    async def rows(self, plan, *, deadline=None):
        keys = await self._selector_keys(plan)
        if "SCALAR" in keys:
            (time,) = {row.value.time for row in self.external["queue_len"]}
            value = Value(milli=3000, time=time, samples=1)
            return Evaluated(values=[ExternalValue(labels=None, value=value)])
        return Evaluated(values=[]) if "EMPTYVEC" in keys else await super().rows(plan)

    async def _selector_keys(self, plan):
        keys = {requirement.key for requirement in plan.selector.requirements}
        if "PROMFAIL" in keys:
            raise errors.Broken("requested by the selector")
        if "slow" in keys:
            await asyncio.sleep(30)
        return keys


@pytest.fixture(scope="module")
def kinds() -> Kinds:
    widget = ApiResource(name="widgets", singular="widget", kind="Widget", namespaced=True)
    group = ApiGroup(
        name="example.com", versions=("v1",), preferred="v1", resources={"v1": (widget,)}
    )
    deployment = ApiResource(
        name="deployments", singular="deployment", kind="Deployment", namespaced=True
    )
    apps = ApiGroup(name="apps", versions=("v1",), preferred="v1", resources={"v1": (deployment,)})
    core = tuple(
        ApiResource(name=f"{name}s", singular=name, kind=name.title(), namespaced=name == "pod")
        for name in ("pod", "node", "namespace")
    )
    return Kinds.of(
        (
            ApiGroup(name="", versions=("v1",), preferred="v1", resources={"v1": core}),
            apps,
            group,
        )
    )


@pytest.fixture(scope="module")
def catalog(kinds):
    # The Prometheus of the recordings listed the same series for every rule.
    series = world.listing(*(" ".join((name, *labels)) for name, labels in SERIES.items()))
    return world.generation(RULES, *[series] * len(RULES.all), kinds=kinds).catalog


def _original(case: dict) -> str | None:
    """Return the original's body without the paths that we do not serve, and with metrics v1.

    The original lists resources in random order; here they are sorted.
    """
    body = CASES[case["body_of"]]["body"] if "body_of" in case else case["body"]
    if not body:
        return body
    if '"paths"' in body:
        document = json.loads(body)
        paths = [path for path in document["paths"] if not path.startswith(UNSERVED)]
        return encoding.encode({"paths": sorted([*paths, V1])}, pretty=True).decode()
    if '"APIResourceList"' in body:
        document = json.loads(body)
        document["resources"].sort(key=lambda each: each["name"])
        return encoding.encode(document, pretty=True).decode()
    return body


def _answered_at(case: dict) -> float:
    """Return when the original answered, which is the timestamp of all its values."""
    found = re.search(r'(?i:timestamp)"?: ?"([^"]+)"', case.get("body") or "")
    text = found[1] if found else case.get("answered_at")
    return datetime.fromisoformat(text).timestamp() if text else 0.0


async def _ours(case: dict, kinds, catalog, guard=wired.only_answers) -> wired.Reply:
    time = _answered_at(case)
    queue = ExternalValue(labels=QUEUE, value=Value(milli=20500, time=time, samples=1))
    evaluation = Prometheus(
        {key: Value(milli=milli, time=time, samples=1) for key, milli in MILLI.items()},
        {"queue_len": [queue]},
    )
    for (resource, namespace), names in LISTED.items():
        if resource in (PODS, NODES):
            of_pod = resource == PODS
            for metric, milli in (CONTAINER_USE if of_pod else NODE_USE).items():
                containers = ("main", "side") if of_pod else ("",)
                usage = Usage(milli=dict.fromkeys(containers, milli), time=time)
                evaluation.used |= {(metric, namespace, name): usage for name in names}
    slow = "slow" in case["target"]
    handler = wired.build_router(
        catalog,
        wired.Objects(kinds, LISTED),
        evaluation,
        resources=RESOURCES,
        port=PORT,
        live=HOOKS,
        ready=(HOOKS[0], INFORMERS, *HOOKS[1:], SHUTDOWN),
        timeout=0.05 if slow else 5.0,
        guard=guard,
    )
    async with wired.listening(handler) as port:
        return await wired.fetch(
            port, case["target"], method=case["method"], headers=case["headers"]
        )


@pytest.mark.parametrize("name", SAME)
async def test_answer_equals_the_originals(name, kinds, catalog):
    case = CASES[name]

    reply = await _ours(case, kinds, catalog)

    expected = bytes.fromhex(case["hex"]) if "hex" in case else _original(case)
    headers = {key: value for key, value in case["answer"].items() if key != "Content-Length"}
    assert reply.status == case["status"]
    assert {key: reply.headers.get(key) for key in headers} == headers
    if expected is not None:
        assert (reply.body if "hex" in case else reply.body.decode()) == expected
    if "Content-Length" in case["answer"] and ("hex" in case or expected == case.get("body")):
        assert reply.headers["Content-Length"] == case["answer"]["Content-Length"]


@pytest.mark.parametrize("name", OF_USAGE)
async def test_v1_of_metrics_has_the_answers_of_v1beta1(name, kinds, catalog):
    """Kubernetes 1.37 has the same types in both; the original knows v1beta1 only."""
    recorded = json.dumps(CASES[name])
    # In protobuf, the lengths of the apiVersion and of what contains it are before it.
    for before, after in (
        (b"\n\x28\n\x16metrics.k8s.io/v1beta1".hex(), b"\n\x23\n\x11metrics.k8s.io/v1".hex()),
        ("metrics.k8s.io/v1beta1", "metrics.k8s.io/v1"),
    ):
        recorded = recorded.replace(before, after)
    case = json.loads(recorded)

    reply = await _ours(case, kinds, catalog)

    assert reply.status == case["status"]
    assert reply.headers["Content-Type"] == case["answer"]["Content-Type"]
    if "hex" in case:
        assert reply.body.hex() == case["hex"]
    else:
        assert reply.body.decode() == _original(case)


@pytest.mark.parametrize("name", NOT_FOUND)
async def test_causes_are_sent_to_callers_who_may_read_discovery(name, kinds, catalog):
    case = CASES[name]

    reply = await _ours(case, kinds, catalog, guard=None)

    ours, original = json.loads(reply.body), json.loads(_original(case))
    (cause,) = ours.pop("details")["causes"]
    assert cause.keys() == {"reason", "message"}
    assert (reply.status, list(ours.items())) == (case["status"], list(original.items()))


@pytest.mark.parametrize("name", DIFFERENCES)
async def test_answer_differs_as_documented(name, kinds, catalog):
    case, difference = CASES[name], DIFFERENCES[name]

    reply = await _ours(case, kinds, catalog)

    body = reply.body.decode()
    assert difference["reason"]
    assert reply.status == difference.get("status", case["status"])
    assert body != _original(case) or reply.status != case["status"]
    for part in difference["says"]:
        assert part in body
    for part in difference.get("says_not", ()):
        assert part not in body
