"""Each recorded exposition, served by pods of its image, labels and ports, has its golden values.

The Prometheus in the adapter's pod discovers the pods, and the adapter detects the presets.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from http import HTTPStatus
from pathlib import Path

import pytest
import yaml

from rules import metrics_apis
from tests.e2e.test_embedded import EMBEDDED
from tests.e2e.test_hostile import get
from tools import documents, quantity
from tools.control_plane.client import RefusedError
from tools.documents import Document
from tools.e2e import installation
from tools.e2e.installation import NAMESPACE, Cluster
from tools.node import node
from tools.presets.pods import EXPOSITIONS, SERVING, Exposition, Values
from tools.presets.table import ACCELERATORS
from tools.real.prometheus import wait_for
from tools.workload import objects, page

PAGES, USING = "pages", "devices"
"""Values of the label `of`: pods that serve pages, and pods that use devices."""
MOST = 10
"""Expositions at the same time: on a busy machine, scrapes of more pods time out."""
SECONDS = 180.0
"""Limit of a wait; on an idle machine, none takes a tenth of it."""
_TARGETS = "/api/v1/query?query=count(up)"
Expected = Mapping[str, Values]
"""Pod with its namespace, or node -> its values."""


def steps() -> Iterator[Sequence[Exposition]]:
    """Yield expositions that are served at the same time, without two about the same pod or node.

    All nodes are one here, so pages that are about nodes only come one by one.
    """
    together = [
        each
        for each in EXPOSITIONS
        if each.namespace == SERVING or (each.name in ACCELERATORS and each.pods)
    ]
    yield from ([each] for each in EXPOSITIONS if each not in together)
    # The last: samples of npu-exporter have their own timestamps, so they stay for five minutes.
    yield from (together[start : start + MOST] for start in range(0, len(together), MOST))


def served(step: Sequence[Exposition]) -> Iterator[tuple[Exposition, str, Path]]:
    """Yield each page of a step with its pod; without pods that use devices, one for its node."""
    for each in step:
        for pod, file in itertools.islice(each.files.items(), None if each.pods else 1):
            yield each, pod, file


def expected(step: Sequence[Exposition]) -> Expected:
    """Return the values of a step, those of the node if only one page is about it."""
    of = {pod: values for each in step for pod, values in each.pods.items()}
    (first, pod, _), *others = served(step)
    return of if others else of | {node.NAME: first.nodes[pod]}


def serving(exposition: Exposition, name: str, file: Path) -> Document:
    """Return a pod that serves a page."""
    port, path = exposition.pod.page()
    container = objects.idle(exposition.pod.container, image=exposition.pod.image)
    python, option, _ = container["command"]
    program = Path(page.__file__).read_text()
    container["command"] = [python, option, program, f"{port}", path, file.read_text()]
    container["securityContext"] = {"runAsUser": 0}  # some ports are below 1024
    container["imagePullPolicy"] = "Never"
    if exposition.pod.port:
        port_name, number = exposition.pod.port
        container["ports"] = [{"name": port_name, "containerPort": number}]
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    pod = documents.new("v1", "Pod", name, exposition.namespace, spec=spec)
    pod["metadata"]["labels"] = {**exposition.pod.labels, "of": PAGES}
    return pod


def using(name: str) -> Document:
    """Return a pod that an exporter names; it never starts."""
    namespace, _, pod = name.partition("/")
    gates = [{"name": "e2e/never"}]
    return documents.pod(pod, namespace, labels={"of": USING}, schedulingGates=gates)


def down(cluster: Cluster, step: Sequence[Exposition]) -> Mapping[str, str]:
    """Return each pod whose page is not scraped, with the error of its scrape."""
    found = get(cluster, "/api/v1/targets?state=active")["activeTargets"]
    errors = {
        each["labels"].get("exporter_pod") or each["labels"]["pod"]: each["lastError"]
        for each in found
        if each["health"] != "unknown"
    }
    pods = (pod for _, pod, _ in served(step))
    return {pod: problem for pod in pods if (problem := errors.get(pod, "no target"))}


def values(cluster: Cluster, of: Expected) -> Expected:
    """Return what the adapter has of the same objects and metrics. Raises RefusedError."""
    keys = {
        (name, metric): (name.rpartition("/")[0], metric)
        for name, metrics in of.items()
        for metric in metrics
    }
    found = {each: read(cluster, *each) for each in {*keys.values()}}
    return {
        name: {metric: found[keys[name, metric]].get(name) for metric in metrics}
        for name, metrics in of.items()
    }


def read(cluster: Cluster, namespace: str, metric: str) -> Mapping[str, Fraction]:
    """Return the values of the pods in a namespace, or of nodes. Raises RefusedError."""
    resource, prefix = ("pods", f"{namespace}/") if namespace else ("nodes", "")
    every = metrics_apis.ALL_OBJECTS
    path = metrics_apis.custom_metric(metric, resource, every, namespace=namespace)
    try:
        items = cluster.client.get(path)["items"]
    except RefusedError as error:
        if error.reply.status != HTTPStatus.NOT_FOUND:
            raise
        return {}
    return {
        prefix + each["describedObject"]["name"]: quantity.parse(each["value"]) for each in items
    }


def has(cluster: Cluster, of: Expected) -> bool:
    """Return whether the adapter has these values."""
    try:
        return values(cluster, of) == of
    except RefusedError:  # on a busy machine, a review may take too long
        return False


@pytest.fixture
def adapter(cluster: Cluster) -> Iterator[Cluster]:
    """Cluster with the chart, and with the pods that the exporters name."""
    if not cluster.client.exists(f"/api/v1/nodes/{node.NAME}"):
        pytest.skip("in this cluster, no image has the names of exporters and model servers")
    names = {pod for each in EXPOSITIONS if each.namespace != SERVING for pod in each.pods}
    namespaces = {each.partition("/")[0] for each in names} - {"default"}
    namespaces |= {each.namespace for each in EXPOSITIONS}
    # The node has values of the simulated GPUs, too.
    cluster.kubectl("delete", "daemonset", objects.EXPORTER)
    create(cluster, [documents.new("v1", "Namespace", each, "") for each in namespaces])
    create(cluster, [documents.new("v1", "ServiceAccount", "default", each) for each in namespaces])
    create(cluster, map(using, names))
    cluster.install(
        {
            "replicas": 1,
            "metricsRelistInterval": "10s",
            # Samples of npu-exporter are up to 45 s old.
            "extraArguments": ["--metrics-max-age=1m"],
            "prometheus": {"embedded": EMBEDDED},
        }
    )
    cluster.settled()
    for name in metrics_apis.CUSTOM.apiservices:
        cluster.wait_available(name)
    yield cluster
    cluster.uninstall()
    cluster.kubectl("delete", "namespace", *namespaces)
    cluster.kubectl("delete", "pods", f"--selector=of={USING}", namespace="default")
    cluster.apply(objects.gpus(NAMESPACE, image=installation.image()))
    cluster.rolled_out("daemonset", objects.EXPORTER)


def create(cluster: Cluster, created: Iterable[Document]) -> None:
    """Create objects in their namespaces, unless they exist."""
    text = yaml.safe_dump_all(created)
    cluster.kubectl("apply", "--server-side", "--filename=-", text=text, namespace="")


def test_golden_values(adapter: Cluster, report) -> None:
    differences: dict[str, object] = {}
    for step in steps():
        of = expected(step)
        title = ", ".join(each.name for each in step)
        create(adapter, (serving(*each) for each in served(step)))
        up = wait(lambda step=step: not down(adapter, step))
        valued = None if up is None else wait(lambda of=of: has(adapter, of))
        if valued is None:
            differences[title] = down(adapter, step) or different(values(adapter, of), of)
        selector = f"--selector=of={PAGES}"
        adapter.kubectl("delete", "pods", "--all-namespaces", selector, namespace="")
        ended = wait(lambda: not get(adapter, _TARGETS)["result"])
        if ended is None:
            differences[f"{title}, ended"] = get(adapter, _TARGETS)
        report(f"{title}: seconds until scraped {up}, valued {valued}, ended {ended}")

    assert not differences


def wait(condition: Callable[[], object]) -> float | None:
    """Wait until a condition holds; return the seconds, or None after SECONDS."""
    started = time.monotonic()
    try:
        wait_for(condition, "", seconds=SECONDS)
    except TimeoutError:
        return None
    return round(time.monotonic() - started, 1)


def different(found: Expected, of: Expected) -> Mapping[str, object]:
    """Return the values that are not the expected ones, each with that."""
    return {
        f"{name} {metric}": (f"{found[name][metric]}", f"{value}")
        for name, metrics in of.items()
        for metric, value in metrics.items()
        if found[name][metric] != value
    }
