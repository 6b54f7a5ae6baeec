"""Bounds of what the server remembers and tracks, in one table: key → value, and until when.

`rules.limits` has the limits on what the writers of objects can make grow.
"""

from __future__ import annotations

HEADS = 112 << 20
"""Bytes. Method, URL and headers, without `Audit-Id` and `Traceparent` → parsed head, its user,
what is authorized and the last answer, forever. 6 000 heads of an HPA controller fit in."""
TOKENS = 4096
"""Digest of a token → user, for `--authentication-token-webhook-cache-ttl`."""
DECISIONS = 8 << 20
"""Bytes. Attributes → allowed or not, for `--authorization-webhook-cache-authorized-ttl` and
`-unauthorized-ttl`. 8 192 of usual size fit in."""
NEGOTIATIONS = 256
"""Accept header → encoding, forever. They take 1 MiB."""
ANSWERS = 64 << 20
"""Bytes. Path, selectors, form, encoding and layout → encoded answer, as long as its evaluation;
likewise of discovery, as long as the catalog. 6 000 autoscalers of ten pods each fit in."""
COMPRESSED = 16 << 20
"""Bytes. Long body → body compressed by gzip, until evicted."""
SHARED = 500_000
"""Rule, series and selector → samples and requested names of shared queries, while fresh. They
take 150 MiB."""
ALONE = 100_000
"""Rule, series, selector and names → samples of single requests, while fresh."""
EXTERNAL = 50_000
"""Rule, selector and namespace → samples of external metrics, while fresh."""
ANSWERED_NAMES = 20_000
"""Names in the values that were made of one evaluation, as long as the evaluation."""
LAST_VALUES = 100_000
"""Object and metric → last value, for `onMissing: {lastKnown: …}`, until evicted."""
HAD_VALUE = 100_000
"""Object and metric → that it had a value, for plans of several queries, until evicted."""
OUTCOME_NAMES = 200_000
"""Names in the last outcomes of requests of HPAs, at most half of them of one namespace, while an
HPA sends the request. They take 80 MB: values, and which pods were pending."""
SCOPES = 10_000
"""Rule and series → which objects one query may cover, forever."""
REQUESTED = 8192
"""Names of a request → when it came last, for 120 s."""
REQUESTED_NAMES = 100_000
"""Names in all these requests."""
SELECTED = 1 << 20
"""Machine words, of 8 bytes. Kind, namespace and label selector → names; likewise → objects; until
an object of the namespace changes."""
LABELS = 64 << 20
"""Bytes. Labels of all objects of a kind, equal ones of a namespace once. 150 000 pods have 50 MB;
beyond that, the API server matches selectors."""
OBJECTS = 200_000
"""Objects of one kind in a watch cache. They take 80 MB; beyond that, each request is a list."""
SCALES = 3000
"""Targets of HPAs, and objects of their metrics, whose scale is read → selector, for 60 s. These
are at most 50 requests per second; of more targets, each namespace has an equal share."""
FORECASTS = 200
"""Metric of a workload whose rule has `ahead` → its totals of two weeks and its forecast, while an
HPA scales by it. They take 40 MB, and Prometheus 7 short queries per second."""
CAUSES = 20_000
"""Plan or rule → causes from Prometheus, with names, for 30 s."""
METRIC_CAUSES = 1024
"""Metric → causes without a plan, for 5 s; rule and series → labels, for 60 s."""
LOGGED_CAUSES = 8192
"""Subject → causes that were logged, until they end."""
TEAMS = 2000
"""Namespace → its client of Prometheus, its rate of causes, its explanations, until evicted."""
