"""Causes of series that ended in the last hour, from queries about them and their targets.

Pure. `samples` has the causes of other answers without samples.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rules import promql
from rules.causes import wording
from rules.causes.reasons import Reason
from rules.exporters import generations
from rules.findings import Finding
from rules.query.aggregate import Sample
from rules.ruleset import CompiledRule

_QUANTILE = re.compile(r"histogram_quantile\(\s*([\d.]+)\s*,")
_LE = re.compile(r"""\ble\s*=\s*['"]([\d.]+)['"]""")
"""The limit of one bucket."""
_RANGE = re.compile(r"\[(\w+)\]")

WINDOW = "1h"
"""How long ago a series that ended is still found."""

Results = Mapping[str, Sequence[Sample]]
"""Key of a query -> its result; a query that failed is absent."""

_CLASSIC = ("_bucket", "_count", "_sum")
"""Endings of the series of a histogram that is not native."""
_RARE = 150.0
"""Seconds between samples from which on one missed scrape ends a series."""
_LOOKBACK = 300.0
"""Prometheus' default, in seconds. A younger series has ended by a staleness marker."""


def series(selector: str) -> Mapping[str, str]:
    """Return the queries about series of `selector` in the last hour."""
    return {
        "last": last(selector),
        "live": f"count({selector})",
        "scraped": "count(up)",
        **targets(selector),
    }


def last(selector: str) -> str:
    """Return the query for the time of the last sample: exact to 15 s, after 6 minutes to one."""
    windows = "6m:15s", f"{WINDOW}:1m"
    times = " or ".join(f"max_over_time(timestamp({selector})[{each}])" for each in windows)
    return f"max({times})"


def targets(selector: str) -> Mapping[str, str]:
    """Return the queries about the targets of series of `selector`."""
    recent = f"last_over_time({selector}[{WINDOW}])"
    return {
        "targets": f"group by (job, instance) ({recent})",
        "up": f"max by (job, instance) (up) and on (job, instance) {recent}",
        "first": f"min(min_over_time(timestamp({selector})[{WINDOW}:1m]))",
        "count": f"max(count_over_time({selector}[{WINDOW}]))",
    }


def native(rule: CompiledRule) -> Mapping[str, str]:
    """Return the query for native histograms in place of the series that a rule reads."""
    base, ending = _split(rule)
    if not ending:
        return {}
    matchers = [
        promql.matcher(each.label, each.operator, base if each.label == "__name__" else each.value)
        for each in rule.matchers
        if each.label != "le"
    ]
    return {"native": f"count(histogram_count({{{','.join(matchers)}}}))"}


def of_native(rule: CompiledRule, results: Results) -> Finding | None:
    """Return the cause if a native histogram exists in place of the series that a rule reads."""
    if not results.get("native"):
        return None
    base, ending = _split(rule)
    query = rule.config.metrics_query
    window = match[1] if (match := _RANGE.search(query)) else "5m"
    rate = f"sum by (<<.GroupBy>>) (rate(<<.Series>>{{<<.LabelMatchers>>}}[{window}]))"
    share = _LE.search(f"{rule.config.series_query} {query}")
    if ending == "_bucket" and share and not _QUANTILE.search(query):
        # What is counted is how many are at most so much, not a quantile.
        instead = f"histogram_count(X) * histogram_fraction(0, {share[1]}, X), where X is {rate}"
    elif ending == "_bucket":
        quantile = match[1] if (match := _QUANTILE.search(query)) else "0.95"
        instead = f"histogram_quantile({quantile}, {rate}) without `le`"
    elif "/" in query and base + ("_count" if ending == "_sum" else "_sum") in query:
        instead = f"histogram_sum({rate}) / histogram_count({rate})"
    else:
        instead = f"histogram{ending}({rate})"
    return rule.config.where.finding(
        Reason.NO_SERIES,
        f"{base} is a native histogram in Prometheus, so it has no series {base}{ending}",
        f"Select {base} in `seriesQuery`, and write {instead}",
        lasting=True,
    )


def _split(rule: CompiledRule) -> tuple[str, str]:
    """Return the name of the histogram that a rule reads, and the ending; empty without one."""
    series = rule.pinned_series or ""
    ending = next((each for each in _CLASSIC if series.endswith(each)), "")
    return series.removesuffix(ending), ending


def of_rule(rule: CompiledRule, results: Results, now: float) -> Finding | None:
    """Return why a rule has no series; None if that is all that is known.

    `results` are those of `series`.
    """
    if results.get("live"):
        return rule.config.where.finding(
            Reason.NOT_LISTED_YET,
            f"{wording.code(rule.config.series_query)} has series now, which the last relist did "
            "not see",
            "If the metric comes and goes, set --metrics-max-age to twice the scrape interval or "
            "more; otherwise wait for the next relist",
            lasting=True,
        )
    if as_native := of_native(rule, results):
        return as_native
    subject = wording.code(rule.config.series_query)
    found = find(rule, rule.pinned_series or "", subject, results, now)
    return found or of_nothing(rule, results)


