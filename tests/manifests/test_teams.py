"""Rules of teams behind a real aggregator: ConfigMaps of two namespaces, with only their rights."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.server.teams.config_maps import STATUS
from tools.cluster import server
from tools.cluster.server import OVERLAY, Server
from tools.control_plane.plane import ControlPlane
from tools.real.prometheus import Prometheus, wait_for

NAMESPACES = ("team-x", "team-y")
LABELS = {"gpu-metrics-adapter/rules": "team"}
CLUSTER = """\
rules:
- seriesQuery: shared_util
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: max by (<<.GroupBy>>) (<<.Series>>{<<.LabelMatchers>>})
"""
TEAM = """\
rules:
- seriesQuery: queue_length
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: max by (<<.GroupBy>>) (<<.Series>>{<<.LabelMatchers>>}) + OFFSET
- seriesQuery: shared_util
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: vector(999)
externalRules:
- seriesQuery: '{__name__="queue_length"}'
  resources: {namespaced: false}
  name: {as: all_queues}
  metricsQuery: sum(<<.Series>>)
"""


HIDDEN = (
    "team-x/rules: rules[1] (rules.yaml:5): a rule of all namespaces has "
    "namespaces/shared_util, pods/shared_util, and comes first: choose another name"
)
IN_USE = {
    "configMap": "rules",
    "state": "InUse",
    "rules": 3,
    "metrics": ["external/all_queues", "namespaces/queue_length", "pods/queue_length"],
    "hiddenMetrics": ["namespaces/shared_util", "pods/shared_util"],
    "problems": [HIDDEN],
}
"""What is reported of TEAM."""


@pytest.fixture(scope="module")
def scraped(empty_prometheus: Prometheus) -> Prometheus:
    for later in range(0, 900, 120):
        empty_prometheus.put(
            *(
                f'{name}{{namespace="{namespace}",pod="web-0"}} {value + number}'
                for number, namespace in enumerate(NAMESPACES)
                for name, value in (("queue_length", 10), ("shared_util", 50))
            ),
            at=time.time() + later,
        )
    return empty_prometheus


@pytest.fixture(scope="module")
def plane(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A cluster with the component, the two namespaces, and a pod in each."""
    overlay = tmp_path_factory.mktemp("overlay")
    components = OVERLAY.parents[1] / "components"
    places = [OVERLAY, components / "team-rules", components / "team-rules-status"]
    base, *added = (os.path.relpath(each, overlay) for each in places)
    kustomization = {"resources": [base], "components": added}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    objects = yaml.safe_dump_all(
        document
        for namespace in NAMESPACES
        for document in (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "web", "namespace": namespace},
            },
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "web-0", "namespace": namespace},
                "spec": {
                    "serviceAccountName": "web",
                    "containers": [{"name": "web", "image": "web"}],
                },
            },
        )
    )
    with server.installed(control_plane):
        server.install(control_plane, overlay=overlay)
        control_plane.kubectl("apply", "-f", "-", text=objects)
        yield control_plane
        # Without waiting: the APIServices of the adapter, which has ended, still exist.
        control_plane.kubectl("delete", "--wait=false", "-f", "-", text=objects)
        for role in ("team-rules", "team-rules-status", "team-rules-reader"):
            name = f"gpu-metrics-adapter:{role}"
            control_plane.kubectl("delete", "--ignore-not-found", f"clusterrole/{name}")
            control_plane.kubectl("delete", "--ignore-not-found", f"clusterrolebinding/{name}")


def server_of(plane: ControlPlane, folder: Path, prometheus: Prometheus, *flags: str) -> Server:
    """Return an adapter with rules of teams, which is not started yet."""
    config = folder / "config.yaml"
    config.write_text(CLUSTER)
    return Server(
        plane,
        folder / "adapter.log",
        [
            f"--config={config}",
            f"--prometheus-url={prometheus.url}",
            "--team-rules-selector=gpu-metrics-adapter/rules=team",
            "--shutdown-delay=0s",
            *flags,
        ],
    )


