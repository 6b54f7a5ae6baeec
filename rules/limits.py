"""Limits of what somebody can make grow who may write objects in one namespace: one table.

Each limit is a count, so that every replica decides the same. `--limit=NAME=VALUE` sets another
value; docs/security.md shows the table. The limits of all namespaces are divided so that none of
them can use up what belongs to others: replicas with the same objects decide the same, in whatever
order they saw them.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

_TEXT = "limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One row of the table."""

    name: str
    """As in `--limit=NAME=VALUE`."""
    value: int
    unit: str
    what: str
    beyond: str
    """What happens to an object that exceeds it."""


def _limit(value: int, unit: str, what: str, beyond: str) -> int:
    return field(default=value, metadata={_TEXT: (unit, what, beyond)})


HPA_TEXT = 256
"""Bytes of the metrics of an HPA, as JSON, that count at least as one metric."""
_REFUSED = "the ConfigMap is refused"
_SHARED = "the youngest beyond their namespace's share are refused"
_WAIT = "further requests wait"
_SCRAPE = "the scrape fails"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits in force; the defaults leave room for all rules that are known from practice."""

    team_config_maps: int = _limit(100, "ConfigMaps", "one namespace", "the youngest are refused")
    team_config_maps_all: int = _limit(5_000, "ConfigMaps", "all namespaces together", _SHARED)
    team_text: int = _limit(64 << 10, "characters", "the rules files of one ConfigMap", _REFUSED)
    team_text_all: int = _limit(
        32 << 20, "characters", "the rules files of all namespaces together", _SHARED
    )
    team_rules: int = _limit(100, "rules", "one namespace", "the youngest ConfigMaps are refused")
    team_rules_all: int = _limit(1_000, "rules", "all namespaces together", _SHARED)
    team_values: int = _limit(20_000, "values", "one file, aliases expanded", _REFUSED)
    team_series: int = _limit(
        100, "names", "series that one rule selects", "the rule has no metrics"
    )
    team_names: int = _limit(
        1_000, "names", "series that a relist of one rule finds", "the other names are ignored"
    )
    team_overrides: int = _limit(50, "overrides", "`resources` of one rule", _REFUSED)
    team_filters: int = _limit(20, "entries", "`seriesFilters` of one rule", _REFUSED)
    team_pattern: int = _limit(500, "characters", "one regular expression", _REFUSED)
    team_pattern_memory: int = _limit(
        4 << 20, "bytes", "the compiled regular expressions of one namespace", _REFUSED
    )
    team_pattern_memory_all: int = _limit(
        64 << 20, "bytes", "the compiled regular expressions of all namespaces together", _SHARED
    )
    team_name: int = _limit(200, "characters", "`name.as` of one rule", _REFUSED)
    team_metric_name: int = _limit(
        250, "characters", "the name of one metric", "the metric does not exist"
    )
    team_template_actions: int = _limit(200, "actions", "one template", _REFUSED)
    team_template_steps: int = _limit(2_000, "steps", "one rendering", "the request fails")
    team_query: int = _limit(
        16 << 10,
        "characters",
        "`seriesQuery`, and one query without the names of its request",
        "the ConfigMap or the request is refused",
    )
    team_query_depth: int = _limit(
        50,
        "levels",
        "nested operators, functions and parentheses in one query",
        "the ConfigMap or the request is refused",
    )
    team_requests: int = _limit(1, "at a time", "requests to Prometheus for one namespace", _WAIT)
    team_requests_all: int = _limit(
        12,
        "at a time",
        "requests to Prometheus for all namespaces together",
        f"{_WAIT}, each namespace in turn",
    )
    team_response: int = _limit(
        4 << 20, "bytes", "one response of Prometheus, decompressed", "the request fails"
    )
    team_samples: int = _limit(10_000, "samples", "the result of one query", "the query fails")

    hpa_metrics: int = _limit(30, "metrics", "one HPA", "only the first ones are watched")
    hpa_metrics_all: int = _limit(
        20_000,
        "metrics",
        f"all HPAs together; each {HPA_TEXT} bytes of JSON count as a metric",
        "the youngest beyond their namespace's share are not watched",
    )
    hpa_metric_text: int = _limit(
        4 << 10, "bytes", "one metric of an HPA, as JSON", "the metric is not watched"
    )
    workload_selector: int = _limit(
        64,
        "requirements and values",
        "the pod selector of one workload",
        "rules with `workloads` have no value for it",
    )
    fallback_answer: int = _limit(
        1 << 20, "bytes", "one answer of the other server", "no more is read, and the request fails"
    )
    fallback_items: int = _limit(
        1_000, "items", "one answer of the other server", "the request fails"
    )
    fallback_requests: int = _limit(
        4, "at a time", "requests to the other server for one namespace", _WAIT
    )
    fallback_requests_all: int = _limit(
        16,
        "at a time",
        "requests to the other server for all namespaces together",
        f"{_WAIT}, each namespace in turn",
    )
    scrape_targets: int = _limit(
        20_000, "targets", "one job of `presets scrape`", "the job is not scraped"
    )
    scrape_body: int = _limit(16 << 20, "bytes", "one page, decompressed", _SCRAPE)
    scrape_samples: int = _limit(50_000, "samples", "one page", _SCRAPE)
    scrape_labels: int = _limit(100, "labels", "one series", _SCRAPE)
    scrape_label_value: int = _limit(2_048, "bytes", "the value of one label", _SCRAPE)

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            if getattr(self, each.name) < 1:
                raise ValueError(f"{name_of(each.name)}: must be 1 or more")

    def table(self) -> Iterator[Limit]:
        """Yield all limits, in the order of the table."""
        for each in dataclasses.fields(self):
            unit, what, beyond = each.metadata[_TEXT]
            yield Limit(
                name=name_of(each.name),
                value=getattr(self, each.name),
                unit=unit,
                what=what,
                beyond=beyond,
            )

    def exceeded(self, field_name: str, size: int | None = None) -> str:
        """Return the sentence for something that exceeds a limit, with the way back.

        `size` is None where the exact size is not computed.
        """
        each = next(each for each in self.table() if each.name == name_of(field_name))
        has = f"more than {each.value}" if size is None else size
        return (
            f"has {has} {each.unit}; the limit for {each.what} is {each.value}: reduce it, or "
            f"start the adapter with --limit={each.name}={size or 'NUMBER'}"
        )

    def with_values(self, values: Mapping[str, int]) -> Limits:
        """Return the limits with other values, by name. Raises ValueError."""
        known = {name_of(each.name): each.name for each in dataclasses.fields(self)}
        for name in values:
            if name not in known:
                raise ValueError(f"{name}: is not a limit; the limits are {', '.join(known)}")
        return dataclasses.replace(self, **{known[name]: value for name, value in values.items()})


def name_of(field_name: str) -> str:
    """Return the name of a limit as users write it: `team-rules`."""
    return field_name.replace("_", "-")


DEFAULT = Limits()


Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one object takes of a limit."""

    namespace: str
    name: str
    created: str
    """`metadata.creationTimestamp`: in UTC with seconds, so that its text sorts by time."""
    size: int = 1

    @property
    def key(self) -> Key:
        """Its namespace and its name."""
        return self.namespace, self.name

    @property
    def order(self) -> tuple[str, str, str]:
        """Sorts the oldest first, then by namespace and name."""
        return self.created, self.namespace, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """Which objects a limit admits, and which it does not, and why."""

    keys: frozenset[Key]
    beyond_own: frozenset[Key]
    """Exceed the limit of their namespace."""
    beyond_all: frozenset[Key]
    """Exceed the limit of all namespaces."""


