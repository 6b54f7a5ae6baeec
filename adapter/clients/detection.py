"""Queries that detect GPU exporters and model servers in a live Prometheus.

`rules.exporters.detect` draws conclusions. Queries return only names of series and labels, never
label values. Whether a `pod` is the target's own is decided in PromQL, by a comparison with `up`,
which has only target labels. `server.series.detected_presets` detects continuously.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from adapter.background import gather_or_cancel
from adapter.clients.kubernetes import Kube
from adapter.clients.lister import Lister
from adapter.clients.prometheus import Prometheus
from rules import promql
from rules.exporters import detect, generations, lookalikes
from rules.findings import Finding
from rules.scrape import pods

_LOOKBACK = 2 * 3600.0
"""Seconds. Prometheus still has them in memory, and GPUs that are idle now may have had a pod."""


SELECTOR = promql.of_names(generations.SERIES)
"""Selector of all series that are looked for.

Prometheus looks up to 255 names up in its index, and compares each name of the index with more.
Among 100 000 series of 50 000 names, 244 took as long as 1 200: 10 to 35 ms."""
LOAD_SELECTOR = promql.of_names(generations.LOAD)
"""Selector of one series of each model server and gateway."""
_ANY_SERIES = '{__name__!=""}'
_WITH_POD = promql.with_matchers(SELECTOR, ('pod!=""',))
_SAME_TARGET = "on (job, instance, namespace, pod)"
_FOREIGN = f"({_WITH_POD} unless {_SAME_TARGET} up)"
"""Series whose `pod` is not that of their target."""
_TARGETS_WITH_POD = 'on (job, instance) up{pod!=""}'
_RECENTLY_FOREIGN = (
    f"last_over_time({_WITH_POD}[{_LOOKBACK:.0f}s])"
    f" unless {_SAME_TARGET} last_over_time(up[{_LOOKBACK:.0f}s])"
)
_LOAD_OF_PODS = promql.with_matchers(LOAD_SELECTOR, ('pod!=""',))
_OF_PODS = f"{_LOAD_OF_PODS} and {_SAME_TARGET} up"
_SCRAPE = "job, service, endpoint, prometheus, prometheus_replica, replica"
"""Labels in which the targets of several scrapes of one port differ."""
_KIND = "kind"
"""Label that tells the results of two queries apart that are sent as one."""
_SCRAPES = " or ".join(
    f"label_replace(max by (__name__) (count by (__name__, namespace, pod{by}) "
    f"(group by (__name__, namespace, pod, instance{among}) ({_OF_PODS})) > 1), "
    f'"{_KIND}", "{kind}", "", "")'
    for kind, by, among in (("targets", ", instance", f", {_SCRAPE}"), ("ports", "", ""))
)
# Grouped first: with several pods on one GPU, label_replace would yield duplicate series.
_HOSTNAME_IS_POD = (
    "label_replace(group by (__name__, job, instance, {label}) ({selector}),"
    ' "pod", "$1", "{label}", "(.+)") and on (job, instance, pod) up'
)


async def report(prometheus: Prometheus, *, unknown: bool = False) -> detect.Detection:
    """Query Prometheus; return the exporters and the presets that fit. Raises BackendError.

    `unknown` also looks for exporters that are not known, beside those that are.
    """
    observations = await observe(prometheus, lister_of(prometheus))
    if unknown:
        others = await _names(prometheus, promql.of_names([lookalikes.PATTERN]))
        observations = replace(observations, others=others)
    return detect.analyze(observations)


async def in_cluster(
    kube: Kube, prometheus: Prometheus, report: detect.Detection
) -> tuple[Finding, ...]:
    """Return what runs in the cluster and is not scraped. Raises BackendError.

    It lists all running pods.
    """
    running = {"fieldSelector": "status.phase=Running"}
    _, listed = await kube.snapshot(
        "/api/v1/pods", running, lambda pod: [*pods.serving(pod)], metadata_only=False
    )
    found = [each for serving in listed for each in serving]
    if not found:
        return ()
    namespaces = "|".join(sorted({each.namespace for each in found}))
    matcher = promql.matcher("namespace", "=~", namespaces)
    up = await _by_pod(prometheus, f"up{{{matcher}}}")
    refused = f"scrape_samples_post_metric_relabeling{{{matcher}}} and up == 0"
    samples = {} if all(up.values()) else await _by_pod(prometheus, refused)
    detected = {each.generation.name for each in report.exporters}
    return tuple(pods.findings(found, up, detected, samples))


async def _by_pod(prometheus: Prometheus, query: str) -> dict[tuple[str, str], float]:
    """Return the largest value of each pod, by namespace and name."""
    result = await prometheus.query(f"max by (namespace, pod) ({query})")
    return {
        (each.labels.get("namespace", ""), each.labels.get("pod", "")): each.value
        for each in result.samples
    }


def lister_of(prometheus: Prometheus) -> Lister:
    """Return a lister of the series names that detection reads."""
    return Lister(prometheus, max_age=_LOOKBACK)


async def observe(prometheus: Prometheus, lister: Lister) -> detect.Observations:
    """Query the present series and labels, in a dozen cheap queries. Raises BackendError."""
    targets, down = await gather_or_cancel(
        _count(prometheus, query) for query in ("count(up)", "count(up == 0)")
    )
    indexed = await lister.index(SELECTOR, generations.LABELS)
    if not indexed.names:
        names = await _names(prometheus, _ANY_SERIES)
        return detect.Observations(targets=targets, down=down, anything=bool(names))
    present = frozenset[str]().union(*indexed.names.values())
    labels = [label for label in generations.LABELS if label in present]
    labels += generations.own_labels(indexed.names)
    hostnames = [label for label in ("Hostname", "hostname") if label in present]
    names_in = await lister.names_in(
        [
            SELECTOR,
            f"{_FOREIGN} and {_TARGETS_WITH_POD}",
            f"{_FOREIGN} unless {_TARGETS_WITH_POD}",
            _RECENTLY_FOREIGN,
            *(_HOSTNAME_IS_POD.format(label=label, selector=SELECTOR) for label in hostnames),
        ]
    )
    live, honored, direct, recently_foreign, *hostname_is_pod = names_in.content
    # Others decide nothing: each is one more query.
    matchers = generations.matchers(indexed.names)
    conditions = [promql.matcher(label, "!=", "") for label in labels]
    carriers = await lister.live(SELECTOR, [(each,) for each in (*conditions, *matchers)])
    having, matching = carriers.content[: len(labels)], carriers.content[len(labels) :]
    scrapes: Mapping[str, Mapping[str, int]] = {}
    if not indexed.names.keys().isdisjoint(generations.LOAD):
        scrapes = await _scrapes(prometheus)
    return detect.Observations(
        live={
            name: frozenset(
                label for label, names in zip(labels, having, strict=True) if name in names
            )
            for name in live
        },
        indexed=indexed.names,
        matching=dict(zip(matchers, matching, strict=True)),
        targets_of_pod=scrapes.get("targets", {}),
        ports_of_pod=scrapes.get("ports", {}),
        honored=honored,
        direct=direct,
        recently_foreign=recently_foreign,
        hostname_is_pod=frozenset[str]().union(*hostname_is_pod),
        targets=targets,
        down=down,
        anything=True,
    )


async def _names(prometheus: Prometheus, selector: str) -> frozenset[str]:
    now = time.time()
    return frozenset((await prometheus.names(selector, now - _LOOKBACK, now)).content)


async def _scrapes(prometheus: Prometheus) -> Mapping[str, Mapping[str, int]]:
    """Return the most targets and ports of one pod, if several, by the names of series."""
    result = await prometheus.query(_SCRAPES)
    found: dict[str, dict[str, int]] = {}
    for each in result.samples:
        of_kind = found.setdefault(each.labels.get(_KIND, ""), {})
        of_kind[each.labels.get("__name__", "")] = int(each.value)
    return found


async def _count(prometheus: Prometheus, query: str) -> int:
    result = await prometheus.query(query)
    return int(result.samples[0].value) if result.samples else 0