def of_nothing(rule: CompiledRule, results: Results) -> Finding | None:
    """Return the cause if Prometheus has no `up` of any target; None if it has, or that failed.

    Nothing follows for a team, which reads no `up` of targets in other namespaces.
    """
    if rule.team or results.get("scraped") != ():
        return None
    return rule.config.where.finding(
        Reason.NO_SERIES,
        f"Prometheus has no series of {wording.code(rule.config.series_query)}, and no `up` of any "
        "target",
        "Check that it scrapes the exporter, and that X-Scope-OrgID in --prometheus-header is the "
        "right tenant",
        lasting=True,
    )


def is_down(results: Results) -> bool:
    """Return whether a target of the series is down now; `results` are those of `series`."""
    return any(each.value == 0 for each in results.get("up", ()))


def find(
    rule: CompiledRule, series: str, subject: str, results: Results, now: float
) -> Finding | None:
    """Return why `series` have no sample younger than the lookback; `subject` names them."""
    if not results.get("last"):
        return None
    # Series of GPUs end when a pod releases its GPU.
    team, gpu, cause = rule.team, generations.is_of_gpus(series), rule.config.where.finding
    last = results["last"][0].value
    age = wording.age(last, now)
    scraped = {_target(each): each for each in results.get("targets", ()) if _target(each)}
    states = {_target(each): each.value for each in results.get("up", ())}
    down = sorted(target for target in scraped if states.get(target) == 0)
    unknown = sorted(target for target in scraped if target not in states)
    if down:
        return cause(
            Reason.TARGET_GONE,
            f"the target {wording.names(down)} is down (up = 0); the last sample of {subject} "
            f"is {age} old",
            "Check the exporter and /targets in Prometheus",
        )
    if unknown and (interval := _interval(results)) >= _RARE:
        return cause(
            Reason.SAMPLE_TOO_OLD,
            f"the last sample of {subject} is {age} old. Samples come every {interval:.0f} s, and "
            "Prometheus ignores those older than 5 minutes",
            "Set the scrape interval to 1 minute or less",
        )
    if unknown and team:
        return cause(
            Reason.SERIES_ENDED,
            f"{subject} ended: the last sample is {age} old. Whether the target "
            f"{wording.names(unknown)} is up cannot be said: its `up` is not in namespace "
            f"{wording.printable(team.namespace)}",
            "Check that what the series describes still runs, and have the target checked by those "
            "who run it",
        )
    if unknown and not _interval(results) and now - last >= _LOOKBACK:
        return cause(
            Reason.SAMPLE_TOO_OLD,
            f"the last sample of {subject} is {age} old, and Prometheus ignores those older than 5 "
            "minutes",
            f"Either the target {wording.names(unknown)} is not scraped any more, or its scrape "
            "interval is above 5 minutes: look for it on /targets in Prometheus",
        )
    if unknown:
        return cause(
            Reason.TARGET_GONE,
            f"the target {wording.names(unknown)} is not scraped any more; the last sample of "
            f"{subject} is {age} old",
            "Check that the exporter runs and is selected for scraping",
        )
    if scraped:
        unused = (
            "The pod uses no GPU any more" if gpu else "The target has nothing to report any more"
        )
        return cause(
            Reason.SERIES_ENDED,
            f"the {'exporter' if gpu else 'target'} is scraped (up = 1), but {subject} ended: the "
            f"last sample is {age} old",
            f"{unused}, or it has another name for the series since an upgrade: compare its "
            "/metrics with `seriesQuery`",
        )
    if now - last < _LOOKBACK:
        return cause(
            Reason.SERIES_ENDED,
            f"{subject} ended: the last sample is {age} old",
            "Check that what wrote it still runs and still reports it",
        )
    return cause(
        Reason.SAMPLE_TOO_OLD,
        f"the last sample of {subject} is {age} old, and Prometheus ignores samples older than 5 "
        "minutes (its flag --query.lookback-delta)",
        "Scrape or write it more often, or read it by `last_over_time` in `metricsQuery`",
    )


def _interval(results: Results) -> float:
    """Return the seconds between the samples of a series; 0 if that is not known."""
    if not all(results.get(each) for each in ("first", "last", "count")):
        return 0.0
    first, last, count = (results[each][0].value for each in ("first", "last", "count"))
    return (last - first) / (count - 1) if count > 1 else 0.0


def _target(sample: Sample) -> str:
    """Return `job/instance` of a sample; empty for series that were not scraped."""
    job, instance = sample.labels.get("job", ""), sample.labels.get("instance", "")
    return f"{job}/{instance}" if job and instance else ""
