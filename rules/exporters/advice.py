"""What stands in a preset's way, in words: what was seen, what follows, and what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rules.exporters import generations
from rules.exporters.generations import Generation

_COUNTERS = "the exporter's counters (the file of `-f`, or its ConfigMap)"
_TO_GET: Mapping[str, str] = {
    "DCGM_FI_DEV_GPU_UTIL": (
        "the default counters of dcgm-exporter lack it from 2.3.0 to 2.5.0: take 2.6.0 (tagged "
        "2.3.1-2.6.0) or later, or add the line `DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization "
        f"(in %).` to {_COUNTERS}"
    ),
    "DCGM_FI_PROF_SM_ACTIVE": (
        "it is not among the default counters: add the line `DCGM_FI_PROF_SM_ACTIVE, gauge, "
        f"Ratio of cycles with work on a multiprocessor.` to {_COUNTERS}"
    ),
}
_MAPPING = (
    "`-k` (DCGM_EXPORTER_KUBERNETES=true) and the host path /var/lib/kubelet/pod-resources; on "
    "GKE DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE=device-name besides; NVIDIA_RESOURCE_NAMES for "
    "resources other than nvidia.com/gpu and nvidia.com/mig-*. A container without "
    "`limits: nvidia.com/gpu` is never seen"
)
_DROPPED = "the exporter does not report it, or metric_relabel_configs drop it"
_RELABEL = "relabel __meta_kubernetes_pod_node_name to `node` where the exporter is scraped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to know about a Prometheus; `code` names its kind and does not change."""

    code: str
    text: str


def on_nothing(
    *, ended: Sequence[str], targets: int, down: int, anything: bool
) -> Iterator[Finding]:
    """Where no GPU exporter is seen; `ended` are titles of those seen lately."""
    if not anything:
        yield Finding(
            code="empty",
            text="this Prometheus has no series at all: it scrapes nothing, or has only begun to. "
            "See its page /targets, and whether its URL is the one that was meant",
        )
        return
    scraped = f"{targets} target{'' if targets == 1 else 's'}"
    if ended:
        yield Finding(
            code="ended",
            text=f"the series of {' and of '.join(ended)} have ended: the exporter is gone, or "
            "cannot be scraped any more. See the page /targets of this Prometheus",
        )
    else:
        yield Finding(
            code="no-gpu-series",
            text=f"this Prometheus scrapes {scraped}, and none of them has series of a GPU "
            "exporter that a preset reads. Is one deployed, and does a ServiceMonitor, "
            "PodMonitor or scrape configuration select it? kube-prometheus-stack heeds only those "
            "with its label `release`. Other names need rules of their own, in a file for --config",
        )
    if down:
        yield Finding(
            code="targets-down",
            text=f"{down} of {scraped} cannot be scraped (`up == 0`); the exporter may be among "
            "them",
        )


def on_pods(
    generation: Generation, labels: frozenset[str], *, podless: bool, idle: bool
) -> Iterator[Finding]:
    """Where its series name no pods: at the moment (`idle`), or as far as can be seen."""
    if idle:
        yield Finding(
            code="idle",
            text="no pod has a GPU at the moment: values for pods come with the first that has",
        )
    if not podless or not generation.preset:
        return
    own = "only the exporter's own pod is named (`pod`)" if "pod" in labels else "no pod is named"
    if generation.preset == generations.NODE:
        yield Finding(
            code="no-pods",
            text=f"{own}: this exporter knows no pods. There will be metrics of nodes; for those "
            "of pods take dcgm-exporter",
        )
    elif generation.name.startswith("dcgm"):
        yield Finding(
            code="no-pods",
            text=f"{own}. Either no pod has a GPU or lately had one, and it is to be asked again "
            "when one has; or the exporter does not map GPUs to pods. That needs "
            f"{_MAPPING}. Until then there are metrics of nodes only",
        )
    else:
        yield Finding(
            code="no-pods",
            text=f"{own}: no pod has a GPU or lately had one, or the exporter cannot tell whose "
            "they are",
        )


