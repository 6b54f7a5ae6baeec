"""Cause of a missing value: its reason and a sentence. `missing` and `samples` find causes."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Reason(enum.Enum):
    """Machine-readable reason of a cause; those closest to a sample come first."""

    UNKNOWN_RESOURCE = "UnknownResource"
    OTHER_SCOPE = "OtherScope"
    NO_OBJECT = "NoObject"
    POD_TOO_YOUNG = "PodTooYoung"
    NO_QUERY = "NoQuery"
    MISSING_RIGHT = "MissingRight"
    LIST_FAILED = "ListFailed"
    PARTIAL_RESPONSE = "PartialResponse"
    PROMETHEUS_UNAVAILABLE = "PrometheusUnavailable"
    QUERY_REFUSED = "QueryRefused"
    LIMIT_EXCEEDED = "LimitExceeded"
    LABEL_DROPPED = "LabelDropped"
    NOT_FINITE = "NotFinite"
    OTHER_NAMESPACE = "OtherNamespace"
    EXPORTER_ONLY = "ExporterOnly"
    TARGET_GONE = "TargetGone"
    SERIES_ENDED = "SeriesEnded"
    SAMPLE_TOO_OLD = "SampleTooOld"
    NOT_SCRAPED = "NotScraped"
    NO_SAMPLE = "NoSample"
    LABELS_MISSING = "LabelsMissing"
    OTHER_RESOURCE = "OtherResource"
    WRONG_NAME = "WrongName"
    RELIST_FAILED = "RelistFailed"
    NOT_LISTED_YET = "NotListedYet"
    OTHER_EXPORTER = "OtherExporter"
    NO_SERIES = "NoSeries"
    NO_RULE = "NoRule"


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

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.sentence}"
