"""The past of an autoscaler from Prometheus: what its controller read at each sync.

The queries, and how samples become values, are those of the server, over a range of time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from adapter import errors
from adapter.clients.prometheus import Prometheus
from adapter.clients.prometheus_result import Range
from adapter.cluster.readiness import too_young
from adapter.doctor.client import CannotTellError, Client
from rules import promql, quantity
from rules.errors import AmbiguousSampleError, PlanError, UnreadableError
from rules.hpa import past_pods, proposal, reading, replay
from rules.hpa.autoscaler import Autoscaler, Metric, Reference
from rules.hpa.past_pods import NONE, PastPods, States
from rules.hpa.reading import Request
from rules.hpa.replay import Reading, Sync
from rules.kinds import PODS, GroupResource
from rules.query import aggregate, entry_document, plan, scope
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
from rules.query.plan import Objects, Plan, StepQueries
from rules.query.scope import Scope
from rules.selectors import selectors

MAX_SECONDS = 31 * 86_400.0
_MAX_STEPS = 10_000
"""Points of a range query; Prometheus refuses more than 11 000."""
_FIRST_STEPS = 1_000
_POINTS_AT_ONCE = 100_000
"""Points of one query, about; their evaluation takes half a second."""
MAX_POINTS = 30_000_000
"""Points that a replay reads: some minutes."""
_MAX_QUERIES = 5_000
_MAX_INT63 = 1 << 62
_STATUS = "kube_horizontalpodautoscaler_status_"
CURRENT, DESIRED = f"{_STATUS}current_replicas", f"{_STATUS}desired_replicas"
TARGET_METRIC = f"{_STATUS}target_metric"

Progress = Callable[[float], None]
"""Is called with the part of the past that has been read, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What Prometheus knows of an HPA."""

    hpa: Autoscaler
    history: tuple[Sync, ...]
    """From the first sync at which each metric had a value."""
    totals: tuple[bool, ...]
    """Of each metric, whether it is the load of all pods together."""
    queries: int
    replicas_known: bool
    """Whether the replicas are those that kube-state-metrics has; else the pods that there were."""
    pods: str
    """Where the pods of then are from."""
    sources: tuple[str, ...]
    """Prometheus servers that the rules name."""
    late: bool
    """Whether the history begins later than requested."""


async def read(
    client: Client,
    prometheus: Prometheus,
    namespace: str,
    name: str,
    *,
    now: float,
    since: float,
    step: float,
    progress: Progress = lambda _: None,
) -> Past:
    """Read the last `since` seconds of an HPA. Raises CannotTellError with what to do.

    `now` is in Unix seconds.
    """
    try:
        hpa = await client.run(reading.hpa(namespace, name))
        requests = await client.run(reading.requests(hpa))
    except UnreadableError as error:
        raise CannotTellError(str(error), status=error.status) from error
    metrics = [
        _PastMetric(hpa, metric, await _entry(client, metric, request))
        for metric, request in zip(hpa.metrics, requests, strict=True)
    ]
    reader = _Reader(prometheus, round(step * 1000))
    end = math.floor(now / step) * reader.step
    begin = end - round(min(since, MAX_SECONDS) * 1000)
    earlier = math.ceil(max(each.memory for each in metrics) / step) * reader.step
    pods = {
        each: await _pods_of(reader, hpa, each, metrics, begin, end)
        for each in {hpa.target: None, **{each.workload: None for each in metrics}}
    }
    history: list[Sync] = []
    for times in reader.chunks(begin - earlier, end):
        history += await _syncs(reader, hpa, metrics, pods, times)
        progress((times[-1] - begin + earlier) / (end - begin + earlier))
    history = [each for each in history if each.time >= begin / 1000]
    return _past(hpa, metrics, pods[hpa.target], history, reader.queries)


def _past(
    hpa: Autoscaler,
    metrics: Sequence[_PastMetric],
    pods: _Pods,
    history: Sequence[Sync],
    queries: int,
) -> Past:
    """Return the history from its first value on. Raises CannotTellError if something lacks."""
    for index, each in enumerate(metrics):
        if all(sync.readings[index].milli is None for sync in history):
            raise CannotTellError(
                f"Prometheus has no history of {each.metric.name} for this period. Look whether it "
                f"has results of the query, or choose another --since: {each.query}"
            )
    known = any(each.replicas is not None for each in history)
    if not known:
        if not pods.query:
            raise CannotTellError(
                f"the replicas of the past are not known: Prometheus has no {DESIRED} of this HPA. "
                "Let it scrape kube-state-metrics"
            )
        history = [replace(each, replicas=each.present) for each in history]
    has_value = (any(each.milli is not None for each in sync.readings) for sync in history)
    first = next(index for index, each in enumerate(has_value) if each)
    return Past(
        hpa=hpa,
        history=tuple(history[first:]),
        totals=tuple(each.total for each in metrics),
        queries=queries,
        replicas_known=known,
        pods=pods.note,
        sources=tuple(dict.fromkeys(name for each in metrics for name in each.sources)),
        late=first > 1,
    )


async def _entry(
    client: Client, metric: Metric, request: Request | UnreadableError
) -> tuple[Entry | ExternalEntry, tuple[str, ...]]:
    """Return the rules of a metric and the names of their sources. Raises CannotTellError."""
    if isinstance(request, UnreadableError):
        raise CannotTellError(str(request), status=request.status) from request
    if metric.type in {"Resource", "ContainerResource"}:
        raise CannotTellError(
            f"{metric} has no history here: it comes from metrics.k8s.io, not from a rule"
        )
    explained = await client.explanation(request)
    if "plan" not in explained:
        raise CannotTellError(
            f"the adapter does not send the rules of {metric}: update it to this program's version"
        )
    if explained["plan"] is None:
        raise CannotTellError(f"{metric} has no query: {explained['verdict']}")
    described = metric.described
    resource = GroupResource(described.group, described.kind.lower()) if described else PODS
    try:
        entry = entry_document.read(explained["plan"], resource)
    except PlanError as error:
        raise CannotTellError(f"the query of {metric} cannot be replayed: {error}") from error
    return entry, entry_document.sources(explained["plan"])


async def _syncs(
    reader: _Reader,
    hpa: Autoscaler,
    metrics: Sequence[_PastMetric],
    pods: Mapping[Reference, _Pods],
    times: Sequence[int],
) -> Iterator[Sync]:
    """Return what the controller read at each time. Raises CannotTellError."""
    past = {each: await of.at(reader, times) for each, of in pods.items()}
    read = [await each.readings(reader, times, past[each.workload]) for each in metrics]
    texts = [past_pods.replicas(hpa.namespace, hpa.target), _desired(hpa)]
    text = " or ".join(filter(None, texts))
    replicas = {time: int(value) for _, time, value in await reader.points(text, times)}
    known = bool(pods[hpa.target].query)

    def sync(time: int, now: PastPods, *readings: Reading) -> Sync:
        spec = replicas.get(time)
        return Sync(
            time=time / 1000,
            readings=readings,
            replicas=spec,
            present=now.active if known else spec or 0,
            pods=len(now.pods) if known else spec or 0,
            ready=now.ready if known else spec or 0,
        )

    return map(sync, times, past[hpa.target], *read)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pods:
    """The pods of a workload, and how they are found."""

    namespace: str
    query: str
    """For their names, in the label `pod`; empty if they are not known."""
    states: States
    of_kube_state_metrics: bool
    ages: bool
    """Whether it matters since when they were Ready."""
    note: str

    async def at(self, reader: _Reader, times: Sequence[int]) -> Sequence[PastPods]:
        """Return the pods at each time. Raises CannotTellError."""
        if not self.query:
            return [NONE] * len(times)
        names = await reader.points(self.query, times)
        states: list[_Point] = []
        if self.of_kube_state_metrics and names:
            every = {labels["pod"] for labels, _, _ in names}
            states = await reader.points(
                past_pods.states(self.namespace, every, ages=self.ages), times
            )
        return self.states.read(names, states, times)


async def _pods_of(
    reader: _Reader,
    hpa: Autoscaler,
    workload: Reference,
    metrics: Sequence[_PastMetric],
    begin: int,
    end: int,
) -> _Pods:
    """Return how the past pods of a workload are found. Raises CannotTellError if they must be."""
    of_pods = [each for each in metrics if each.of_pods and each.workload == workload]
    ages = any(each.min_age is not None for each in of_pods)
    query = past_pods.owned(hpa.namespace, workload)
    known = await reader.any(query, begin, end)
    note = "pods are those of then, by kube_pod_owner of kube-state-metrics"
    if not known:
        note = (
            f"pods are those whose names are of {workload}, because Prometheus has no "
            "kube_pod_owner: a pod without a sample is not known"
        )
        try:
            steps = [step for each in of_pods for step in each.steps]
            query = past_pods.named(hpa.namespace, workload, steps) if steps else ""
        except UnreadableError as error:
            raise CannotTellError(str(error)) from error
        if ages:
            raise CannotTellError(
                "a rule has `minPodAge`, and when pods became Ready is not known: let Prometheus "
                "scrape kube-state-metrics"
            )
    return _Pods(
        namespace=hpa.namespace,
        query=query,
        states=States(),
        of_kube_state_metrics=known,
        ages=ages,
        note=note if query else "all replicas counted as Ready",
    )


class _PastMetric:
    """A metric of an HPA, evaluated as the server does it; keeps its last values."""

    def __init__(
        self, hpa: Autoscaler, metric: Metric, found: tuple[Entry | ExternalEntry, tuple[str, ...]]
    ) -> None:
        self.metric = metric
        self._entry, self.sources = found
        self._namespace, self._selector = hpa.namespace, selectors.parse(metric.selector)
        self._last = _Last()
        described, entry = metric.described or hpa.target, self._entry
        self.of_pods = isinstance(entry, Entry) and (metric.type == "Pods" or bool(entry.pods))
        self.workload = described if self.of_pods else hpa.target
        of_namespace = described.kind == "Namespace" and not described.group
        self._name = hpa.namespace if of_namespace else described.name
        how = entry.workloads if isinstance(entry, Entry) and entry.pods else None
        self._how = how
        self.total = replay.is_load(metric, how)
        self.query = ""
        self.min_age = entry.min_pod_age if isinstance(entry, Entry) and self.of_pods else None
        self.steps = entry.steps if isinstance(entry, Entry) else (entry.step,)
        self._alone = any(
            scope.sharing(step.source, step.binding).scope is Scope.ALONE for step in self.steps
        )

    @property
    def memory(self) -> float:
        """Seconds of the past on which values depend."""
        return max(aggregate.last_known(self.steps) or 0.0, self.min_age or 0.0)

    async def readings(
        self, reader: _Reader, times: Sequence[int], past: Sequence[PastPods]
    ) -> Sequence[Reading]:
        """Return what was read at each time. Raises CannotTellError."""
        try:
            if isinstance(self._entry, ExternalEntry):
                return await self._external(reader, self._entry, times)
            names = list(map(self._names, past, times))
            values = await self._values(reader, self._entry.pods or self._entry, times, names)
        except PlanError as error:
            raise CannotTellError(f"{self.metric} has no query: {error}") from error
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
    ) -> Reading:
        if self._how and values:
            values = aggregate.of_workloads({self._name: names}, values, self._how)
        if not values:
            return _NOTHING
        if self.metric.type != "Pods":
            return Reading(milli=_as_read(values[self._name].milli))
        groups = proposal.groups(past.pods, values)
        counted = [name for name in values if name not in {*groups.ignored, *groups.unready}]
        return Reading(
            milli=sum(_as_read(values[name].milli) for name in counted),
            counted=len(counted),
            missing=len(groups.missing),
            unready=len(groups.unready),
        )

    async def _values(
        self,
        reader: _Reader,
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
                await self._samples(reader, of_all, step, times[begin:end])
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
        self, reader: _Reader, of_all: Plan, step: Step, times: Sequence[int]
    ) -> Mapping[int, SamplesByObject]:
        """Return the samples of a step by time."""
        values, recent = dict[int, list[LooseSample]](), dict[int, list[LooseSample]]()
        namespaces = (of_all.namespace,) if of_all.namespace else ()
        objects = Objects(namespaces=namespaces, names=of_all.names)
        batches = list(self._batches(step, objects))
        for names, texts in batches:
            self.query = texts.values
            for vectors, text in ((values, texts.values), (recent, texts.recent)):
                for labels, time, value in await reader.points(text, times) if text else ():
                    if len(batches) == 1 or labels.get(step.binding.resource) in names:
                        vectors.setdefault(time, []).append((labels, value, time / 1000))
        return {
            time: _reduced(step, vector, recent.get(time, ())) for time, vector in values.items()
        }

    def _batches(
        self, step: Step, objects: Objects
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
        self, reader: _Reader, entry: ExternalEntry, times: Sequence[int]
    ) -> Sequence[Reading]:
        wanted = plan.external(entry, namespace=self._namespace, selector=self._selector)
        self.query = wanted.promql()
        vectors: dict[int, list[Sample]] = {}
        for labels, time, value in await reader.points(self.query, times):
            vectors.setdefault(time, []).append(Sample(labels, value, time / 1000))
        return [self._total(aggregate.external(wanted, vectors.get(time, ()))) for time in times]

    def _total(self, values: Sequence[ExternalValue]) -> Reading:
        if not values:
            return _NOTHING
        return Reading(
            milli=proposal.total(self.metric, [_as_read(each.value.milli) for each in values])
        )


_NOTHING = Reading(milli=None)


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


_Point = tuple[Mapping[str, str], int, float]
"""Labels, time in Unix milliseconds, and value."""


class _Reader:
    """Evaluates queries over ranges of time that Prometheus accepts. `step` is in milliseconds."""

    def __init__(self, prometheus: Prometheus, step: int) -> None:
        self._prometheus = prometheus
        self.step = step
        self.queries = 0
        self._points = 0
        self._series = 0
        """Most series of a query in this chunk."""

    def chunks(self, begin: int, end: int) -> Iterator[Sequence[int]]:
        """Yield times from `begin` to `end`, so many that their points fit into memory."""
        steps = _FIRST_STEPS
        while begin <= end:
            last = min(begin + (steps - 1) * self.step, end)
            self._series = 1
            yield range(begin, last + 1, self.step)
            steps = max(60, min(_POINTS_AT_ONCE // self._series, _MAX_STEPS))
            begin = last + self.step

    async def points(self, query: str, times: Sequence[int]) -> list[_Point]:
        """Return the samples of a query at these times. Raises CannotTellError."""
        found = await self._ranges(query, times[0], times[-1], self.step)
        self._series = max(self._series, len(found))
        points = [
            (each.labels, round(at * 1000), value) for each in found for at, value in each.points
        ]
        self._points += len(points)
        if self._points > MAX_POINTS or self.queries > _MAX_QUERIES:
            raise CannotTellError(
                f"this is too much: {self.queries} range queries returned {self._points} points; "
                f"the limits are {_MAX_QUERIES} and {MAX_POINTS}. Choose a shorter --since or a "
                "longer --sync-period"
            )
        return points

    async def any(self, query: str, begin: int, end: int) -> bool:
        """Return whether a query has samples at some of 500 times. Raises CannotTellError."""
        step = max(self.step, (end - begin) // 500)
        return bool(await self._ranges(query, begin, end, step))

    async def _ranges(self, query: str, begin: int, end: int, step: int) -> Sequence[Range]:
        self.queries += 1
        try:
            found = await self._prometheus.query_range(query, begin / 1000, end / 1000, step / 1000)
        except errors.BackendError as error:
            raise CannotTellError(
                f"Prometheus did not answer: {error}. Correct --prometheus-url, or choose a "
                "shorter --since"
            ) from error
        return found.content


def _desired(hpa: Autoscaler) -> str:
    """Return the query for the desired replicas."""
    return f"max({of_status(hpa.namespace, hpa.name, DESIRED)})"


def of_status(namespace: str, name: str, *series: str) -> str:
    """Return the query for the status of an HPA, as kube-state-metrics exports it.

    `exported_namespace` is its namespace if kube-state-metrics is scraped without honor_labels.
    """
    names = promql.matcher("__name__", "=~", "|".join(series))
    of_name = promql.matcher("horizontalpodautoscaler", "=", name)
    return " or ".join(
        f"{{{names},{of_name},{promql.matcher(label, '=', namespace)}}}"
        for label in ("exported_namespace", "namespace")
    )
