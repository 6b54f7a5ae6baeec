"""Time that an HPA takes to react to a change of load, as a sum of delays. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rules.findings import Finding, State
from rules.hpa.autoscaler import SYNC, Document, Pod
from rules.query.delay import OFFSET, Delay
from rules.query.pod_age import FirstSamples
from rules.quoting import counted

_SLOW = 60.0
"""Seconds from which on a reaction is slow."""
_SCRAPE = (
    "Scrape more often: `gpu-metrics-adapter presets scrape` prints jobs with 5 s, and "
    "prometheus.embedded of the chart is a Prometheus that has them"
)
_SHORTEN = "Shorten the range or the offset in metricsQuery; `gpu-metrics-adapter explain` shows it"
_REFRESH = "Shorten `freshness` of the rule, or --query-freshness"
_MISSED = 2
"""Intervals after which a sample is late."""


class Term(NamedTuple):
    """One delay in the sum."""

    seconds: float
    what: str
    varies: bool = False
    """Whether it is anything up to `seconds`, depending on when the load changes."""

    @property
    def mean(self) -> float:
        """The delay on average."""
        return self.seconds / 2 if self.varies else self.seconds


_SYNC = Term(SYNC, "sync period of the controller", varies=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """Delay between a change of load and the value of a metric."""

    interval: float | None = None
    """Seconds between samples; None if they are not known."""
    sample: float | None
    """Age of the oldest sample in the value, in seconds; None if it is not known."""
    delay: Delay
    """Delay by the ranges and offsets of the query."""
    freshness: float = 0.0
    """Seconds for which the adapter answers with one result; 0 if that is not known."""
    first_samples: FirstSamples | None = None
    """Of the pods that the metric describes; None for other metrics, or if they are not known."""

    @property
    def seconds(self) -> float:
        """Longest time until the value shows the change in full."""
        return sum(each.seconds for each in self.terms)

    @property
    def sampling(self) -> Term | None:
        """The delay by the samples: their interval, or the age of one that is late."""
        if self.interval is not None and (self.sample or 0.0) < _MISSED * self.interval:
            return Term(self.interval, "interval between samples", varies=True)
        return None if self.sample is None else Term(self.sample, "age of the sample")

    @property
    def terms(self) -> Sequence[Term]:
        """The delays, in the order in which they occur."""
        terms = [] if self.sampling is None else [self.sampling]
        if self.delay.seconds:
            function = "the offset" if self.delay.function == OFFSET else self.delay.function
            terms.append(Term(self.delay.seconds, function))
        if self.freshness:
            terms.append(Term(self.freshness, "freshness", varies=True))
        return terms

    def __str__(self) -> str:
        """Return the sum: `192 s: 12 s (interval between samples) + 180 s (avg_over_time)`."""
        text = " + ".join(f"{each.seconds:.0f} s ({each.what})" for each in self.terms)
        return f"{self.seconds:.0f} s: {text}" if len(self.terms) > 1 else text


class Median(NamedTuple):
    """Median of a time that was measured on pods."""

    seconds: float
    pods: int

    def __str__(self) -> str:
        """Return `95 s, the median of 3 pods`."""
        return f"{self.seconds:.0f} s, the median of {counted(self.pods, 'pod')}"


class Start(NamedTuple):
    """How long new pods take from their creation; None if that was not measured."""

    ready: Median | None
    """Until they are Ready."""
    sample: Median | None
    """Until their first sample."""

    @property
    def seconds(self) -> float | None:
        """Time until a pod is Ready and has a sample, as far as it was measured."""
        return max((each.seconds for each in self if each is not None), default=None)


def of_explanation(document: Document) -> Reaction | None:
    """Return the slowest of the queries in an explanation; None without one."""
    found = [
        Reaction(
            interval=each.get("intervalSeconds"),
            sample=each["oldestSampleSeconds"],
            delay=Delay(seconds=each["delaySeconds"], function=each["delayedBy"]),
            freshness=each.get("freshnessSeconds", 0.0),
            first_samples=FirstSamples(**first) if (first := each.get("firstSamples")) else None,
        )
        for each in document.get("queries") or ()
        # An adapter of an earlier release has no delay.
        if "delaySeconds" in each and (each["delaySeconds"] or each["oldestSampleSeconds"])
    ]
    return max(found, key=lambda each: each.seconds, default=None)


def start(pods: Sequence[Pod], first_samples: Iterable[FirstSamples | None]) -> Start:
    """Return how long pods took from their creation to Ready, and to their first sample.

    Of the `first_samples` of several queries, the last ones count.
    """
    ready = _median(
        each.ready_since - each.created
        for each in pods
        if each.created is not None and each.ready == "True" and each.ready_since >= each.created
    )
    samples = (_median(_until_sample(pods, each)) for each in first_samples if each is not None)
    return Start(ready, max(filter(None, samples), default=None))


def _until_sample(pods: Sequence[Pod], found: FirstSamples) -> Iterator[float]:
    """Yield how long pods took until their first sample.

    Pods that are older than the series do not count: they may have had samples before.
    """
    for each in pods:
        first = found.pods.get(each.name, 0.0)
        if each.created is not None and found.since < each.created <= first:
            yield first - each.created


def _median(times: Iterable[float]) -> Median | None:
    found = tuple(times)
    return Median(statistics.median(found), len(found)) if found else None


def _start(reactions: Iterable[Reaction], pods: Sequence[Pod]) -> Start:
    return start(pods, [each.first_samples for each in reactions])


def _terms(reactions: Sequence[Reaction], pods: Sequence[Pod]) -> Sequence[Term]:
    """Return the terms of the slowest metric, of the controller and of a new pod.

    Empty if no metric is known.
    """
    if not reactions:
        return ()
    slowest = max(reactions, key=lambda each: each.seconds)
    seconds = _start(reactions, pods).seconds
    of_pod = () if seconds is None else (Term(seconds, "start of a new pod"),)
    return *slowest.terms, _SYNC, *of_pod


def slow(subject: str, reaction: Reaction) -> Finding | None:
    """Return that a change of load shows too late, and what to do; None if it does not."""
    if reaction.seconds + SYNC <= _SLOW:
        return None
    fact = f"shows a change of load in full within {reaction}, and the controller within {SYNC:g} s"
    sampling = 0.0 if reaction.sampling is None else reaction.sampling.seconds
    _, cure = max(
        (sampling, _SCRAPE), (reaction.delay.seconds, _SHORTEN), (reaction.freshness, _REFRESH)
    )
    return Finding(state=State.NOTE, subject=subject, fact=fact, cure=cure)


def lines(reactions: Sequence[Reaction | None], pods: Sequence[Pod]) -> Iterator[str]:
    """Yield a line for each term: of the metrics in their order, the controller, and a new pod.

    The last line is the sum.
    """
    for number, each in enumerate(reactions, 1):
        if each is not None:
            yield f"metric {number} shows the change in full within {each}"
    yield f"the controller acts within {SYNC:g} s, its default sync period"
    known = [each for each in reactions if each is not None]
    started = _start(known, pods)
    if started.ready:
        yield f"a new pod is Ready after {started.ready}"
    if started.sample:
        yield f"a new pod has its first sample after {started.sample}"
    elif any(each.first_samples for each in known):
        assumed = "; Ready counts" if started.ready else ""
        why = f"none started beside others for an hour{assumed}"
        yield f"the first sample of a new pod is not known: {why}"
    terms = _terms(known, pods)
    total, mean = sum(each.seconds for each in terms), sum(each.mean for each in terms)
    without = ", without the start of a new pod" if started.seconds is None else ""
    yield f"in all within {total:.0f} s, on average {mean:.0f} s{without}"


def document(reactions: Sequence[Reaction | None], pods: Sequence[Pod]) -> Document:
    """Return the terms as a document for clients."""
    known = [each for each in reactions if each is not None]
    started, terms = _start(known, pods), _terms(known, pods)
    return {
        "metrics": [
            None
            if each is None
            else {
                "intervalSeconds": each.interval,
                "sampleSeconds": each.sample,
                "delaySeconds": each.delay.seconds,
                "delayedBy": each.delay.function,
                "freshnessSeconds": each.freshness,
            }
            for each in reactions
        ],
        "terms": [{"seconds": each.seconds, "what": each.what} for each in terms],
        "longestSeconds": sum(each.seconds for each in terms),
        "meanSeconds": sum(each.mean for each in terms),
        "syncPeriodSeconds": SYNC,
        "podReadySeconds": None if started.ready is None else started.ready.seconds,
        "podFirstSampleSeconds": None if started.sample is None else started.sample.seconds,
    }
