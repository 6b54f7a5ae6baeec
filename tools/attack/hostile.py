"""Hostile objects that the role `edit` in one namespace allows, and the attacks with them.

Pure: `tools.attack.backends` serves the objects of CASES, and `tools.attack.floods` requests their
metrics. `tools.attack.objects` creates others in a real cluster from the same parts.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tools import documents
from tools.documents import Document

HOSTILE = "hostile"
"""The namespace of the attacker."""
SELECTOR = "gpu-metrics-adapter/rules=team"
QUERY = "max by (<<.GroupBy>>) (<<.Series>>{<<.LabelMatchers>>})"
BOTH = {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}
SLOW, LARGE = "hostile_slow", "hostile_large"
"""Series whose queries Prometheus answers after a minute, or with 14 MB."""
_NEW = "2026-11-01T00:00:00Z"


@dataclass(frozen=True, kw_only=True)
class Case:
    """An attack: objects that exist, and what is done meanwhile."""

    what: str
    objects: Callable[[], Iterable[Document]]
    requested: Sequence[str] = ()
    """Paths below a group's namespace that HPAs of the namespace need, which they request."""
    external: bool = False
    """Whether they are external metrics."""
    clients: int = 4
    seconds: float = 5.0
    """Of each of the two floods. A rule has metrics after 1 to 3 s, and slow queries fail later."""
    changing: bool = False
    """Whether the objects change all the time."""
    fallback: bool = False
    """Whether there is another server of external metrics."""


def rule(series: str = "hostile_load", query: str = QUERY, **fields: object) -> Document:
    """Return a rule; `fields` are further keys."""
    return {"seriesQuery": series, "resources": {"overrides": BOTH}, "metricsQuery": query} | fields


def config_map(
    name: str, *rules: Document, namespace: str = HOSTILE, text: str = "", created: str = _NEW
) -> Document:
    """Return a ConfigMap with these rules, or with this text."""
    data = {"rules.yaml": text or json.dumps({"rules": rules}, ensure_ascii=False)}
    document = _existing(documents.new("v1", "ConfigMap", name, namespace, data=data), created)
    document["metadata"]["labels"] = dict((SELECTOR.split("="),))
    return document


def hpa(name: str, metrics: Iterable[Document], *, namespace: str = HOSTILE) -> Document:
    """Return an HPA with these metrics."""
    return _existing(documents.hpa(name, *metrics, target="web", namespace=namespace))


def external(name: str) -> Document:
    """Return an External metric of an HPA."""
    return documents.external_metric(name, "1", kind="Value")


def _existing(document: Document, created: str = _NEW) -> Document:
    """Add what the API server adds to an object."""
    metadata = document["metadata"]
    uid = f"{metadata['namespace']}-{metadata['name']}"
    metadata |= {"uid": uid, "resourceVersion": "1", "creationTimestamp": created}
    return document


def nested(depth: int) -> Document:
    """Return a rule whose query has so many calls within each other."""
    return rule(query="abs(" * depth + QUERY + ")" * depth)


def operands(number: int) -> Document:
    """Return a rule whose query is a sum of so many operands."""
    return rule(query="+".join(["a"] * number))


def joined(number: int) -> Document:
    """Return a rule whose query has so many selectors."""
    return rule(query=" or ".join([QUERY] * number))


def overrides(number: int) -> Document:
    """Return a rule with so many labels for namespaces, and as many for pods."""
    labels = {
        f"{kind[0]}{index}": {"resource": kind}
        for kind in ("namespace", "pod")
        for index in range(number)
    }
    return rule(resources={"overrides": labels})


def renamed(name: int, references: int) -> Document:
    """Return a rule that replaces a name of `name` characters by as many copies of it."""
    return rule("h" * name, name={"matches": ".*", "as": "$0" * references})


def filters(number: int, *, pattern: str = r"\pL{900}") -> Document:
    """Return a rule with so many filters."""
    return rule(
        '{__name__=~"hostile_.*"}', seriesFilters=[{"is": f"{pattern}{i}"} for i in range(number)]
    )


def unknown_fields(number: int) -> Document:
    """Return a rule whose template has so many fields that do not exist."""
    return rule(query="<<.X>>" * number)


