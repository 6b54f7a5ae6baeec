"""Scrape jobs of presets, without a file format. `formats` renders them.

A page is what an HTTP endpoint for metrics returns. Those who create a pod choose its image, its
labels and its page. Series of exporters of accelerators name other pods and nodes, so these
exporters are scraped only in trusted namespaces. Everywhere else, `namespace` and `pod` come from
discovery, and series of such exporters are dropped. A page that claims to need a token gets the one
of Prometheus, in clear text, so those namespaces are chosen on their own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rules import limits, presets
from rules.errors import ConfigError
from rules.exporters import generations
from rules.exporters.generations import GENERATIONS, ExporterGeneration
from rules.exporters.target import Containers
from rules.findings import State, in_file
from rules.limits import Limits
from rules.scrape import series

Kind = Literal["devices", "token", "servers"]
"""Exporters of accelerators; pages that get a token; model servers and gateways."""

NAME = "gpu-metrics-adapter"
"""Prefix of the jobs' names, and of the annotations."""
_META = "__meta_kubernetes_"
_NAMESPACE, _POD = f"{_META}namespace", f"{_META}pod_name"
_CONTAINER = f"{_META}pod_container_name"
_IMAGE = f"{_META}pod_container_image"
_PORT_NUMBER = f"{_META}pod_container_port_number"
_PAGE = "__tmp_page"
"""Label with preset, port and path of a target, separated by semicolons."""
_KNOWN, _HOST, _SHARD = "__tmp_known", "__tmp_host", "__tmp_shard"
_SHARDS = 4
"""Jobs among which the namespaces without trust are divided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relabel:
    """One relabelling rule of Prometheus; empty fields have Prometheus' defaults."""

    action: str = "replace"
    sources: tuple[str, ...] = ()
    regex: str = ""
    target: str = ""
    replacement: str | None = None
    modulus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Targets with the same settings, found among the running pods of the cluster."""

    name: str
    kind: Kind
    presets: tuple[str, ...]
    """Presets of its targets, which are the values of the label `job`."""
    namespaces: tuple[str, ...]
    """Namespaces of its targets; empty for all."""
    relabel: tuple[Relabel, ...]
    metric_relabel: tuple[Relabel, ...]
    limits: Limits


def of_presets(
    names: Sequence[str] = (),
    *,
    minimal: bool = False,
    trusted: Collection[str] = (),
    tokens: Collection[str] = (),
    limits: Limits = limits.DEFAULT,
) -> tuple[Job, ...]:
    """Return the jobs for these presets, by default for all that have targets.

    `minimal` drops the series that no preset reads. `trusted` are the namespaces whose pods may
    report values of all other pods, `tokens` those whose pods may get the token of Prometheus. The
    namespaces of the other pods are divided among several jobs: beyond its limit of targets, a job
    has none, so a namespace ends those of a part only.
    Raises ConfigError for a preset that does not exist, and for one whose series have no known
    page.
    """
    chosen = {name: _generations(name) for name in names} or {
        name: found for name in presets.names() if (found := _generations(name))
    }
    for name, found in chosen.items():
        if not found:
            presets.text(name)
            message = f"preset {name!r}: the page of its series is not known; scrape it yourself"
            raise ConfigError([in_file(State.FAILURE, message)])
    jobs: list[Job] = []
    of_kind: Mapping[Kind, Collection[str]] = {"devices": trusted, "token": tokens, "servers": ()}
    for kind, namespaces in of_kind.items():
        read = {
            name: those
            for name, found in chosen.items()
            if (those := [each for each in found if _is_of(kind, each)])
        }
        if not read or (kind != "servers" and not namespaces):
            continue
        targets = {each.name: each for found in read.values() for each in map(target, found)}
        # Others if other presets are chosen: applied later, they replace no object.
        name = "-".join((NAME, *names, kind))
        job = Job(
            name=name,
            kind=kind,
            presets=tuple(dict.fromkeys(each.preset for each in targets.values())),
            namespaces=tuple(namespaces),
            relabel=tuple(_relabel(kind, read, list(targets.values()), namespaces or tokens)),
            metric_relabel=tuple(_of_series(kind, read, minimal=minimal)),
            limits=limits,
        )
        numbered = (replace(job, name=f"{name}-{number}") for number in range(_SHARDS))
        jobs += numbered if kind == "servers" else [job]
    return tuple(jobs)


def _sharding() -> Iterator[Relabel]:
    """Yield the rules, the same for all shards, that keep the namespaces of the job's shard."""
    yield Relabel(action="hashmod", sources=(_NAMESPACE,), modulus=_SHARDS, target=_SHARD)
    # At the beginning, `job` ends with the name of the job, after what the operator writes.
    regex = "|".join(f"{number};.+-{number}" for number in range(_SHARDS))
    yield Relabel(action="keep", sources=(_SHARD, "job"), regex=regex)


