"""What `check` and `migrate` find in manifests and Helm values: rules, and flags of adapters."""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from rules.document import config, nodes
from rules.document.yaml import MappingNode, Scalar
from rules.findings import Finding, State, in_file


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesPart:
    """Rules in a manifest, or in Helm values."""

    title: str
    file: str
    line: int
    parsed: config.Parsed
    config_map: str = ""
    """Name of the ConfigMap; empty for Helm values."""
    key: str = ""
    """Key of the ConfigMap."""
    node: MappingNode = nodes.EMPTY
    """The sections as they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HelmValues:
    """Values of the prometheus-adapter chart."""

    title = "Helm values"
    file: str
    path: str
    """Where they are in the values of a parent chart; empty without one."""
    node: MappingNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A Kubernetes object in a file."""

    file: str
    node: MappingNode

    @property
    def title(self) -> str:
        """Kind, namespace and name of the object."""
        return nodes.title(self.node)

    @property
    def kind(self) -> str:
        """The kind of the object."""
        return nodes.text(self.node, "kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Arguments of an adapter in the manifest of a workload, or in Helm values."""

    title: str
    file: str
    line: int
    arguments: tuple[Scalar, ...]
    """Without the program's name; `$(NAME)` is replaced where the manifest has the value."""
    mounts: Mapping[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)
    """Directory -> name of the ConfigMap that is mounted there, and its files and their keys."""
    workload: MappingNode = nodes.EMPTY
    """The manifest; empty for Helm values."""
    container: MappingNode = nodes.EMPTY

    def problem(self, argument: str, fact: str) -> Finding:
        """Return an error about an argument, which may be a flag without its value."""
        name = argument.partition("=")[0]
        at = next((each for each in self.arguments if each.text.startswith(name)), None)
        line, column = (at.line, at.column) if at else (self.line, 0)
        return in_file(State.FAILURE, fact, path=argument, file=self.file, line=line, column=column)

    def key_of(self, path: str) -> tuple[str, str] | None:
        """Return the ConfigMap and the key that are mounted as `path`; None if none is known."""
        directory, name = posixpath.split(posixpath.normpath(path))
        if directory not in self.mounts:
            return None
        config_map, keys = self.mounts[directory]
        return config_map, keys.get(name, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaTarget:
    """The target of one custom or external metric of an HPA."""

    title: str
    """The HPA."""
    metric: str
    external: bool
    type: str
    """As written: Value or AverageValue."""
    averaged: bool
    """Whether `value` is that of averageValue, which the controller then takes."""
    value: str
    """Empty if the target has neither value nor averageValue."""
    selects: bool
    """Whether the metric has a selector."""
    file: str
    line: int

    def problem(self, state: State, message: str) -> Finding:
        """Return an error or a warning about the target."""
        message = f"{self.title}: {message}"
        return in_file(state, message, file=self.file, line=self.line)

    def warning(self, message: str) -> Finding:
        """Return a warning about the target."""
        return self.problem(State.WARNING, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the documents of one file contain."""

    rules: tuple[RulesPart, ...] = ()
    arguments: tuple[Arguments, ...] = ()
    config_maps: tuple[tuple[str, frozenset[str]], ...] = ()
    """Each ConfigMap with its keys."""
    targets: tuple[HpaTarget, ...] = ()
    values: tuple[HelmValues, ...] = ()
    manifests: tuple[Manifest, ...] = ()
    """Every object, whether something was found in it or not."""
    problems: tuple[Finding, ...] = ()


def merged(parts: Iterable[Found]) -> Found:
    """Return everything that was found in the parts."""
    every = tuple(parts)
    return Found(
        **{
            each.name: tuple(itertools.chain.from_iterable(getattr(p, each.name) for p in every))
            for each in fields(Found)
        }
    )