def rendered(number: int) -> Document:
    """Return a rule whose template renders the matchers of a request so many times."""
    return rule(query=" or ".join(["a{<<.LabelMatchers>>}"] * number))


def _one(*rules: Document) -> Callable[[], Iterator[Document]]:
    return lambda: (config_map(f"rules-{number}", each) for number, each in enumerate(rules))


def _many(number: int, make: Callable[[int], Document]) -> Callable[[], Iterator[Document]]:
    return lambda: map(make, range(number))


_LARGE_TEXT = "x" * 1_000_000
_REFUSED_TEXT = "rules: [" + "x, " * 990
_METRICS = [external(f"m{number}") for number in range(13_500)]
_OLD = "2020-01-01T00:00:00Z"

CASES: Mapping[str, Case] = {
    "nested_calls": Case(what="a query of 600 calls within each other", objects=_one(nested(600))),
    "operands": Case(what="a query of 200 operands a+a+…", objects=_one(operands(200))),
    "joined_selectors": Case(what="a query of 100 selectors", objects=_one(joined(100))),
    "overrides": Case(what="500 + 500 overrides in a rule", objects=_one(overrides(500))),
    "long_names": Case(
        what="a name of 32 000 characters that 16 000 copies replace",
        objects=_one(renamed(32_000, 16_000)),
    ),
    "patterns": Case(what=r"100 filters \pL{900}", objects=_one(filters(100))),
    "unknown_fields": Case(
        what="a template with 9 000 unknown fields", objects=_one(unknown_fields(9_000))
    ),
    "rendered_text": Case(
        what="a template that renders 0.9 MB, requested by 4 clients",
        objects=_one(rendered(2_500)),
        requested=("pods/*/hostile_load",),
        seconds=10.0,
    ),
    "large_config_maps": Case(
        what="400 labelled ConfigMaps of 1 MB",
        objects=_many(400, lambda number: config_map(f"rules-{number}", text=_LARGE_TEXT)),
    ),
    "refused_config_maps": Case(
        what="3 000 refused ConfigMaps of 3 kB",
        objects=_many(
            3_000, lambda number: config_map(f"rules-{number}", text=f"{_REFUSED_TEXT}# {number}")
        ),
    ),
    "autoscalers": Case(
        what="24 HPAs with 13 500 External metrics each",
        seconds=12.0,  # the first look at HPAs comes after 5 s
        objects=_many(24, lambda number: hpa(f"hpa-{number}", _METRICS)),
    ),
    "slow_queries": Case(
        what="60 slow queries of a team, requested by 60 clients",
        objects=_many(60, lambda number: config_map(f"rules-{number}", rule(f"{SLOW}_{number}"))),
        requested=[f"pods/*/{SLOW}_{number}" for number in range(60)],
        clients=60,
        seconds=10.0,
    ),
    "large_answers_of_a_team": Case(
        what="answers of 14 MB to a team's queries, requested by 8 clients",
        objects=_many(8, lambda number: config_map(f"rules-{number}", rule(f"{LARGE}_{number}"))),
        requested=[f"pods/*/{LARGE}_{number}" for number in range(8)],
        clients=8,
        seconds=10.0,
    ),
    "changing_config_maps": Case(
        what="100 ConfigMaps of which one changes every 10 ms",
        objects=_many(
            100, lambda number: config_map(f"rules-{number}", rule(f"hostile_load_{number}"))
        ),
        changing=True,
    ),
    "fallback_answers": Case(
        what="answers of 57 MB by the other server of external metrics, to 8 clients",
        objects=tuple,
        requested=("jobs",),
        external=True,
        clients=8,
        fallback=True,
    ),
    "used_up_rules": Case(
        what="1 200 rules of one namespace that are older than all others",
        objects=_many(
            1_200,
            lambda number: config_map(
                f"rules-{number}", rule(f"hostile_load_{number}"), created=_OLD
            ),
        ),
    ),
}


def paths(case: Case) -> Iterator[str]:
    """Yield the paths that the clients of a case request, without end."""
    group = "external.metrics.k8s.io/v1beta1" if case.external else "custom.metrics.k8s.io/v1beta2"
    for each in itertools.cycle(case.requested):
        yield f"/apis/{group}/namespaces/{HOSTILE}/{each}"