def _generations(preset: str) -> list[ExporterGeneration]:
    """Return the generations with a known page that the preset reads."""
    return [
        each
        for each in GENERATIONS
        if target(each).scrape.pods
        and (
            preset in {each.preset, each.podless_preset, generations.VARIANTS.get(each.name)}
            or (preset == generations.PROFILING and each.profiling)
        )
    ]


def target(generation: ExporterGeneration) -> ExporterGeneration:
    """Return the generation that describes the page of this one."""
    other = generation.scrape.same_as
    return next(each for each in GENERATIONS if each.name == (other or generation.name))


def ways(
    targets: Iterable[ExporterGeneration],
) -> list[tuple[ExporterGeneration, Containers]]:
    """Return the pages with what their pods are matched by, in the order of comparison."""
    found = [(each, containers) for each in targets for containers in each.scrape.pods]
    # The label of a vendor says more than an image, which other servers run in as well.
    return sorted(found, key=lambda way: bool(way[1].image))


def _is_of(kind: Kind, generation: ExporterGeneration) -> bool:
    if kind == "token":
        return generation.scrape.token
    return generation.server is (kind == "servers")


def _relabel(
    kind: Kind,
    chosen: Iterable[str],
    targets: Sequence[ExporterGeneration],
    chosen_namespaces: Collection[str],
) -> Iterator[Relabel]:
    """Yield the rules for targets in these namespaces; of servers, for those without a token."""
    namespaces = "|".join(chosen_namespaces)
    if kind == "servers":
        yield from _sharding()
    else:
        yield Relabel(action="keep", sources=(_NAMESPACE,), regex=namespaces)
    # Sidecars that forward `/metrics` to the engine are init containers: it would count twice.
    yield Relabel(action="drop", sources=(f"{_META}pod_container_init",), regex="true")
    names = "|".join(dict.fromkeys((*(each.preset for each in targets), *chosen)))
    yield Relabel(
        sources=(_annotation("scrape"), _annotation("port")),
        regex=rf"({names});(\d+)",
        target=_PAGE,
        replacement="$1;$2;/metrics",
    )
    by_label = [way for way in ways(targets) if not way[1].image]
    by_image = [way for way in ways(targets) if way[1].image]
    yield from (_matching(*way) for way in by_label)
    if len(by_image) > 1:
        # Leaves out nearly all pods of a cluster, for each of which a pattern costs microseconds.
        images = "|".join(containers.image for _, containers in by_image)
        regex = Containers(image=images).image_pattern
        yield Relabel(sources=(_IMAGE,), regex=regex, target=_KNOWN, replacement="yes")
        yield Relabel(action="keep", sources=(_PAGE, _KNOWN), regex=".+;.*|;yes")
    yield from (_matching(*way) for way in by_image)
    if kind == "servers":  # without namespaces, too: the chart adds them
        for name in dict.fromkeys(each.preset for each in targets if each.scrape.token):
            regex = f"{name};.+;({namespaces})"
            yield Relabel(action="drop", sources=(_PAGE, _NAMESPACE), regex=regex)
    yield Relabel(action="keep", sources=(_PAGE,), regex=".+")
    yield Relabel(
        sources=(_PAGE, _annotation("port")),
        regex=r"([^;]+);[^;]*;([^;]*);(\d+)",
        target=_PAGE,
        replacement="$1;$3;$2",
    )
    yield Relabel(
        sources=(_PAGE, _annotation("path")),
        regex="([^;]+;[^;]+);[^;]*;(/[^;]*)",
        target=_PAGE,
        replacement="$1;$2",
    )
    if kind != "token":  # its peer must prove who it is
        yield Relabel(
            sources=(_annotation("scheme"),),
            regex="(https)",
            target="__scheme__",
            replacement="$1",
        )
    yield Relabel(sources=(f"{_META}pod_ip",), target=_HOST)
    yield Relabel(sources=(_HOST,), regex="(.*:.*)", target=_HOST, replacement="[$1]")
    page = "([^;]+);([^;]+);(.+)"
    yield Relabel(
        sources=(_HOST, _PAGE), regex=f"(.+);{page}", target="__address__", replacement="$1:$3"
    )
    yield Relabel(sources=(_PAGE,), regex=page, target="__metrics_path__", replacement="$3")
    yield Relabel(sources=(_PAGE,), regex=page, target="job", replacement="$1")
    yield from _labels(kind, targets)


