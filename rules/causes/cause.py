"""Cause of a missing value: its reason and a sentence. `missing` and `samples` find causes."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


class Reason(enum.Enum):
    """Machine-readable reason of a cause; those closest to a sample come first."""

    UNKNOWN_RESOURCE = "UnknownResource"
    OTHER_SCOPE = "OtherScope"
    NO_OBJECT = "NoObject"
    POD_TOO_YOUNG = "PodTooYoung"
    NO_QUERY = "NoQuery"
    MISSING_RIGHT = "MissingRight"
    LIST_FAILED = "ListFailed"
    FALLBACK_FAILED = "FallbackFailed"
    PARTIAL_RESPONSE = "PartialResponse"
    PROMETHEUS_UNAVAILABLE = "PrometheusUnavailable"
    QUERY_REFUSED = "QueryRefused"
    LIMIT_EXCEEDED = "LimitExceeded"
    SEVERAL_SAMPLES = "SeveralSamples"
    NEGATIVE_VALUE = "NegativeValue"
    LABEL_DROPPED = "LabelDropped"
    NOT_FINITE = "NotFinite"
    OTHER_NAMESPACE = "OtherNamespace"
    EXPORTER_ONLY = "ExporterOnly"
    TARGET_GONE = "TargetGone"
    SERIES_ENDED = "SeriesEnded"
    SAMPLE_TOO_OLD = "SampleTooOld"
    NOT_SCRAPED = "NotScraped"
    NO_SAMPLE = "NoSample"
    LABEL_DIFFERS = "LabelDiffers"
    LABELS_MISSING = "LabelsMissing"
    OTHER_RESOURCE = "OtherResource"
    RULES_NOT_LOADED = "RulesNotLoaded"
    RULES_UNREADABLE = "RulesUnreadable"
    RULES_REFUSED = "RulesRefused"
    WRONG_NAME = "WrongName"
    RELIST_FAILED = "RelistFailed"
    NOT_LISTED_YET = "NotListedYet"
    OTHER_EXPORTER = "OtherExporter"
    NO_SERIES = "NoSeries"
    NO_RULE = "NoRule"


_SUMMARIES: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.UNKNOWN_RESOURCE: "the cluster has no such resource. Correct the kind",
        Reason.OTHER_SCOPE: "the scope of the path does not fit the resource",
        Reason.NO_OBJECT: "the object does not exist or has finished. Correct the name or the "
        "selector",
        Reason.POD_TOO_YOUNG: "the rule leaves out pods until they have been Ready for `minPodAge`",
        Reason.NO_QUERY: "the rule has no valid query for this request. Correct the rule or the "
        "metric selector",
        Reason.MISSING_RIGHT: "the adapter has no permission to list the objects. Grant it",
        Reason.LIST_FAILED: "the API server did not list the objects. The adapter's log has its "
        "error",
        Reason.FALLBACK_FAILED: "no rule produces the metric, and the server of "
        "--external-fallback has no value, either. `gpu-metrics-adapter explain` shows its answer",
        Reason.PARTIAL_RESPONSE: "the response of Prometheus is partial. Check its storage nodes, "
        "stores and replicas",
        Reason.PROMETHEUS_UNAVAILABLE: "Prometheus does not answer as expected. Check it and "
        "--prometheus-url; the adapter's log has the error",
        Reason.QUERY_REFUSED: "Prometheus refused the query of the rule as invalid. Correct its "
        "`metricsQuery`",
        Reason.LIMIT_EXCEEDED: "the query of the rule exceeds a limit. Select fewer series, or "
        "raise the limit",
        Reason.SEVERAL_SAMPLES: "the query returned several samples of one object, and the rule "
        "says `aggregate: error`. Aggregate in the query, or set another `aggregate`",
        Reason.NEGATIVE_VALUE: "a value is below 0, and the target is an AverageValue: Kubernetes "
        "1.34 and later may take that for an overflow and scale to maxReplicas. Write "
        "clamp_min(..., 0) in `metricsQuery`",
        Reason.LABEL_DROPPED: "the query of the rule drops the label of the object. Add it to `by`",
        Reason.NOT_FINITE: "the query returned NaN or Inf, which is not a value. Correct the "
        "query, or set `onNaN: zero`",
        Reason.OTHER_NAMESPACE: "the series have another namespace. Correct the namespace label in "
        "the scrape config",
        Reason.EXPORTER_ONLY: "the series have the labels of the exporter's own pod only. Let the "
        "exporter report the pods of GPUs (with resource claims: KUBERNETES_ENABLE_DRA=true), and "
        "read their label",
        Reason.TARGET_GONE: "the scrape target is gone or down. Check the exporter and its "
        "ServiceMonitor",
        Reason.SERIES_ENDED: "the series ended. Check that the pod still uses the device and "
        "the exporter still reports the series by this name",
        Reason.SAMPLE_TOO_OLD: "the last sample is too old. Check the scrape interval and the "
        "exporter",
        Reason.NOT_SCRAPED: "Prometheus has no series of the object. Check that it is scraped, or "
        "that the exporter reports it",
        Reason.NO_SAMPLE: "the query of the rule returned no number",
        Reason.LABEL_DIFFERS: "the label of the series has another text than the name of the "
        "object. Write the name alone to the label, by relabelling in the scrape config",
        Reason.LABELS_MISSING: "the series have no label for the object. Map the right label in "
        "`resources`, or add it in the scrape config",
        Reason.OTHER_RESOURCE: "the metric exists for other kinds of objects only; discovery lists "
        "which. Request it for one of these, or map a label in `resources`",
        Reason.RULES_NOT_LOADED: "the rules of the namespace are not loaded yet. Retry",
        Reason.RULES_UNREADABLE: "the adapter cannot list the ConfigMaps with rules of teams. Its "
        "log and `/readyz/rights` say why",
        Reason.RULES_REFUSED: "a ConfigMap with rules in the namespace is refused. Correct it",
        Reason.WRONG_NAME: "no rule produces a metric of this name. Use one of the names in "
        "discovery",
        Reason.RELIST_FAILED: "the last relist failed. Check Prometheus; the adapter's log has the "
        "error",
        Reason.NOT_LISTED_YET: "the series have not been listed yet. Wait for the next relist",
        Reason.OTHER_EXPORTER: "Prometheus has the series of another exporter. "
        "`gpu-metrics-adapter presets detect` says which preset reads them, if any",
        Reason.NO_SERIES: "Prometheus has no series of the rule. Check that the exporter is "
        "scraped",
        Reason.NO_RULE: "no rule produces a metric of this name. Add a rule, or use a name in "
        "discovery",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One cause of a missing metric."""

    reason: Reason
    sentence: str
    """What happened, where, and what to do. Ages and counts in it change with time."""
    rule: int | None = None
    """The `CompiledRule.index` of the rule concerned, if any."""
    provisional: bool = False
    """Whether it is usual while everything starts, so that it is not worth a warning yet."""

    lasting: bool = False
    """Whether `sentence` has no age, count or time, and names no object but a requested one."""

    logged: bool = False
    """Whether the adapter's log has the error behind it, which only its readers may see."""

    @property
    def message(self) -> str:
        """Return the sentence, and where the error is."""
        return f"{self.sentence}. The adapter's log has the error" if self.logged else self.sentence

    @property
    def summary(self) -> str:
        """Return the reason and a sentence that stays the same as long as the reason does.

        An HPA repeats it in its condition, and each new text is a new Event in its namespace.
        """
        return str(self) if self.lasting else f"{self.reason.value}: {_SUMMARIES[self.reason]}"

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.message}"
