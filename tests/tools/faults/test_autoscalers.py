"""What an HPA and a gauge say of seven faults and of their cures, on a real control plane.

The controller syncs every two seconds here; the adapter waits for ten until it writes an Event.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tools import documents
from tools.certificates import INSECURE
from tools.cluster import server
from tools.cluster.server import Server
from tools.control_plane.plane import ControlPlane
from tools.documents import Document
from tools.faults import testbed
from tools.real import prometheus
from tools.real.prometheus import Prometheus, wait_for
from tools.waiting import repeated

RULE = """\
- seriesQuery: {metric}
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: avg by (<<.GroupBy>>) (<<.Series>>{{<<.LabelMatchers>>}})
"""
EXTERNAL_RULE = """\
- seriesQuery: {metric}
  resources: {{overrides: {{namespace: {{resource: namespace}}}}}}
  metricsQuery: sum(<<.Series>>{{<<.LabelMatchers>>}})
"""
EXTERNAL = ("util_queue", "util_negative")
GOOD = '{namespace="default",pod="POD"} 1'
FAULTS: Mapping[str, tuple[str, str]] = {
    "util_divided": ('{namespace="default",pod="POD"} NaN', "NotFinite"),
    "util_elsewhere": ('{namespace="gpu-operator",pod="POD"} 1', "OtherNamespace|NamespaceChanged"),
    "util_other": ('{namespace="default",pod="other"} 1', "SeriesEnded"),
    "util_gone": ("", "SeriesEnded"),
    "util_queue": ("", "SeriesEnded"),
    "util_negative": ('{namespace="default",pod="POD"} -1', "NegativeValue"),
}
"""Metric -> its series under the fault, and the reason. In the seventh, Prometheus is down."""
WRONG = "util_nothing"
"""Metric that no rule produces, of an HPA that waits for it all the time."""
GAUGE = re.compile(
    r'^gpu_metrics_adapter_hpa_metric_resolvable\{hpa="(\S+?)",metric=".*?",namespace="default",'
    r'reason="(\w*)"\} (\S+)$',
    re.MULTILINE,
)


class Bed:
    """Prometheus, an adapter, and an HPA for each metric."""

    def __init__(self, plane: ControlPlane, folder: Path, healthy: Prometheus) -> None:
        self.plane, self.prometheus = plane, healthy
        self._lock = threading.Lock()
        self._lines: frozenset[str] = frozenset()
        rules = folder / "rules.yaml"
        custom = "".join(RULE.format(metric=each) for each in FAULTS if each not in EXTERNAL)
        external = "".join(EXTERNAL_RULE.format(metric=each) for each in EXTERNAL)
        rules.write_text(f"rules:\n{custom}externalRules:\n{external}")
        flags = (
            f"--config={rules}",
            f"--prometheus-url={healthy.url}",
            "--shutdown-delay=0s",
            "--authorization-always-allow-paths=/metrics",
        )
        self.adapter = Server(plane, folder / "adapter.log", flags)

    def write(self, series: Mapping[str, str]) -> None:
        """Have these series from now on, and end those that the metrics had before."""
        with self._lock:
            lines = frozenset(
                metric + labels.replace("POD", f"{name_of(metric)}-0")
                for metric, labels in series.items()
                if labels
            )
            gone = {each.rpartition(" ")[0] for each in self._lines - lines}
            kept = {each.rpartition(" ")[0] for each in lines}
            # First, so that no metric is without any series meanwhile.
            self.prometheus.put(*lines)
            self.prometheus.end(*(f"{each} 1" for each in gone - kept))
            self._lines = lines

    def put(self) -> None:
        """Write a sample of each series."""
        with self._lock:
            self.prometheus.put(*self._lines)

    def get(self, path: str) -> str:
        """Return the text at a path of the adapter."""
        url = f"{self.adapter.url}{path}"
        with urllib.request.urlopen(url, context=INSECURE, timeout=90) as response:
            text: str = response.read().decode()
        return text

    def gauge(self) -> Mapping[str, str]:
        """Return the reason of each HPA; empty if it gets its metric."""
        found = GAUGE.findall(self.get("/metrics"))
        assert all((reason == "") == (value == "1.0") for _, reason, value in found)
        return {hpa: reason for hpa, reason, _ in found if hpa in NAMES}

    def told(self) -> Mapping[str, list[tuple[str, str, int]]]:
        """Return reason, message and count of the adapter's Events of each HPA, in order."""
        events = self.events("gpu-metrics-adapter")
        return {name: each for name, each in events.items() if name in NAMES}

    def events(self, component: str) -> Mapping[str, list[tuple[str, str, int]]]:
        """Return reason, message and count of a component's Events of each HPA, in order."""
        items = self.plane.admin.get("/api/v1/namespaces/default/events")["items"]
        found: dict[str, list[tuple[str, str, int]]] = {}
        for each in sorted(items, key=lambda item: item["lastTimestamp"] or ""):
            name = each["involvedObject"]["name"]
            if each["source"].get("component") == component:
                row = each["reason"], each["message"], each["count"]
                found.setdefault(name, []).append(row)
        return found