@pytest.fixture(scope="module")
def adapter(
    plane: ControlPlane, scraped: Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("adapter")
    running = server_of(plane, folder, scraped, "--team-rules-status")
    running.start()
    yield running
    running.stop()


def put(plane: ControlPlane, namespace: str, rules: str, name: str = "rules") -> None:
    """Write the ConfigMap with these rules."""
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": LABELS},
        "data": {"rules.yaml": rules},
    }
    plane.kubectl("apply", "-f", "-", text=yaml.safe_dump(document))


def value(plane: ControlPlane, path: str) -> str:
    """Return the one value at a path below the groups, or what is answered instead."""
    group = "custom" if "/pods/" in path else "external"
    reply = plane.admin.request("GET", f"/apis/{group}.metrics.k8s.io/v1beta1/{path}")
    if reply.status != 200:
        return str(reply.status)
    return ",".join(item["value"] for item in reply.document["items"])


def queue(plane: ControlPlane, namespace: str, metric: str = "queue_length") -> str:
    return value(plane, f"namespaces/{namespace}/pods/web-0/{metric}")


def status(plane: ControlPlane, namespace: str, name: str = "rules") -> str:
    found = plane.admin.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}")
    return str((found["metadata"].get("annotations") or {}).get(STATUS, ""))


def report(plane: ControlPlane, namespace: str) -> dict[str, Any]:
    """Return the document about the rules of a namespace, its items by their ConfigMaps."""
    path = f"/apis/custom.metrics.k8s.io/v1beta1/namespaces/{namespace}/teamrules"
    document = plane.admin.get(path)
    return document | {"items": {each["configMap"]: each for each in document["items"]}}


def test_rules_of_a_team_count_in_its_namespace_only(plane: ControlPlane, adapter: Server) -> None:
    put(plane, "team-x", TEAM.replace("OFFSET", "100"))
    wait_for(lambda: queue(plane, "team-x") == "110", "the team's metric")
    # If that takes longer than three seconds, the metrics of a version come one after the other.
    wait_for(lambda: report(plane, "team-x")["items"] == {"rules": IN_USE}, "all its metrics")

    assert queue(plane, "team-y") == "404"
    assert value(plane, "namespaces/team-x/all_queues") == "10"  # without those of team-y
    assert value(plane, "namespaces/team-y/all_queues") == "404"
    # A rule of the cluster wins.
    assert queue(plane, "team-x", "shared_util") == "50"
    listed = plane.admin.get("/apis/custom.metrics.k8s.io/v1beta1")["resources"]
    assert {each["name"].partition("/")[2] for each in listed} == {"shared_util"}
    assert report(plane, "team-y")["items"] == {}
    annotation = (
        f"{HIDDEN}; 3 rules in use; metrics: external/all_queues, namespaces/queue_length, "
        "pods/queue_length"
    )
    wait_for(lambda: status(plane, "team-x") == annotation, "the annotation")


def test_two_teams_have_a_metric_of_the_same_name(plane: ControlPlane, adapter: Server) -> None:
    for number, namespace in enumerate(NAMESPACES):
        put(plane, namespace, TEAM.replace("OFFSET", str(1000 * (number + 1))))

    wait_for(
        lambda: [queue(plane, each) for each in NAMESPACES] == ["1010", "2011"],
        "each team's metric",
    )
    assert [value(plane, f"namespaces/{each}/all_queues") for each in NAMESPACES] == ["10", "11"]


