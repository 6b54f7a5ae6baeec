"""Generated parts of the documents: tables of flags, presets, own metrics and commands.

`python -m tools.docs` writes them. Each part stands between `<!-- NAME -->` and `<!-- /NAME -->`;
tests/test_docs.py fails if one is out of date.
"""

from __future__ import annotations

import configparser
import contextlib
import inspect
import io
import re
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import yaml
from prometheus_client import CollectorRegistry

from adapter import telemetry
from adapter.cli.commands import check
from adapter.settings import reference
from adapter.settings.settings import GROUPS
from rules import limits
from rules.causes.reasons import Reason
from tools import apiservices, chart_values, embedded
from tools.backends.servers import BACKENDS
from tools.presets.table import (
    ACCELERATORS,
    GOLDEN,
    METRICS,
    SCHEMES,
    SERVER_METRICS,
    SERVERS,
    TITLES,
    VARIANTS,
)

ROOT = Path(__file__).parents[1]

_LIMITED = {
    "team": "rules of teams",
    "hpa": "watch of HPAs",
    "workload": "workloads",
    "fallback": "`--external-fallback`",
    "scrape": "`presets scrape`",
}
"""What each group of limits is for, by the first word of their names."""
_CURRENT = [name for name in METRICS if name.endswith("_current")]
_USUAL = {
    f"{name}_current"
    for name in (
        *("duty_cycle", "memory_used_bytes", "memory_utilization"),
        *("temperature_celsius", "power_usage_milliwatts"),
    )
}
"""Metrics that exporters provide unless the table says so."""
_PROFILING = {f"{name}_active_current" for name in ("gr_engine", "tensor", "dram")}
"""Metrics that gpu-dcgm-prof always provides, as the text beside the table says."""
_NO_VARIANT = ("gpu-dcgm-mig", "gpu-node")
"""Presets whose exporters are only in golden.json, and not among the variants of the fleet."""
_SUFFIX = re.compile("(_p95)?(_(milliseconds|bytes|celsius|milliwatts))?(_current|_over_time)$")
_REASON_NOTES: Mapping[Reason, str] = {
    Reason.NO_OBJECT: "The selector of an HPA is that of its scale target.",
    Reason.NO_QUERY: "Often no label is mapped to `namespace` ([`resources`](rules.md#resources)).",
    Reason.MISSING_RIGHT: "See [rights](install.md#which-rights-does-the-adapter-need).",
    Reason.FALLBACK_FAILED: "Correct the metric's name or selector, or look at that server "
    "([KEDA](install.md#how-does-it-run-beside-keda)).",
    Reason.PARTIAL_RESPONSE: "See "
    "[partial responses](backends.md#what-happens-if-prometheus-answers-partially).",
    Reason.PROMETHEUS_UNAVAILABLE: "See [500](#why-does-a-request-fail-with-500).",
    Reason.OTHER_NAMESPACE: "In your rules, map the label with the workload's namespace, such as "
    "`exported_namespace`, or scrape with `honorLabels: true`.",
    Reason.EXPORTER_ONLY: "See [Presets](presets.md#how-do-series-name-their-pod).",
    Reason.NAMESPACE_CHANGED: "Pods of a StatefulSet have the same names in each namespace.",
    Reason.SAMPLE_TOO_OLD: "Prometheus ignores samples older than 5 minutes; "
    "[`maxSampleAge`](rules.md#maxsampleage) may be shorter.",
    Reason.NO_SAMPLE: "The message says what leaves nothing, such as a range shorter than two "
    "scrapes, if found.",
    Reason.LABELS_MISSING: "Idle GPUs have no label of a pod.",
    Reason.RULES_NOT_LOADED: "The status is 503 ([rules of teams](teams.md)).",
    Reason.RULES_REFUSED: "The namespace's document has "
    "[all problems](teams.md#which-of-my-rules-are-in-use-and-what-is-wrong-with-others).",
    Reason.RELIST_FAILED: "If the message names a limit or what Prometheus refused, correct "
    "`seriesQuery`.",
    Reason.NO_SERIES: "Run `presets detect`, or see whether the rule's filters reject all series.",
}
"""What docs/troubleshooting.md adds to the summaries of reasons."""
_LAYERED = {
    "adapter": "adapter",
    "server": "adapter/server",
    "cli": "adapter/cli",
    "rules": "rules",
}
"""Contract in setup.cfg -> the package whose layers it lists."""
_MANY = 10
"""Flags without effect, for one reason, above which only their first word is listed."""
_INVALID_RULES = """\
rules:
- seriesQuery: queue_length
  resources: {overrides: {pod: {resource: pod}, namespace: {resource: namespace}}}
  name: {matches: '^(queue'}
  metricQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""


def flags() -> str:
    """Return a table for each group of flags, and the flags without effect."""
    sections = []
    for group in GROUPS.values():
        rows = (
            (
                f"`{reference.spelled(flag)}`",
                f"`{flag.default}`" if reference.has_default(flag) else "",
                flag.help,
            )
            for _, flag in group.flags()
        )
        sections.append(f"### {group.TITLE}\n\n{_table(('Flag', 'Default', 'Meaning'), rows)}")
    ignored = (_families(names) for names in reference.ignored_by_reason().values())
    listed = ", ".join(f"`--{name}`" for names in ignored for name in names)
    why = f"The help text and the log say why: {listed}."
    sections.append(f"### {reference.IGNORED_TITLE}\n\n{why}")
    return "\n\n".join(sections)


def _families(names: Sequence[str]) -> Sequence[str]:
    """Return the names, or how they begin if they are many."""
    if len(names) <= _MANY:
        return names
    return sorted({f"{name.partition('-')[0]}-*" for name in names})


def preset_metrics() -> str:
    """Return the metrics of the presets of exporters."""
    rows = ((f"`{name}`", METRICS[name].unit, METRICS[name].meaning) for name in _CURRENT)
    return _table(("Metric", "Unit", "Value for an object with several GPUs"), rows)


def generations() -> str:
    """Return which metrics each exporter provides, by the expectations of the preset tests."""
    rows = []
    for variant, each in VARIANTS.items():
        nodes = "✓" if each.schemes == SCHEMES else "relabelled" if each.schemes else ""
        rows.append(_generation(variant, each.presets, each.metrics, nodes))
    without = [case for case in GOLDEN["cases"] if case["preset"] in _NO_VARIANT]
    for case in (*without, *ACCELERATORS.values()):
        objects = {**case["pods"], **case["nodes"]}
        metrics = {metric for values in objects.values() for metric in values}
        notes = [*["relabelled"] * ("scheme" in case), *["no pods"] * (not case["pods"])]
        nodes = ", ".join(notes) or "✓"
        rows.append(_generation(case["variant"], (case["preset"],), metrics, nodes))
    return _table(("Exporter", "Presets", "Without", "Also", "Nodes"), _grouped(rows))


def _generation(
    variant: str, names: Iterable[str], metrics: Container[str], nodes: str
) -> tuple[str, ...]:
    usual = [metric for metric in _CURRENT if metric in _USUAL]
    return (
        TITLES[variant],
        ", ".join(f"`{name}`" for name in names),
        _short(metric for metric in usual if metric not in metrics),
        _short(each for each in _CURRENT if each in metrics and each not in {*usual, *_PROFILING}),
        nodes,
    )


def _grouped(rows: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield one row for those that differ in the first cell only."""
    titles: dict[tuple[str, ...], list[str]] = {}
    for title, *rest in rows:
        titles.setdefault(tuple(rest), []).append(title)
    return (("; ".join(dict.fromkeys(names)), *rest) for rest, names in titles.items())


