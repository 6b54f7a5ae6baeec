"""Bounds of what the server remembers and tracks, in one table.

`rules.limits` has the limits on what the writers of objects can make grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Bound of one cache or table."""

    size: int
    unit: Literal["bytes", "words", "entries"]
    """`words` are machine words, of 8 bytes."""
    holds: str
    """Key → value."""
    valid: str
    """How long an entry is used."""
    reason: str = ""
    """What fits in."""


_EVICTED = "until evicted"

HEADS = Bound(
    size=80 << 20,
    unit="bytes",
    holds="method, URL and headers, without `Audit-Id` and `Traceparent` → parsed head",
    valid="forever",
    reason="6 000 heads of an HPA controller",
)
USERS = Bound(
    size=80 << 20,
    unit="bytes",
    holds="head → user that the front proxy names",
    valid="until the trusted CAs change",
)
ATTRIBUTES = Bound(
    size=80 << 20, unit="bytes", holds="head and user → what is authorized", valid="forever"
)
TOKENS = Bound(
    size=4096,
    unit="entries",
    holds="digest of a token → user",
    valid="`--authentication-token-webhook-cache-ttl`",
)
DECISIONS = Bound(
    size=8 << 20,
    unit="bytes",
    holds="attributes → allowed or not",
    valid="`--authorization-webhook-cache-authorized-ttl` and `-unauthorized-ttl`",
    reason="8 192 of usual size",
)
NEGOTIATIONS = Bound(
    size=256, unit="entries", holds="Accept header → encoding", valid="forever", reason="1 MiB"
)
ANSWERS = Bound(
    size=64 << 20,
    unit="bytes",
    holds="path, selectors, form, encoding and layout → encoded answer; likewise of discovery",
    valid="as long as its evaluation, or the catalog",
    reason="6 000 autoscalers of ten pods each",
)
COMPRESSED = Bound(
    size=16 << 20, unit="bytes", holds="long body → body compressed by gzip", valid=_EVICTED
)
SHARED = Bound(
    size=500_000,
    unit="entries",
    holds="rule, series and selector → samples and requested names of shared queries",
    valid="as long as they are fresh",
    reason="150 MiB",
)
ALONE = Bound(
    size=100_000,
    unit="entries",
    holds="rule, series, selector and names → samples of single requests",
    valid="as long as they are fresh",
)
EXTERNAL = Bound(
    size=50_000,
    unit="entries",
    holds="rule, selector and namespace → samples of external metrics",
    valid="as long as they are fresh",
)
ANSWERED_NAMES = Bound(
    size=20_000,
    unit="entries",
    holds="names in the values that were made of one evaluation",
    valid="as long as the evaluation",
)
LAST_VALUES = Bound(
    size=100_000,
    unit="entries",
    holds="object and metric → last value, for `onMissing: {lastKnown: …}`",
    valid=_EVICTED,
)
HAD_VALUE = Bound(
    size=100_000,
    unit="entries",
    holds="object and metric → that it had a value, for plans of several queries",
    valid=_EVICTED,
)
SCOPES = Bound(
    size=10_000,
    unit="entries",
    holds="rule and series → which objects one query may cover",
    valid="forever",
)
REQUESTED = Bound(
    size=8192, unit="entries", holds="names of a request → when it came last", valid="120 s"
)
REQUESTED_NAMES = Bound(
    size=100_000, unit="entries", holds="names in all these requests", valid="120 s"
)
SELECTED = Bound(
    size=1 << 20,
    unit="words",
    holds="kind, namespace and label selector → names; likewise → objects",
    valid="until an object of the namespace changes",
)
LABELS = Bound(
    size=64 << 20,
    unit="bytes",
    holds="labels of all objects of a kind, equal ones of a namespace once",
    valid="while the object exists",
    reason="150 000 pods with 50 MB; beyond that, the API server matches selectors",
)
OBJECTS = Bound(
    size=200_000,
    unit="entries",
    holds="objects of one kind in a watch cache",
    valid="while the object exists",
    reason="80 MB; beyond that, each request is a list",
)
CAUSES = Bound(
    size=20_000,
    unit="entries",
    holds="plan or rule → causes from Prometheus, with names",
    valid="30 s",
)
METRIC_CAUSES = Bound(
    size=1024, unit="entries", holds="metric → causes without a plan; rule → labels", valid="30 s"
)
LOGGED_CAUSES = Bound(
    size=8192, unit="entries", holds="subject → causes that were logged", valid="until they end"
)
TEAMS = Bound(
    size=2000,
    unit="entries",
    holds="namespace → its client of Prometheus, its rate of causes, its explanations",
    valid=_EVICTED,
)

TABLE = {name.lower(): each for name, each in globals().items() if isinstance(each, Bound)}
"""Name -> bound, in the order of this file."""