def _matching(generation: ExporterGeneration, containers: Containers) -> Relabel:
    """Return the rule that sets the page of matching containers that have none yet."""
    conditions = {
        _IMAGE: containers.image and containers.image_pattern,
        f"{_META}pod_label_{_sanitized(containers.label)}": containers.label and containers.value,
        _CONTAINER: containers.container,
        f"{_META}pod_container_port_name": containers.port_name,
    }
    if number := containers.port_number:
        conditions[_PORT_NUMBER] = str(number)
    used = {label: pattern for label, pattern in conditions.items() if pattern}
    sources, port = (_PAGE, *used), str(number or containers.port or generation.scrape.port)
    regex = ";".join(("", *(f"(?:{pattern})" for pattern in used.values())))
    if containers.port_name:
        sources, port = (*sources, _PORT_NUMBER), "${port}"
        regex += r";(?P<port>\d+)"
    path = containers.path or generation.scrape.path
    return Relabel(
        sources=sources,
        regex=regex,
        target=_PAGE,
        replacement=f"{generation.preset};{port};{path}",
    )


def _labels(kind: Kind, targets: Sequence[ExporterGeneration]) -> Iterator[Relabel]:
    """Yield the rules that set the labels of targets."""
    yield Relabel(sources=(f"{_META}pod_node_name",), target="node")
    if kind == "devices":
        # No `pod` and `namespace`: those of the series are of the pod that uses the device.
        yield Relabel(sources=(_POD,), target="exporter_pod")
        return
    yield Relabel(sources=(_NAMESPACE,), target="namespace")
    yield Relabel(sources=(_POD,), target="pod")
    yield Relabel(sources=(_CONTAINER,), target="container")
    # Each container is a target, but the annotation is of the pod, which would count once for each.
    yield Relabel(sources=(_annotation("scrape"),), regex=".+", target="container", replacement="")
    for each in targets:
        for containers in each.scrape.pods:
            if containers.service:
                yield Relabel(
                    sources=("job", f"{_META}pod_label_{_sanitized(containers.label)}"),
                    regex=f"{each.preset};(.+)",
                    target="service",
                    replacement="$1",
                )


def _of_series(
    kind: Kind, read: Mapping[str, Sequence[ExporterGeneration]], *, minimal: bool
) -> Iterator[Relabel]:
    """Yield the rules that drop series by their names."""
    if minimal:
        names = {name for preset in read for name in series.read_by(preset)}
        # The detection of presets looks for these.
        names |= {name for found in read.values() for each in found for name in each.series}
        yield Relabel(action="keep", sources=("__name__",), regex="|".join(sorted(names)))
    elif kind != "devices":
        regex = f".+_created|{series.of_devices()}"
        yield Relabel(action="drop", sources=("__name__",), regex=regex)


def _annotation(name: str) -> str:
    return f"{_META}pod_annotation_{_sanitized(NAME)}_{name}"


def _sanitized(name: str) -> str:
    """Return the name of a label or annotation as discovery writes it."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)
