"""Findings about GPU exporters, model servers and gateways. Their reasons are stable codes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from rules.exporters import generations
from rules.exporters.generations import ExporterGeneration
from rules.findings import Finding, State
from rules.quoting import counted

_COUNTERS = "the exporter's counters (its `-f` file or ConfigMap)"
_REMEDIES: Mapping[str, str] = {
    "DCGM_FI_DEV_GPU_UTIL": (
        "The default counters of dcgm-exporter 2.3.0 to 2.5.0 lack it: upgrade to 2.6.0 (tag "
        "2.3.1-2.6.0) or later, or add the line `DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in "
        f"%).` to {_COUNTERS}"
    ),
    "DCGM_FI_PROF_SM_ACTIVE": (
        "It is not a default counter: add the line `DCGM_FI_PROF_SM_ACTIVE, gauge, Ratio of cycles "
        f"with work on a multiprocessor.` to {_COUNTERS}"
    ),
}
_LATE = "Such series appear with the first request"
_ENDPOINTS = "; ".join(
    each.endpoint
    for each in generations.GENERATIONS
    if each.endpoint and "{path}" not in each.endpoint  # `presets scrape` has the path
)
_KUBELET = (
    "without `-k` (DCGM_EXPORTER_KUBERNETES=true) and the host path /var/lib/kubelet/pod-resources "
    "the exporter maps no GPU to a pod. On GKE it also needs "
    "DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE=device-name; for resources other than nvidia.com/gpu and "
    "nvidia.com/mig-*, NVIDIA_RESOURCE_NAMES. Containers without such a limit are not mapped"
)
FOR_CLAIMS = (
    "KUBERNETES_ENABLE_DRA=true, read access to resourceslices and, from Kubernetes 1.34 on, "
    "dcgm-exporter 4.8.3 or later"
)
"""What dcgm-exporter needs to report the pods of resource claims. Up to 4.8.2 it reads only
resource.k8s.io/v1beta1, which no API server serves by default; from Kubernetes 1.34 on, claims work
without it."""
_CLAIMS = (
    f"GPUs of resource claims (DRA; chart: kubernetesDRA.enabled) are mapped only with {FOR_CLAIMS}"
)
_MANY = 5
"""Names that a finding shows."""
_WORDS = re.compile(r"[^_:]+")
_RELABEL = "relabel __meta_kubernetes_pod_node_name to `node` in the exporter's scrape config"


def scrape_command(preset: str, options: str = "") -> str:
    """Return the command that prints what makes Prometheus scrape the exporters of a preset."""
    return f"`gpu-metrics-adapter presets scrape {preset}{options}`"


def _bad(reason: str, fact: str, cure: str = "") -> Finding:
    return Finding(state=State.WARNING, reason=reason, fact=fact, cure=cure)


def _fine(reason: str, fact: str, cure: str = "") -> Finding:
    """Return an observation that needs no action."""
    return Finding(state=State.OK, reason=reason, fact=fact, cure=cure)


def on_nothing(
    *, ended: Sequence[str], targets: int, down: int, anything: bool, unknown: bool
) -> Iterator[Finding]:
    """Yield findings if no known exporter is live; `ended` are the titles of those that ended.

    `unknown`: there is an exporter that is not known.
    """
    if not anything:
        yield _bad(
            "empty",
            "Prometheus has no series at all: it scrapes nothing, or has just started",
            "Check its /targets page, --prometheus-url, and if it has tenants, X-Scope-OrgID in "
            "--prometheus-header",
        )
        return
    scraped = counted(targets, "target")
    scrapes = f"scrapes {scraped}, none with" if targets else "has no `up` of any target, and no"
    if ended:
        yield _bad(
            "ended",
            f"the series of {' and '.join(ended)} have ended: the exporter is gone, or "
            "scraping it fails",
            "Check the /targets page of Prometheus",
        )
    elif not unknown:
        yield _bad(
            "no-gpu-series",
            f"Prometheus {scrapes} series of a GPU exporter or model server that a preset reads",
            "Check that one is deployed. `gpu-metrics-adapter presets scrape` prints what makes "
            "Prometheus scrape it (kube-prometheus-stack needs its `release` label on monitors). "
            f"{_ENDPOINTS}. For other series names, write rules and load them with --config",
        )
    if down:
        yield _bad("targets-down", f"{down} of {scraped} down (`up == 0`), possibly the exporter")


def on_lookalikes(names: Sequence[str]) -> Iterator[Finding]:
    """Yield a finding about series of an unknown exporter; `names` look like utilization."""
    if not names:
        return
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    yield _bad(
        "unknown-exporter",
        "series look like the utilization of accelerators, and no preset reads them: "
        f"{', '.join(names[:_MANY])}{more}",
        "Find out the exporter's units, write rules, and load them with --config",
    )


def on_pods(
    generation: ExporterGeneration, labels: frozenset[str], *, podless: bool, idle: bool
) -> Iterator[Finding]:
    """Yield findings about series that name no pod.

    `idle`: live series name none, but those of the last hours did. `podless`: neither did.
    """
    if not generation.preset:
        return
    device = "GPU" if generation.preset.startswith("gpu-") else "device"
    if idle:
        yield _fine(
            "idle", f"no pod uses a {device} now: values for pods appear with the first one"
        )
    if not podless:
        return
    observed = (
        "series have only the exporter's own pod (`pod`)"
        if "pod" in labels
        else "series have no pod label"
    )
    if not generations.pod_labels(generation.preset):
        fact = f"{observed}: this exporter does not map devices to pods"
        cure = "Metrics exist for nodes only"
        if generation.preset == generations.NODE:
            cure += "; for pods, use dcgm-exporter"
    elif generation.name.startswith("dcgm"):
        fact = f"{observed}, so metrics exist for nodes only"
        cure = (
            "If no pod uses a GPU or used one recently, run `presets detect` again when one does. "
            "Otherwise:"
        )
    else:
        cure = ""
        fact = (
            f"{observed}: no pod uses a {device} or used one recently, or the exporter does not "
            f"map {device}s to pods"
        )
    yield _bad("no-pods", fact, cure)
    if generation.name.startswith("dcgm") and generation.preset != generations.NODE:
        yield _bad("no-pods", _KUBELET)
        yield _bad("no-pods", _CLAIMS)


def on_fields(
    generation: ExporterGeneration, names: frozenset[str], presets: Sequence[str]
) -> Iterator[Finding]:
    """Yield findings about series that the presets read and the exporter does not report."""
    if not generation.preset:
        yield _bad("no-preset", generations.UNREAD, generation.advice)
        return
    yield from _missing("missing", generation, generation.fields, names)
    if not generation.profiling:
        return
    if generations.PROFILING in presets:
        yield from _missing("missing-profiling", generation, generation.profiling, names)
    elif not names & generations.needed(generation.profiling):
        series = ", ".join(sorted(generations.needed(generation.profiling)))
        mig = f" (and {generations.MIG} for MIG)" if generation.preset == "gpu-dcgm" else ""
        yield _fine(
            "no-profiling",
            f"{generations.PROFILING}{mig} needs the profiling fields, which are missing: {series}",
            "They require a data-centre GPU from Volta on, SYS_ADMIN for the exporter, "
            f"and an entry in {_COUNTERS}",
        )


def _missing(
    code: str,
    generation: ExporterGeneration,
    fields: Mapping[str, tuple[str, ...]],
    names: frozenset[str],
) -> Iterator[Finding]:
    """Yield a finding for each missing series with its own remedy, and one for all others."""
    absent = sorted(
        _as_reported(generation, each, names) for each in generations.needed(fields) - names
    )
    others = [series for series in absent if series not in _REMEDIES]
    groups = [[series] for series in absent if series in _REMEDIES] + ([others] if others else [])
    for group in groups:
        lost = [
            f"{metric}_*"
            for metric, needed in fields.items()
            if any(_as_reported(generation, each, names) in group for each in needed)
        ]
        finding = _fine if code == "no-requests" else _bad
        yield finding(
            code,
            f"missing {', '.join(group)}: no {', '.join(lost)}",
            _REMEDIES.get(group[0]) or _remedy(generation, several=len(group) > 1),
        )


def _remedy(generation: ExporterGeneration, *, several: bool) -> str:
    """Return what to do about missing series without a remedy of their own."""
    these, them = ("these", "them") if several else ("this", "it")
    if generation.profiling:
        return f"Add {these} to {_COUNTERS}"
    if generation.late:
        return _LATE
    return generation.advice or (
        f"The exporter does not report {these}, or metric_relabel_configs drops {them}"
    )


def _as_reported(generation: ExporterGeneration, series: str, names: frozenset[str]) -> str:
    """Return the name of a missing series in the release whose other series are there."""
    others = generation.other_names.get(series, ())
    return max((series, *others), key=lambda name: max(_common(name, each) for each in names))


def _common(one: str, other: str) -> int:
    """Return the number of words at the beginning that are the same."""
    pairs = zip(_WORDS.findall(one), _WORDS.findall(other), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def on_server(
    generation: ExporterGeneration, labels: frozenset[str], names: frozenset[str], *, replaced: bool
) -> Iterator[Finding]:
    """Yield findings about a model server or gateway.

    `replaced`: the `pod` or `namespace` of some series is not that of their target.
    """
    if generation.repeats:
        yield _fine("router", generation.repeats)
    elif not generation.preset:
        yield _bad("no-preset", generations.UNREAD, generation.advice)
    if not generation.preset:
        return
    code = "no-requests" if generation.late else "missing"
    yield from _missing(code, generation, generation.fields, names)
    if generation.external and "namespace" not in labels:
        yield _bad(
            "no-namespace",
            "series have no label `namespace`, by which external metrics are found",
            "relabel __meta_kubernetes_namespace to it in the scrape config, or use a PodMonitor",
        )
    elif not generation.external and "pod" not in labels:
        yield _bad(
            "no-pods",
            "series have no label `pod`: no metrics of pods",
            "Relabel __meta_kubernetes_namespace to `namespace` and __meta_kubernetes_pod_name to "
            "`pod` in the scrape config, or use a PodMonitor",
        )
    if replaced:
        yield _bad(
            "honor-labels",
            "the `pod` or `namespace` of some series is not that of the scraped pod, so their "
            "values belong to other objects",
            "scrape without honor_labels",
        )


def on_targets(targets: int, ports: int) -> Iterator[Finding]:
    """Yield findings about pods that are scraped more than once.

    `targets` is the largest number of targets for one port of a pod, `ports` that of its ports.
    """
    if targets > 1:
        yield _bad(
            "several-targets",
            f"{targets} targets for one port of a pod: several jobs, Services or monitors "
            "scrape it, or these are the copies of an HA pair",
            f"Presets count it once. Sums in rules of your own count it {targets} times: scrape it "
            "once, deduplicate the pair (Thanos, Mimir), or aggregate by "
            "`max without (job, service, endpoint, prometheus_replica) (...)` first",
        )
    if ports > 1:
        yield _bad(
            "several-ports",
            f"series of one pod come from {ports} ports: presets add them up, which is "
            "right for engines or ranks with a port each",
            "If a proxy or a runtime repeats the series of the engine, scrape only the engine",
        )


def on_sharing(
    generation: ExporterGeneration,
    labels: frozenset[str],
    names: frozenset[str],
    presets: Sequence[str],
) -> Iterator[Finding]:
    """Yield findings about GPUs that pods share: MIG, time-slicing and resource claims."""
    engine = generation.profiling.get("gr_engine_active", ())
    if "GPU_I_PROFILE" in labels and generations.MIG in presets:
        yield _fine(
            "mig",
            "MIG (`GPU_I_PROFILE`): the duty cycle of an instance is the time in which its "
            "engines were active",
        )
    elif "GPU_I_PROFILE" in labels and engine and names.issuperset(engine):
        yield _fine(
            "mig-by-profiling",
            "MIG (`GPU_I_PROFILE`): instances have no duty cycle in this generation",
            "Scale on gr_engine_active_*",
        )
    elif "GPU_I_PROFILE" in labels:
        yield _bad(
            "mig-without-engine",
            "MIG (`GPU_I_PROFILE`): no series has the utilization of an instance",
            f"Add {' '.join(engine)} to {_COUNTERS}",
        )
    if "vgpu" in labels:
        yield _bad(
            "time-slicing",
            "time-slicing (`vgpu`): up to dcgm-exporter 4.7 each pod gets the value of the "
            "whole GPU, so more pods do not lower it and an HPA can run to maxReplicas. From 4.8 "
            "each pod gets its own value, but reads 0 unless the exporter has hostPID and may read "
            "pods",
            "A queue length is a better target",
        )
    if "dra_claim_name" in labels:
        yield _fine(
            "dra",
            "resource claims (`dra_claim_name`): each pod that shares a claim gets the value "
            "of the whole GPU",
        )


def on_nodes(
    nodes: Sequence[str], *, hostname_is_pod: bool, known: Sequence[str]
) -> Iterator[Finding]:
    """Yield findings about node labels.

    `known` are the labels that the preset maps to nodes, `nodes` those of them that series have.
    """
    if not known:
        return
    if not nodes:
        labels = ", ".join(f"`{label}`" for label in known)
        yield _bad(
            "no-node",
            f"no label for nodes ({labels}): no metrics of nodes",
            f"To get them, {_RELABEL}",
        )
    elif nodes[0] == "instance":
        yield _bad(
            "node-by-instance",
            "only `instance` can name the node, and only if it is not host:port",
            f"Otherwise {_RELABEL}",
        )
    elif hostname_is_pod and nodes[0].lower() == "hostname":
        yield _bad(
            "hostname-is-pod",
            f"`{nodes[0]}` is the name of the exporter's pod: no metrics of nodes",
            f"To get them, {_RELABEL}, or set NODE_NAME by fieldRef spec.nodeName (exporter 3.1.6 "
            "or later)",
        )