def _short(metrics: Iterable[str]) -> str:
    return ", ".join(_SUFFIX.sub("", metric) for metric in metrics)


def server_metrics() -> str:
    """Return the metrics of the presets of model servers."""
    rows = ((f"`{name}`", unit, value) for name, (unit, value) in SERVER_METRICS.items())
    return _table(("Metric", "Unit", "Value for an object with several engines"), rows)


def servers() -> str:
    """Return which metrics each model server provides, by the table of the preset tests."""
    rows = (
        (
            each.title,
            f"`{each.presets[0]}`",
            min(
                _short(metric for metric in SERVER_METRICS if metric not in each.metrics),
                "all but " + _short(metric for metric in SERVER_METRICS if metric in each.metrics),
                key=len,
            ),
        )
        for each in SERVERS.values()
    )
    return _table(("Server", "Preset", "Without"), _grouped(rows))


def own_metrics(prefix: str = "") -> str:
    """Return the metrics that the adapter exposes about itself.

    Only those whose names begin with `prefix`, which the header has instead of the rows.
    """
    registry = CollectorRegistry()
    for name, each in inspect.getmembers(telemetry, inspect.isclass):
        if each.__module__ == telemetry.__name__ and not name.startswith("_"):
            getattr(telemetry, name)(registry)
    rows = []
    for collector in registry._collector_to_names:  # noqa: SLF001 - has the labels without samples
        labels = getattr(collector, "_labelnames", None) or (getattr(collector, "_label", ""),)
        for family in collector.collect():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            shown = ", ".join(f"`{label}`" for label in labels if label)
            if name.startswith(prefix):
                rows.append((f"`{name.removeprefix(prefix)}`", shown, family.documentation))
    title = f"`{prefix}...`" if prefix else "Metric"
    return _table((title, "Labels", "Meaning"), sorted(rows))


def check_output(rules: str) -> str:
    """Return a rules file, and what `check` prints for it."""
    output = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("rules.yaml").write_text(rules, encoding="utf-8")
        with contextlib.redirect_stdout(output):
            check.main(["rules.yaml"])
    # `text`, because the YAML blocks of the documents must be valid.
    return (
        f"```text\n{rules}```\n\n"
        f"```console\n$ gpu-metrics-adapter check rules.yaml\n{output.getvalue()}```"
    )


