"""What the adapter knows in a test without servers: rules, the series of their relists, the rest.

    gpu = world.generation(RULES, "gpu_util ns pod", world.listing("queue ns", "depth ns"))
    gpu.catalog.entry(PODS, "gpu_util")
    gpu.inventory(now=100.0)

A real Prometheus is the fixture `empty_prometheus`; the router on a socket, with fakes of objects,
values and causes, is in `tests.adapter.wired`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from adapter.server.series import generation as generations
from adapter.server.series.generation import Generation
from rules import ruleset
from rules.causes.candidates import ListingStatus
from rules.kinds import PODS, ApiGroup, ApiResource, GroupResource, Kinds
from rules.query import plan
from rules.query.catalog import Listing, Series
from rules.query.label_binding import LabelBinding
from rules.query.plan import ExternalPlan, Plan
from rules.ruleset import RuleSet
from rules.selectors import selectors

_NONE: Mapping[Any, Any] = MappingProxyType({})
LISTED = ListingStatus(listed=0.0, failed=False)


def load(text: str) -> RuleSet:
    """Return the rules of a file."""
    return ruleset.load([("rules.yaml", text)])


def file_of(*rules: str, external: Iterable[str] = ()) -> str:
    """Return a rules file; each rule is given as the text of its mapping."""
    sections = {"rules": rules, "externalRules": tuple(external)}
    lines = []
    for section, texts in sections.items():
        lines += [f"{section}:"] if texts else []
        for text in texts:
            lines += ["-", textwrap.indent(text.strip("\n"), "  ")]
    return "\n".join(lines)


def group(name: str, *resources: str) -> ApiGroup:
    """Return an API group; each resource is written `widgets Widget`, or `widgets Widget*`.

    The star means that it is cluster-scoped.
    """
    split = [each.split() for each in resources]
    found = tuple(
        ApiResource(name=plural, kind=kind.rstrip("*"), namespaced=not kind.endswith("*"))
        for plural, kind in split
    )
    return ApiGroup(name=name, versions=("v1",), preferred="v1", resources={"v1": found})


def listing(
    *series: str, live: Mapping[tuple[str, GroupResource], tuple[LabelBinding, ...]] = _NONE
) -> Listing:
    """Return the result of a relist; each series is written `name label label`."""
    split = [each.split() for each in series]
    return Listing(
        series=tuple(Series(name=name, labels=frozenset(labels)) for name, *labels in split),
        live=live,
    )


def generation(
    rules: str | RuleSet,
    *listings: str | Listing | None,
    kinds: Kinds | None = None,
    statuses: Sequence[ListingStatus] = (),
) -> Generation:
    """Return what follows from rules and their relists.

    `listings` belong to the rules in their order, the external ones last; None is a rule before
    its first relist, and so are the rules that have none. A text is one series. `statuses` belong
    to the rules in their order, too; a rule with a listing is LISTED.
    """
    loaded = load(rules) if isinstance(rules, str) else rules
    found = {
        rule.index: listing(each) if isinstance(each, str) else each
        for rule, each in zip(loaded.all, listings, strict=False)
        if each is not None
    }
    given = zip((rule.index for rule in loaded.all), statuses, strict=False)
    known = {**dict.fromkeys(found, LISTED), **dict(given)}
    return generations.build(loaded, found, known, kinds or Kinds.builtin())


def pods_plan(
    rules: str | RuleSet,
    metric: str,
    names: Iterable[str],
    *listings: str | Listing | None,
    namespace: str = "default",
    selector: str = "",
) -> Plan:
    """Return what is queried for a metric of pods."""
    entry = generation(rules, *listings).catalog.entry(PODS, metric)
    assert entry is not None
    parsed = selectors.parse(selector)
    return plan.custom(entry, namespace=namespace, names=tuple(names), selector=parsed)


def external_plan(
    rules: str | RuleSet,
    metric: str,
    *listings: str | Listing | None,
    namespace: str = "default",
    selector: str = "",
) -> ExternalPlan:
    """Return what is queried for an external metric."""
    entry = generation(rules, *listings).catalog.external[metric]
    return plan.external(entry, namespace=namespace, selector=selectors.parse(selector))
