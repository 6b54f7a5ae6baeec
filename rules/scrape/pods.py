"""Findings about pods with metrics for a preset that Prometheus does not scrape.

Matches pods as the jobs of `jobs` do, but in the documents of the API server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rules.exporters import advice
from rules.exporters.generations import GENERATIONS, ExporterGeneration
from rules.exporters.target import TRUSTED, Containers
from rules.findings import Finding, State
from rules.quoting import counted
from rules.scrape import jobs

_WAYS = jobs.ways(GENERATIONS)
_TARGETS = (
    "/targets in Prometheus has the error; with jobs of `presets scrape`, the pod's annotation "
    f"{jobs.NAME}/port names another port"
)
_REFUSED = (
    "If that is more than the `sample_limit` of the job, raise `prometheus.embedded.sampleLimit` "
    "of the chart, or for `presets scrape` --limit=scrape-samples=NUMBER; otherwise /targets in "
    "Prometheus has the error"
)
Key = tuple[str, str]
"""Namespace and name of a pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPod:
    """A pod that serves the page of a preset."""

    generation: ExporterGeneration
    """The one that describes the page."""
    namespace: str
    name: str
    ready: bool

    @property
    def key(self) -> Key:
        """Its namespace and name."""
        return self.namespace, self.name


def serving(pod: Mapping[str, Any]) -> Iterator[ServingPod]:
    """Yield each page of presets that a pod, given by its document, serves: usually none."""
    metadata, found = pod["metadata"], dict[str, ExporterGeneration]()
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    annotated = annotations.get(f"{jobs.NAME}/scrape", "")
    for container in pod["spec"]["containers"]:
        for generation, containers in _WAYS:
            if annotated == generation.preset or _match(containers, container, labels):
                found[generation.name] = generation
                break
    conditions = (pod.get("status") or {}).get("conditions") or ()
    for generation in found.values():
        yield ServingPod(
            generation=generation,
            namespace=metadata["namespace"],
            name=metadata["name"],
            ready=any(each["type"] == "Ready" and each["status"] == "True" for each in conditions),
        )


def _match(containers: Containers, container: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    return containers.match(container.get("image", ""), labels, container["name"]) and (
        not (containers.port_name or containers.port_number)
        or any(
            containers.match_port(each.get("name", ""), each["containerPort"])
            for each in container.get("ports") or ()
        )
    )


def findings(
    pods: Iterable[ServingPod],
    up: Mapping[Key, float],
    detected: Collection[str],
    samples: Mapping[Key, float],
) -> Iterator[Finding]:
    """Yield a warning for each kind of page that is not scraped, or whose scrapes fail.

    `up` has the pods that are targets, and 0 if no scrape succeeded. `detected` are the names of
    the generations of which there are series. `samples` are those of pages whose scrapes fail.
    """
    pages: dict[str, list[ServingPod]] = {}
    for each in pods:
        pages.setdefault(each.generation.name, []).append(each)
    for found in pages.values():
        generation = found[0].generation
        known = any(
            each.name in detected and jobs.target(each) is generation for each in GENERATIONS
        )
        left = [each for each in found if each.key not in up]
        # Targets without the labels of their pods are the subject of other findings.
        if not known or (generation.server and len(left) < len(found)):
            yield from _unscraped(generation, left)
        down = [each for each in found if each.ready and not up.get(each.key, True)]
        refused = [each for each in down if samples.get(each.key)]
        if refused:
            count = max(int(samples[each.key]) for each in refused)
            yield _finding(
                "scrape-fails",
                f"{_counted(generation, refused)}, whose scrapes fail after {count} samples",
                _REFUSED,
            )
        if silent := [each for each in down if each not in refused]:
            needs = generation.endpoint.format(path=generation.scrape.path)
            yield _finding(
                "scrape-fails",
                f"{_counted(generation, silent)}, whose scrapes fail",
                ". ".join(filter(None, (needs, _TARGETS))),
            )


def _unscraped(generation: ExporterGeneration, pods: Sequence[ServingPod]) -> Iterator[Finding]:
    if not pods:
        return
    options = ""
    namespaces = sorted({each.namespace for each in pods})
    condition = ""
    if not generation.server and not {*namespaces} <= {*TRUSTED}:
        options = f" --trusted-namespaces={','.join(namespaces)}"
        condition = ": do so if all who can create pods there may set the values of other pods"
    yield _finding(
        "unscraped",
        f"{_counted(generation, pods)}, not scraped by Prometheus",
        f"{advice.scrape_command(generation.preset, options)} prints what makes it scrape "
        f"them{condition}",
    )


def _counted(generation: ExporterGeneration, pods: Sequence[ServingPod]) -> str:
    namespaces = counted(len({each.namespace for each in pods}), "namespace")
    example = f"{pods[0].namespace}/{pods[0].name}"
    return f"{generation.title}: {counted(len(pods), 'pod')} in {namespaces} ({example})"


def _finding(reason: str, fact: str, cure: str) -> Finding:
    return Finding(state=State.WARNING, reason=reason, fact=fact, cure=cure)