def layers() -> str:
    """Return the layers of each package by setup.cfg, the top first."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    rows = []
    for name, package in _LAYERED.items():
        listed = setup[f"importlinter:contract:{name}-layers"]["layers"].split("\n")
        named = (re.sub(r"(\w+)", r"`\1`", layer) for layer in listed if layer)
        rows.append((f"`{package}/`", " > ".join(named).replace(" | ", " · ")))
    return _table(("Package", "Layers, the top first; `·` is between equals"), rows)


def backends() -> str:
    """Return what the tests of the backends require of each."""
    rows = (
        (each.title, each.answers, each.age, each.partial, each.limits, each.settings)
        for each in BACKENDS.values()
    )
    header = ("Backend", "Right answers", "Age of a value", "Partial answers", "Limits", "Set")
    return _table(header, _grouped(rows))


def reasons() -> str:
    """Return the reasons of missing values in the order of their report, and what to do."""
    rows = []
    for reason in Reason:
        summary = f"{reason.summary[0].upper()}{reason.summary[1:]}."
        advice = f"{reason.advice}." if reason.advice else ""
        meaning = " ".join(filter(None, (summary, advice, _REASON_NOTES.get(reason))))
        rows.append((f"`{reason.value}`", meaning))
    return _table(("Reason", "What happened, and what to do"), rows)


def alerts() -> str:
    """Return the alerts of the Helm chart, each with its summary; labels are in capitals."""
    text = (chart_values.CHART / "files" / "alerts.yaml").read_text(encoding="utf-8")
    rows = []
    for rule in yaml.safe_load(text)["groups"][0]["rules"]:
        summary = re.sub(
            r"{{ \$(?:labels\.)?(\w+) }}",
            lambda match: match[1].upper(),
            rule["annotations"]["summary"],
        )
        summary = summary.replace("<unknown>", "`<unknown>`")
        name = rule["alert"].removeprefix("GpuMetricsAdapter")
        rows.append((f"`{name}`", rule.get("for", "at once"), summary))
    return _table(("`GpuMetricsAdapter...`", "For", "Summary"), rows)


def object_limits() -> str:
    """Return the limits of what the objects of one namespace can make grow."""
    rows: list[Iterable[str]] = []
    groups = dict(_LIMITED)
    for each in limits.DEFAULT.table():
        if title := groups.pop(each.name.partition("-")[0], ""):
            rows.append((f"**{title}**", "", "", ""))
        size = f"{each.value:,} {each.unit}".replace(",", " ")
        if each.unit == "bytes":
            size = f"{each.value >> 20} MiB" if each.value >> 20 else f"{each.value >> 10} KiB"
        rows.append((f"`{each.name}`", size, each.what, each.beyond))
    return _table(("Limit", "Default", "Of", "Beyond it"), rows)


def make_targets() -> str:
    """Return the targets of the Makefile, each with its help."""
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    rows = (
        match.groups() for line in lines if (match := re.match(r"([a-z0-9-]+):.*## (.*)", line))
    )
    return _table(("Command", "What it does"), ((f"`make {name}`", help_) for name, help_ in rows))


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    header = tuple(header)
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


PARTS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "docs/dev/architecture.md": {"layers": layers},
    "docs/flags.md": {"flags": flags},
    "docs/operations.md": {
        "alerts": alerts,
        "metrics": lambda: own_metrics("gpu_metrics_adapter_"),
    },
    "docs/presets.md": {
        "metrics": preset_metrics,
        "generations": generations,
        "server-metrics": server_metrics,
        "servers": servers,
    },
    "docs/backends.md": {
        "backends": backends,
    },
    "docs/rules.md": {"check": lambda: check_output(_INVALID_RULES)},
    "docs/security.md": {"limits": object_limits},
    "docs/troubleshooting.md": {"reasons": reasons},
    ".github/CONTRIBUTING.md": {"make": make_targets},
    "manifests/base/rbac.yaml": {
        "registration": apiservices.registration,
        "scale-targets": apiservices.scale_targets,
    },
    "manifests/chart/README.md": {"values": chart_values.table, "reasons": chart_values.reasons},
}
"""Document -> its generated parts."""

FILES: Mapping[str, Callable[[], str]] = {
    **apiservices.FILES,
    **embedded.FILES,
    "manifests/chart/values.schema.json": chart_values.schema,
    "manifests/chart/files/keys.json": chart_values.known,
    "manifests/chart/files/scale_targets.json": chart_values.scale_targets,
    "rules/migration/chart_keys.json": chart_values.for_migrate,
}
"""File -> its generated text."""


def generate(document: str) -> str:
    """Return the text of a document with its parts generated again, or of a generated file."""
    if document in FILES:
        return FILES[document]()
    text = (ROOT / document).read_text(encoding="utf-8")
    for name, part in PARTS[document].items():
        pattern = rf"(<!-- {name} -->\n).*?([^\n]*<!-- /{name} -->)"
        generated = part().strip("\n").replace("\\", r"\\")
        text, count = re.subn(pattern, rf"\g<1>{generated}\n\g<2>", text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"{document} has {count} parts called {name}")
    return text


if __name__ == "__main__":
    for each in (*PARTS, *FILES):
        (ROOT / each).write_text(generate(each), encoding="utf-8")
