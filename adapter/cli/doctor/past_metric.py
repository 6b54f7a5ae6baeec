"""A metric of an HPA at times of the past, evaluated as the server evaluates it.

Plans are rendered, and samples become values, by the same functions; only the queries are over a
range of time, and the pods are those of that time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from adapter.cli.doctor.ranges import Ranges
from rules import quantity
from rules.errors import AmbiguousSampleError, PlanError, UnreadableError
from rules.hpa import proposal, replay
from rules.hpa.autoscaler import Autoscaler, MetricSpec, Reference
from rules.hpa.past_pods import PastPods
from rules.hpa.replay import MetricReading
from rules.query import aggregate, plan, scope
from rules.query.aggregate import (
    NO_SAMPLES,
    ExternalValue,
    Identity,
    LooseSample,
    Reduction,
    Sample,
    SamplesByObject,
    Value,
)
from rules.query.catalog import Entry, ExternalEntry, Step
from rules.query.plan import Plan, SelectedObjects, StepQueries
from rules.query.pod_age import too_young
from rules.query.scope import Scope
from rules.selectors import selectors

_MAX_INT63 = 1 << 62
_NOTHING = MetricReading(milli=None)


class PastMetric:
    """A metric of an HPA, evaluated as the server does it; keeps its last values."""

    def __init__(
        self,
        hpa: Autoscaler,
        metric: MetricSpec,
        target: Reference,
        found: tuple[Entry | ExternalEntry, tuple[str, ...]],
    ) -> None:
        self.metric = metric
        self._entry, self.sources = found
        self._namespace, self._selector = hpa.namespace, selectors.parse(metric.selector)
        self._last = _Last()
        described, entry = metric.described or target, self._entry
        self.of_pods = isinstance(entry, Entry) and (metric.type == "Pods" or bool(entry.pods))
        self.workload = described if self.of_pods else target
        of_namespace = described.kind == "Namespace" and not described.group
        self._name = hpa.namespace if of_namespace else described.name
        how = entry.workloads if isinstance(entry, Entry) and entry.pods else None
        self._how = how
        self.total = replay.is_load(metric, how)
        self.query = ""
        self.min_age = entry.min_pod_age if isinstance(entry, Entry) and self.of_pods else None
        self.steps = entry.steps if isinstance(entry, Entry) else (entry.step,)
        self._alone = any(scope.sharing(step).scope is Scope.ALONE for step in self.steps)

    @property
    def memory(self) -> float:
        """Seconds of the past on which values depend."""
        return max(aggregate.last_known(self.steps) or 0.0, self.min_age or 0.0)

    async def readings(
        self, ranges: Ranges, times: Sequence[int], past: Sequence[PastPods]
    ) -> Sequence[MetricReading]:
        """Return what was read at each time. Raises UnreadableError."""
        try:
            if isinstance(self._entry, ExternalEntry):
                return await self._external(ranges, self._entry, times)
            names = list(map(self._names, past, times))
            values = await self._values(ranges, self._entry.pods or self._entry, times, names)
        except PlanError as error:
            raise UnreadableError(f"{self.metric} has no query: {error}") from error
        return list(map(self._reading, values, past, names))

    def _names(self, past: PastPods, time: int) -> tuple[str, ...]:
        """Return the names of the objects whose values are requested."""
        if not self.of_pods:
            return (self._name,)
        if self.min_age is None:
            return past.live
        young = too_young(past.ready_since, past.live, now=time / 1000, seconds=self.min_age)
        return tuple(name for name in past.live if name not in young)

    def _reading(
        self, values: Mapping[str, Value] | None, past: PastPods, names: tuple[str, ...]
    ) -> MetricReading:
        if self._how and values:
            values = aggregate.of_workloads({self._name: names}, values, self._how)
        if not values:
            return _NOTHING
        if self.metric.type != "Pods":
            return MetricReading(milli=_as_read(values[self._name].milli))
        groups = proposal.groups(past.pods, values)
        counted = [name for name in values if name not in {*groups.ignored, *groups.unready}]
        if not counted:
            return _NOTHING
        return MetricReading(
            milli=sum(_as_read(values[name].milli) for name in counted),
            counted=len(counted),
            missing=len(groups.missing),
            unready=len(groups.unready),
        )

    async def _values(
        self,
        ranges: Ranges,
        entry: Entry,
        times: Sequence[int],
        names: Sequence[tuple[str, ...]],
    ) -> Sequence[Mapping[str, Value] | None]:
        """Return the values at each time; None where the server had only an error."""
        found: list[Mapping[str, Value] | None] = []
        spans = [(0, len(times))] if not self._alone else _runs(names)
        for begin, end in spans:
            every = tuple(sorted({name for each in names[begin:end] for name in each}))
            of_all = plan.custom(
                entry, namespace=self._namespace, names=every, selector=self._selector
            )
            samples = [
                await self._samples(ranges, of_all, step, times[begin:end])
                for step in (entry.steps if every else ())
            ]
            of_time = of_all
            for time, wanted in zip(times[begin:end], names[begin:end], strict=True):
                if of_time.names != wanted:
                    of_time = replace(of_all, names=wanted)
                found.append(self._at(time, of_time, samples) if wanted else {})
        return found

    def _at(
        self, time: int, of_time: Plan, samples: Sequence[Mapping[int, SamplesByObject]]
    ) -> Mapping[str, Value] | None:
        by_step = [each.get(time, NO_SAMPLES) for each in samples]
        try:
            values = aggregate.custom(of_time, by_step, now=time / 1000)
        except AmbiguousSampleError:
            return None
        return aggregate.complete(of_time, values, self._last, now=time / 1000)

    async def _samples(
        self, ranges: Ranges, of_all: Plan, step: Step, times: Sequence[int]
    ) -> Mapping[int, SamplesByObject]:
        """Return the samples of a step by time."""
        values, recent = dict[int, list[LooseSample]](), dict[int, list[LooseSample]]()
        namespaces = (of_all.namespace,) if of_all.namespace else ()
        objects = SelectedObjects(namespaces=namespaces, names=of_all.names)
        batches = list(self._batches(step, objects))
        for names, texts in batches:
            self.query = texts.values
            for vectors, text in ((values, texts.values), (recent, texts.recent)):
                for labels, time, value in await ranges.points(text, times) if text else ():
                    if len(batches) == 1 or labels.get(step.binding.resource) in names:
                        vectors.setdefault(time, []).append((labels, value, time / 1000))
        return {
            time: _reduced(step, vector, recent.get(time, ())) for time, vector in values.items()
        }

    def _batches(
        self, step: Step, objects: SelectedObjects
    ) -> Iterator[tuple[frozenset[str], StepQueries]]:
        """Yield names and their queries, which are not too long if the rule permits that."""
        names = objects.names or ()
        texts = plan.queries(step, objects, self._selector)
        if self._alone or len(names) < 2 or plan.longest([texts]) <= plan.MAX_LENGTH:
            yield frozenset(names), texts
            return
        half = len(names) // 2
        for part in (names[:half], names[half:]):
            yield from self._batches(step, replace(objects, names=part))

    async def _external(
        self, ranges: Ranges, entry: ExternalEntry, times: Sequence[int]
    ) -> Sequence[MetricReading]:
        wanted = plan.external(entry, namespace=self._namespace, selector=self._selector)
        self.query = wanted.promql()
        vectors: dict[int, list[Sample]] = {}
        for labels, time, value in await ranges.points(self.query, times):
            vectors.setdefault(time, []).append(Sample(labels, value, time / 1000))
        return [self._total(aggregate.external(wanted, vectors.get(time, ()))) for time in times]

    def _total(self, values: Sequence[ExternalValue]) -> MetricReading:
        if not values:
            return _NOTHING
        return MetricReading(
            milli=proposal.total(self.metric, [_as_read(each.value.milli) for each in values])
        )


class _Last(dict[Identity, Value]):
    """Last values of objects."""

    def set(self, key: Identity, value: Value) -> None:
        """Replace the last value."""
        self[key] = value


def _reduced(
    step: Step, vector: Iterable[LooseSample], recent: Iterable[LooseSample]
) -> SamplesByObject:
    """Return the samples of each object at one time, as the server reduces them."""
    values, newest = Reduction(step), None
    values.add(vector)
    if step.rule.config.max_sample_age is not None:
        newest = Reduction(step)
        newest.add(recent)
    return values.by_object(newest).get("", NO_SAMPLES)


def _runs(names: Sequence[tuple[str, ...]]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each run of equal elements."""
    begin = 0
    for _, run in itertools.groupby(names):
        end = begin + len(list(run))
        yield begin, end
        begin = end


def _as_read(milli: int) -> int:
    """Return a value as the controller reads it from the answer: in 64 bits."""
    if abs(milli) < _MAX_INT63:
        return milli
    return quantity.milli_value(quantity.decimal(milli))