def on_fields(
    generation: Generation, names: frozenset[str], presets: Sequence[str]
) -> Iterator[Finding]:
    """Series that the presets would read and that the exporter does not report."""
    if not generation.preset:
        yield Finding(
            code="no-preset",
            text="no preset reads these names: a later HAMi reports `hami_*` besides, which "
            "gpu-hami reads",
        )
        return
    yield from _missing("missing", generation, generation.fields, names)
    if not generation.profiling:
        return
    if generations.PROFILING in presets:
        yield from _missing("missing-profiling", generation, generation.profiling, names)
    elif not names & generations.needed(generation.profiling):
        series = ", ".join(sorted(generations.needed(generation.profiling)))
        split = f", and {generations.MIG} for split GPUs" if generation.preset == "gpu-dcgm" else ""
        yield Finding(
            code="no-profiling",
            text=f"the profiling fields are not there, which {generations.PROFILING} "
            f"needs{split}: {series}. They take a data-centre GPU from Volta on, SYS_ADMIN for the "
            f"exporter, and to be among {_COUNTERS}",
        )


def _missing(
    code: str,
    generation: Generation,
    fields: Mapping[str, tuple[str, ...]],
    names: frozenset[str],
) -> Iterator[Finding]:
    """The series that are not there, with the API names that need them."""
    absent = sorted(generations.needed(fields) - names)
    plain = [series for series in absent if series not in _TO_GET]
    remedy = f"to be added to {_COUNTERS}" if generation.profiling else _DROPPED
    groups = [[series] for series in absent if series in _TO_GET] + ([plain] if plain else [])
    for group in groups:
        lost = [
            f"{metric}_*" for metric, needed in fields.items() if not set(group).isdisjoint(needed)
        ]
        yield Finding(
            code=code,
            text=f"{', '.join(group)}: not there, and hence no {', '.join(lost)}; "
            f"{_TO_GET.get(group[0], remedy)}",
        )


def on_sharing(
    generation: Generation, labels: frozenset[str], names: frozenset[str], presets: Sequence[str]
) -> Iterator[Finding]:
    """GPUs that several pods share, in one of three ways."""
    engine = generation.profiling.get("gr_engine_active", ())
    if "GPU_I_PROFILE" in labels and generations.MIG in presets:
        yield Finding(
            code="mig",
            text="there are GPUs split by MIG (`GPU_I_PROFILE`): the duty cycle of an instance is "
            "how long its engines were active",
        )
    elif "GPU_I_PROFILE" in labels and engine and names.issuperset(engine):
        yield Finding(
            code="mig-by-profiling",
            text="there are GPUs split by MIG (`GPU_I_PROFILE`), whose instances have no duty "
            "cycle in this generation: scale on gr_engine_active_*",
        )
    elif "GPU_I_PROFILE" in labels:
        yield Finding(
            code="mig-without-engine",
            text="there are GPUs split by MIG (`GPU_I_PROFILE`), and nothing tells how busy an "
            f"instance is: add {' '.join(engine)} to {_COUNTERS}",
        )
    if "vgpu" in labels:
        yield Finding(
            code="time-slicing",
            text="there are time-sliced GPUs (`vgpu`): up to dcgm-exporter 4.7 each pod gets the "
            "whole card's value, so that more pods on a card do not lower it and a target can "
            "run to maxReplicas; from 4.8 on each gets its own, for which the exporter needs "
            "hostPID and the right to read pods, else every pod reads 0. A queue's length is the "
            "better target",
        )
    if "dra_claim_name" in labels:
        yield Finding(
            code="dra",
            text="GPUs are given by resource claims (`dra_claim_name`): pods that share a claim "
            "each get the whole card's value",
        )


def on_nodes(
    nodes: Sequence[str], *, named_after_exporter: bool, known: Sequence[str]
) -> Iterator[Finding]:
    """Whether `nodes`, those of the preset's labels `known` that are there, name nodes."""
    if not known:
        return
    if not nodes:
        spelled = ", ".join(f"`{label}`" for label in known)
        yield Finding(
            code="no-node",
            text=f"no label names the node ({spelled}), and hence there are no metrics of nodes: "
            f"{_RELABEL}",
        )
    elif nodes[0] == "instance":
        yield Finding(
            code="node-by-instance",
            text="only `instance` can name the node, and does so where it is no host:port: else "
            f"{_RELABEL}",
        )
    elif named_after_exporter and nodes[0].lower() == "hostname":
        yield Finding(
            code="hostname-is-pod",
            text=f"`{nodes[0]}` is the name of the exporter's pod, and hence there are no metrics "
            f"of nodes: {_RELABEL}, or give an exporter from 3.1.6 on NODE_NAME (by fieldRef "
            "spec.nodeName)",
        )
