"""Targets and values of HPAs that probably have another unit than the metric.

The name of a metric tells its unit: those of the presets do, and those of most exporters.
"""

from __future__ import annotations

import re

from rules import quantity
from rules.findings import Finding, warning
from rules.hpa.autoscaler import MetricSpec
from rules.query.nature import PERCENT, SHARE

_SHARE_OR_PERCENT = re.compile(r".*utili[sz]ation.*")
_WHOLE = re.compile(r".*_(bytes|milliseconds|milliwatts)(_.*)?")
_ONE, _HUNDRED = 1000, 100_000
"""In thousandths."""
_FAR = 10
"""How many times its target a value has, if it has another unit."""


def ceiling(name: str) -> float | None:
    """Return the highest value that a metric can have by its name; None if there is none."""
    if PERCENT.fullmatch(name):
        return 100.0
    return 1.0 if SHARE.fullmatch(name) else None


def is_share(name: str, value: int) -> bool:
    """Return whether a metric is a percentage by its name, and its highest value a share of 1."""
    return bool(PERCENT.fullmatch(name)) and 0 < value < _ONE


def doubt_of_target(name: str, value: int, *, external: bool) -> Finding | None:
    """Return why the target of a metric has another unit; None if it has not."""
    target = f"the target {quantity.readable(value)} of {name}"
    if _WHOLE.fullmatch(name) and value < _ONE:
        written = f"the target {quantity.decimal(value)} of {name}"
        fact = f"{written} is less than one: m means thousandths"
        return warning("", fact, cure="Write M or Mi for millions")
    if SHARE.fullmatch(name) and value > _ONE * (_FAR if external else 1):
        fact = f"{target} is above 1, and the metric is by its name a share of 1, so it is never"
        cure = "Write 700m for 70 %, or multiply by 100 in metricsQuery"
        return warning("", f"{fact} reached", cure=cure)
    if not PERCENT.fullmatch(name):
        return None
    if value < _ONE:
        cure = "Write the percentage: 20 for 20 %, not 0.2"
        return warning("", f"{target} is less than 1 %", cure=cure)
    # The sum of the series of an external metric may be above 100.
    if value > _HUNDRED * (_FAR if external else 1):
        fact = f"{target} is above 100 %, so it is never reached"
        return warning("", fact, cure="Write the percentage, such as 20")
    return None


def doubt(metric: MetricSpec, value: int, ratio: float) -> Finding | None:
    """Return why the target of a metric and its value have different units; None if they have not.

    `ratio` is the value divided by the target.
    """
    if metric.type in {"Resource", "ContainerResource"}:
        return None
    if found := doubt_of_target(metric.name, metric.value, external=metric.type == "External"):
        return found
    shown = f"{metric.name} is {quantity.readable(value)}"
    if metric.name.endswith("_total") and ratio >= _FAR:
        fact = f"{shown} and by its name a counter, which only rises"
        return warning("", fact, cure="Compute a rate in metricsQuery")
    if not PERCENT.fullmatch(metric.name) and not _SHARE_OR_PERCENT.fullmatch(metric.name):
        return None
    if 0 < value < _ONE and metric.value >= _FAR * _ONE:
        cure = (
            "If the exporter reports 0 to 1, multiply by 100 in metricsQuery, or write the target "
            "as a share of 1"
        )
        return warning("", f"{shown}, less than 1 %", cure=cure)
    if metric.value <= _ONE < value:
        target = quantity.readable(metric.value)
        fact = f"{shown} %, but its target {target}, a share of 1"
        return warning("", fact, cure="Write the percentage")
    return None
