"""A rules file as typed values, each of which knows where it stands in the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from rules.errors import Problem, Severity

Aggregate = Literal["avg", "max", "min", "sum", "error"]
OnNaN = Literal["missing", "zero"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The place of a rule in its file, and of everything below it."""

    file: str = ""
    path: str = ""
    """`rules[3]`"""
    positions: Mapping[str, tuple[int, int]] = field(default_factory=lambda: MappingProxyType({}))
    """Relative path ("" for the rule itself, `name.matches`) -> line and column, from 1."""

    def problem(self, severity: Severity, path: str, message: str) -> Problem:
        """A problem at `path` below this place, or at the nearest place above it that is known."""
        known = path
        while known and known not in self.positions:
            known = known.rpartition(".")[0]
        line, column = self.positions.get(known, (0, 0))
        joined = f"{self.path}.{path}" if self.path and path else self.path or path
        return Problem(
            severity=severity, message=message, path=joined, file=self.file, line=line, column=column
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesFilter:
    """One entry of `seriesFilters`: exactly one of the two is not empty."""

    is_: str = ""
    is_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One entry of `resources.overrides`: this label holds names of that resource."""

    label: str
    group: str = ""
    resource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceMapping:
    """`resources`: how labels stand for Kubernetes resources."""

    template: str = ""
    overrides: tuple[Override, ...] = ()
    """In the file's order, which decides where several labels stand for one resource."""
    namespaced: bool | None = None
    """External rules only; None is true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameMapping:
    """`name`: how a metric's name is made of a series' name."""

    matches: str = ""
    as_: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnMissing:
    """What stands for an object that was asked for and has no sample."""

    value: float | None = None
    """A constant; None leaves the object out (`onMissing: error`)."""
    last_known: float | None = None
    """Seconds for which the object's last value may stand in; None for not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One entry of `rules` or `externalRules`."""

    series_query: str = ""
    series_filters: tuple[SeriesFilter, ...] = ()
    resources: ResourceMapping = ResourceMapping()
    name: NameMapping = NameMapping()
    metrics_query: str = ""
    aggregate: Aggregate = "avg"
    on_missing: OnMissing = OnMissing()
    on_nan: OnNaN = "missing"
    merge: bool = False
    where: Where = Where()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRule:
    """`resourceRules.cpu` or `.memory`."""

    container_query: str = ""
    node_query: str = ""
    resources: ResourceMapping = ResourceMapping()
    container_label: str = ""
    where: Where = Where()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRules:
    """`resourceRules`: the rules of metrics.k8s.io."""

    cpu: ResourceRule = ResourceRule()
    memory: ResourceRule = ResourceRule()
    window_ns: int = 0
    where: Where = Where()


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A whole file, or several in the order in which they were given."""

    rules: tuple[Rule, ...] = ()
    external_rules: tuple[Rule, ...] = ()
    resource_rules: ResourceRules | None = None
