"""Check of naming.json, whole files: the rule and series that serve each metric.

One answer differs on purpose: discovery decides whether a kind is namespaced, where the original
considers three names root-scoped and everything else namespaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules import ruleset
from rules.errors import RulesError
from rules.kinds import ApiGroup, ApiResource, Kinds
from rules.query import catalog
from tests.vectors.expect import same


def kinds_of(case: Mapping[str, Any], clusters: Mapping[str, Any]) -> Kinds:
    """Return the kinds of the cluster that a case names."""
    return Kinds.of(
        ApiGroup(
            name=group["group"],
            versions=tuple(group["versions"]),
            preferred=group["preferred"],
            resources={
                version: tuple(
                    ApiResource(
                        name=resource["name"],
                        singular=resource["singularName"],
                        kind=resource["kind"],
                        namespaced=resource["namespaced"],
                    )
                    for resource in resources
                )
                for version, resources in group["resources"].items()
            },
        )
        for group in clusters[case.get("cluster", "default")]
    )


def check_config(case: Mapping[str, Any], clusters: Mapping[str, Any]) -> None:
    kinds = kinds_of(case, clusters)
    try:
        rules = ruleset.load([("config.yaml", case["config"])])
    except RulesError as error:
        if "error" not in case:
            raise AssertionError(f"expected no error\nactual   {error}") from error
        return
    every = rules.all
    if "error" in case:
        # The original refuses a file with unknown kinds; this project uses the rest of it.
        assert any(rule.mapping.bind(kinds).unknown for rule in every), f"expected {case['error']}"
        return
    listings = {
        rule.index: catalog.Listing(
            series=tuple(
                catalog.Series(name=series["name"], labels=frozenset(series["labels"]))
                for series in case["series"].get(rule.config.series_query, ())
            )
        )
        for rule in every
    }
    built = catalog.build(rules, listings, kinds)
    same(_metrics(built), _expected_metrics(case, kinds), "metrics")
    same(_external_metrics(built), _by_name(case.get("externalMetrics", ())), "externalMetrics")


def _rule_index(source: catalog.Source) -> int:
    """Return the index of a source's rule in its section."""
    path = source.rule.config.where.path
    return int(path[path.index("[") + 1 : path.index("]")])


def _metrics(built: catalog.Catalog) -> list[dict[str, Any]]:
    return [
        {
            "metric": entry.metric,
            "group": entry.resource.group,
            "resource": entry.resource.resource,
            "namespaced": entry.namespaced,
            "series": source.series,
            "rule": _rule_index(source),
        }
        for entry in built.entries
        for source in entry.sources
    ]


def _expected_metrics(case: Mapping[str, Any], kinds: Kinds) -> list[dict[str, Any]]:
    metrics = (
        {**metric, "namespaced": kinds.resolve(metric["resource"], metric["group"]).namespaced}
        for metric in case.get("metrics", ())
    )
    return sorted(metrics, key=lambda each: (each["group"], each["resource"], each["metric"]))


def _external_metrics(built: catalog.Catalog) -> list[dict[str, Any]]:
    return [
        {
            "metric": entry.metric,
            "series": entry.source.series,
            "rule": _rule_index(entry.source),
        }
        for entry in built.external.values()
    ]


def _by_name(metrics: Any) -> list[dict[str, Any]]:
    return sorted(metrics, key=lambda each: each["metric"])
