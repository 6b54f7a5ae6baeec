"""Reasons of missing values: one table of name, summary, advice and order.

`missing` and `samples` find causes; docs/troubleshooting.md is generated from this table.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, Self

from rules.findings import Finding


class _Entry(NamedTuple):
    """One row of the table."""

    name: str
    summary: str
    advice: str = ""


class Reason(enum.StrEnum):
    """Machine-readable reason of a cause; those closest to a sample come first."""

    summary: str
    """What is so, without an age, a count or a name."""
    advice: str
    """What to do; may be empty."""

    def __new__(cls, name: str, summary: str = "", advice: str = "") -> Self:
        """Build a member whose value is `name`."""
        reason = str.__new__(cls, name)
        reason._value_, reason.summary, reason.advice = name, summary, advice
        return reason

    UNKNOWN_RESOURCE = _Entry(
        "UnknownResource", "the cluster has no such resource", "Correct the kind"
    )
    OTHER_SCOPE = _Entry("OtherScope", "the scope of the path does not fit the resource")
    NO_OBJECT = _Entry(
        "NoObject", "the object does not exist or has finished", "Correct the name or the selector"
    )
    POD_TOO_YOUNG = _Entry(
        "PodTooYoung", "the rule leaves out pods until they have been Ready for `minPodAge`"
    )
    NO_QUERY = _Entry(
        "NoQuery",
        "the rule has no valid query for this request",
        "Correct the rule or the metric selector",
    )
    MISSING_RIGHT = _Entry(
        "MissingRight", "the adapter has no permission to list the objects", "Grant it"
    )
    LIST_FAILED = _Entry(
        "ListFailed", "the API server did not list the objects", "The adapter's log has its error"
    )
    FALLBACK_FAILED = _Entry(
        "FallbackFailed",
        "no rule produces the metric, and the server of --external-fallback has no value, either",
        "`gpu-metrics-adapter explain` shows its answer",
    )
    PARTIAL_RESPONSE = _Entry(
        "PartialResponse",
        "the response of Prometheus is partial",
        "Check its storage nodes, stores and replicas",
    )
    PROMETHEUS_UNAVAILABLE = _Entry(
        "PrometheusUnavailable",
        "Prometheus does not answer as expected",
        "Check it and --prometheus-url; the adapter's log has the error",
    )
    WINDOW_NOT_FULL = _Entry(
        "WindowNotFull",
        "Prometheus in the pod has no data of the query's whole window yet, or does not respond",
        "Wait; if it does not respond, see the log of its container",
    )
    QUERY_REFUSED = _Entry(
        "QueryRefused",
        "Prometheus refused the query of the rule as invalid",
        "Correct its `metricsQuery`",
    )
    LIMIT_EXCEEDED = _Entry(
        "LimitExceeded",
        "the query of the rule exceeds a limit",
        "Select fewer series, or raise the limit",
    )
    SEVERAL_SAMPLES = _Entry(
        "SeveralSamples",
        "the query returned several samples of one object, and the rule says `aggregate: error`",
        "Aggregate in the query, or set another `aggregate`",
    )
    NEGATIVE_VALUE = _Entry(
        "NegativeValue",
        "a value is below 0, and the target is an AverageValue: Kubernetes 1.34 and later may "
        "take that for an overflow and scale to maxReplicas",
        "Write clamp_min(..., 0) in `metricsQuery`",
    )
    LABEL_DROPPED = _Entry(
        "LabelDropped", "the query of the rule drops the label of the object", "Add it to `by`"
    )
    NOT_FINITE = _Entry(
        "NotFinite",
        "the query returned NaN or Inf, which is not a value",
        "Correct the query, or set `onNaN: zero`",
    )
    OTHER_NAMESPACE = _Entry(
        "OtherNamespace",
        "the series have another namespace",
        "Correct the namespace label in the scrape config",
    )
    EXPORTER_ONLY = _Entry(
        "ExporterOnly",
        "the series have the labels of the exporter's own pod only",
        "Let the exporter report the pods of GPUs (with resource claims: "
        "KUBERNETES_ENABLE_DRA=true), and read their label",
    )
    TARGET_GONE = _Entry(
        "TargetGone",
        "the scrape target is gone or down",
        "Check the exporter and its ServiceMonitor",
    )
    SERIES_ENDED = _Entry(
        "SeriesEnded",
        "the series ended",
        "Check that the pod still uses the device. If the exporter has another name for the series "
        "now, compare its /metrics with `seriesQuery`",
    )
    NAMESPACE_CHANGED = _Entry(
        "NamespaceChanged",
        "the series ended, and objects of the same name have series with another namespace label",
        "If these are the same objects, correct the namespace label in the scrape config",
    )
    SAMPLE_TOO_OLD = _Entry(
        "SampleTooOld", "the last sample is too old", "Check the scrape interval and the exporter"
    )
    NOT_SCRAPED = _Entry(
        "NotScraped",
        "Prometheus has no series of the object",
        "Check that it is scraped (`gpu-metrics-adapter presets scrape PRESET` prints how), and "
        "uses a device if an exporter of devices reports it",
    )
    NO_SAMPLE = _Entry(
        "NoSample",
        "the query of the rule returned no number",
        "Check its comparisons and series (`gpu-metrics-adapter explain`)",
    )
    LABEL_DIFFERS = _Entry(
        "LabelDiffers",
        "the label of the series has another text than the name of the object",
        "Write the name alone to the label, by relabelling in the scrape config",
    )
    LABELS_MISSING = _Entry(
        "LabelsMissing",
        "the series have no label for the object",
        "Map the right label in `resources`, or add it in the scrape config",
    )
    OTHER_RESOURCE = _Entry(
        "OtherResource",
        "the metric exists for other kinds of objects only; discovery lists which",
        "Request it for one of these, or map a label in `resources`",
    )
    RULES_NOT_LOADED = _Entry(
        "RulesNotLoaded", "the rules of the namespace are not loaded yet", "Retry"
    )
    RULES_UNREADABLE = _Entry(
        "RulesUnreadable",
        "the adapter cannot list the ConfigMaps with rules of teams",
        "Its log and `/readyz/rights` say why",
    )
    RULES_REFUSED = _Entry(
        "RulesRefused", "a ConfigMap with rules in the namespace is refused", "Correct it"
    )
    WRONG_NAME = _Entry(
        "WrongName", "no rule produces a metric of this name", "Use one of the names in discovery"
    )
    RELIST_FAILED = _Entry(
        "RelistFailed",
        "the last relist failed",
        "Check Prometheus; the adapter's log has the error",
    )
    NOT_LISTED_YET = _Entry(
        "NotListedYet", "the series have not been listed yet", "Wait for the next relist"
    )
    OTHER_EXPORTER = _Entry(
        "OtherExporter",
        "Prometheus has the series of another exporter",
        "`gpu-metrics-adapter presets detect` says which preset reads them, if any",
    )
    NO_SERIES = _Entry(
        "NoSeries", "Prometheus has no series of the rule", "Check that the exporter is scraped"
    )
    NO_RULE = _Entry(
        "NoRule", "no rule produces a metric of this name", "Add a rule, or use a name in discovery"
    )


def summarize(cause: Finding) -> str:
    """Return the reason and a sentence that stays the same as long as the reason does.

    An HPA repeats it in its condition, and each new text is a new Event in its namespace.
    """
    if cause.lasting:
        return str(cause)
    if cause.summary:
        return str(Finding(reason=cause.reason, fact=cause.summary))
    reason = Reason(cause.reason)
    return str(Finding(reason=reason, fact=reason.summary, cure=reason.advice))