def admit(claims: Iterable[Claim], *, own: int, total: int) -> Admitted:
    """Return the objects that fit: at most `own` in each namespace and `total` in all.

    An object is admitted as a whole or not at all; within a namespace the oldest come first, and
    an object that does not fit leaves room for a smaller one. Each namespace is certain of an equal
    share of `total`; what the others leave of theirs goes to the oldest objects.
    """
    ordered = sorted(claims, key=lambda each: each.order)
    used: Counter[str] = Counter()
    fitting: list[Claim] = []
    for each in ordered:
        if used[each.namespace] + each.size <= own:
            used[each.namespace] += each.size
            fitting.append(each)
    within = frozenset(each.key for each in fitting)
    beyond_own = frozenset(each.key for each in ordered) - within
    if used.total() <= total:
        return Admitted(keys=within, beyond_own=beyond_own, beyond_all=frozenset())
    shares = equal_shares(used, total)
    taken: Counter[str] = Counter()
    admitted: set[Key] = set()
    for each in fitting:
        if taken[each.namespace] + each.size <= shares[each.namespace]:
            taken[each.namespace] += each.size
            admitted.add(each.key)
    left = total - taken.total()
    for each in fitting:
        if each.key not in admitted and each.size <= left:
            left -= each.size
            admitted.add(each.key)
    keys = frozenset(admitted)
    return Admitted(keys=keys, beyond_own=beyond_own, beyond_all=within - keys)


def equal_shares(wanted: Mapping[str, int], total: int) -> Mapping[str, int]:
    """Return the largest equal shares: those who want less leave the rest to the others."""
    shares: dict[str, int] = defaultdict(int)
    waiting = sorted(wanted.items(), key=lambda each: (each[1], each[0]))
    left = total
    for number, (namespace, size) in enumerate(waiting):
        shares[namespace] = min(size, left // (len(waiting) - number))
        left -= shares[namespace]
    return shares