def test_a_refused_version_has_no_effect_and_says_why(plane: ControlPlane, adapter: Server) -> None:
    put(plane, "team-x", TEAM.replace("OFFSET", "1"))
    wait_for(lambda: queue(plane, "team-x") == "11", "the team's metric")

    put(plane, "team-x", TEAM.replace("OFFSET", "info(queue_length)"))
    wait_for(lambda: "refused" in status(plane, "team-x"), "the annotation")

    assert "cannot use info()" in status(plane, "team-x")
    (item,) = report(plane, "team-x")["items"].values()
    assert (item["state"], item["rules"], item["metrics"]) == ("Refused", 0, [])
    assert "cannot use info()" in item["problems"][0]
    wait_for(lambda: queue(plane, "team-x") == "404", "the end of the rules")
    path = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/team-x/pods/web-0/queue_length"
    causes = plane.admin.request("GET", path).document["details"]["causes"]
    (refused,) = [each for each in causes if each["reason"] == "RulesRefused"]
    assert "cannot use info()" in refused["message"]
    explained = plane.admin.request("GET", f"{path}?explain=true").document["causes"]
    assert refused in explained
    assert queue(plane, "team-y") == "2011"
    events = plane.admin.get("/api/v1/namespaces/team-x/events")["items"]
    (told,) = [each for each in events if each["reason"] == "RulesRefused"]
    assert told["involvedObject"]["kind"] == "ConfigMap"
    assert "cannot use info()" in told["message"]

    put(plane, "team-x", TEAM.replace("OFFSET", "2"))
    wait_for(lambda: queue(plane, "team-x") == "12", "the team's metric")
    plane.kubectl("delete", "configmap", "rules", "--namespace=team-x")
    wait_for(lambda: queue(plane, "team-x") == "404", "the end of the metric")
    assert report(plane, "team-x")["count"] == 0
    assert "CRITICAL" not in adapter.log
    assert "Traceback" not in adapter.log


def test_restarted_replicas_have_the_same_rules_in_use(
    plane: ControlPlane,
    adapter: Server,
    scraped: Prometheus,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The first has seen each version, the second starts when all is there."""
    rules = {
        "a-good": TEAM.replace("OFFSET", "1"),
        "b-refused": "rules: [",
        "c-large": "x" * 100_000,
        "d-many": "rules:\n" + "- {seriesQuery: m, metricsQuery: x}\n" * 101,
    }
    for name in reversed(rules):
        put(plane, "team-x", TEAM.replace("OFFSET", "2"), name=name)
    wait_for(lambda: len(report(plane, "team-x")["items"]) == 4, "all of them")
    for name, text in rules.items():
        put(plane, "team-x", text, name=name)

    def decided() -> dict[str, Any]:
        items = report(plane, "team-x")["items"]
        return {name: each | {"metrics": []} for name, each in items.items()}

    def is_decided() -> bool:
        found = report(plane, "team-x")
        items = [*found["items"].values()]
        return (
            "pending" not in found
            and [each["state"] for each in items] == ["InUse", "Refused", "Refused", "Refused"]
            and items[0]["hiddenMetrics"] == IN_USE["hiddenMetrics"]
        )

    wait_for(is_decided, "what is in use")
    before = decided()
    second = server_of(plane, tmp_path_factory.mktemp("second"), scraped)
    adapter.stop()
    second.start()
    try:
        wait_for(is_decided, "what is in use")
        assert decided() == before
        wait_for(lambda: queue(plane, "team-x") == "11", "the team's metric")
    finally:
        second.stop()
        adapter.start()
        plane.kubectl("delete", "configmap", *rules, "--namespace=team-x")


def test_who_may_view_a_namespace_may_read_what_became_of_its_rules(
    plane: ControlPlane, adapter: Server
) -> None:
    user = plane.user("viewer")
    plane.kubectl(
        "create", "rolebinding", "viewer", "--clusterrole=view", "--user=viewer", "-n=team-x"
    )
    path = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/{}/teamrules".format

    # The API server aggregates ClusterRoles in the background.
    wait_for(lambda: user.request("GET", path("team-x")).status == 200, "the right")
    assert user.request("GET", path("team-y")).status == 403