def hpa(metric: str) -> Document:
    """Return an HPA on the metric, called as it, with hyphens."""
    of = documents.external_metric if metric in EXTERNAL else documents.pods_metric
    return documents.hpa(name_of(metric), of(metric, "1"), kind="ReplicaSet", maxReplicas=1)


def name_of(metric: str) -> str:
    return metric.replace("_", "-")


NAMES = set(map(name_of, FAULTS))
"""HPAs whose metric is lost and is back; Events of others are of WRONG or of an earlier test."""


@pytest.fixture
def bed(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Bed]:
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(prometheus.run(tmp_path))
        stack.enter_context(server.installed(control_plane))
        metrics = (*FAULTS, WRONG)
        apps = list(map(name_of, metrics))
        items = [*map(testbed.replica_set, apps), *map(testbed.pod, apps), *map(hpa, metrics)]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        bed = Bed(control_plane, tmp_path, running)
        bed.write(dict.fromkeys(FAULTS, GOOD))
        stack.enter_context(repeated(bed.put, every=1))
        bed.adapter.start()
        stack.callback(bed.adapter.kill)
        control_plane.kubectl("apply", "-f", "-", text=text)
        delete = ("delete", "--force", "--ignore-not-found", "-f", "-")
        stack.callback(control_plane.kubectl, *delete, text=text)
        yield bed


def test_an_hpa_is_told_once_that_a_metric_is_lost_and_once_that_it_is_back(bed: Bed) -> None:
    wait_for(lambda: bed.gauge() == dict.fromkeys(NAMES, ""), "all are resolved")
    assert bed.told() == {}

    bed.write({metric: labels for metric, (labels, _) in FAULTS.items()})
    wait_for(lambda: has_reasons(bed.gauge()), "all gauges tell of the faults")
    wait_for(lambda: bed.told().keys() == NAMES, "all HPAs have an Event")
    events = bed.told()
    for metric, (_, reasons) in FAULTS.items():
        ((reason, message, count),) = events[name_of(metric)]
        assert (reason, count) == ("MetricUnresolvable", 1)
        assert re.match(rf"(Pods|External) metric {metric}: ({reasons}): .+", message)

    check_one_event(bed)

    bed.adapter.kill()
    bed.adapter.start()
    wait_for(lambda: bed.gauge().keys() == NAMES, "the adapter looked again")
    time.sleep(11)  # longer than a state must last
    assert bed.told() == events, "a restart tells nothing again"

    bed.write(dict.fromkeys(FAULTS, GOOD))
    wait_for(lambda: not any(bed.gauge().values()), "all gauges tell of the cures")
    told = {name: [*before, "MetricResolvable"] for name, before in events.items()}
    wait_for(
        lambda: {k: [*v[:1], v[-1][0]] for k, v in bed.told().items() if len(v) == 2} == told,
        "all HPAs have a second Event",
    )

    bed.prometheus.stop()
    wait_for(
        lambda: set(bed.gauge().values()) == {"PrometheusUnavailable"},
        "all gauges tell that Prometheus is down",
    )
    wait_for(
        lambda: {sum(count for _, _, count in each) for each in bed.told().values()} == {3},
        "the first Event of all HPAs is counted again",
    )


def has_reasons(gauge: Mapping[str, str]) -> bool:
    """Return whether each HPA has the reason of its fault."""
    return all(
        re.fullmatch(reasons, gauge[name_of(metric)]) for metric, (_, reasons) in FAULTS.items()
    )


def check_one_event(bed: Bed) -> None:
    """The condition of an HPA has the cause, in the same words at each sync: so in one Event.

    The controller writes 25 Events of an HPA, two at each sync that fails, and then one in minutes.
    """

    def lost() -> tuple[str, str, int]:
        events = bed.events("horizontal-pod-autoscaler")[name_of(WRONG)]
        of_metric = (each for each in events if each[0] == "FailedGetPodsMetric")
        return max(of_metric, key=lambda each: each[2])

    wait_for(lambda: lost()[2] >= 10, "ten syncs have failed for the same reason")
    message = lost()[1]
    path = f"/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/{name_of(WRONG)}"
    conditions = bed.plane.admin.get(path)["status"]["conditions"]
    (active,) = (each["message"] for each in conditions if each["type"] == "ScalingActive")
    assert re.search(r"could not find the metric util_nothing for pods: \w+: no rule", message)
    assert message in active
