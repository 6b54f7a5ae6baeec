"""Compiles `resources`: the resource that a label names, and the labels to query for a resource.

The two may differ: with the template `kube_<<.Resource>>` the label `kube_pods` associates a series
with pods, and queries use `kube_pod`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rules import patterns, template
from rules.document import config
from rules.errors import MappingError, PatternError, TemplateExecError, UnknownResourceError
from rules.kinds import GroupResource, Kinds

_SHAPE = {"Group": "(?P<group>.+?)", "Resource": "(?P<resource>.+?)"}
_GROUP_IN_LABEL = str.maketrans(".-", "__")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelTemplate:
    """`resources.template`, compiled."""

    parsed: template.Template
    shape: patterns.Pattern
    """Matches the labels that the template renders; groups `resource` and, optionally, `group`."""

    def read(self, label: str) -> GroupResource | None:
        """Return the resource that a label names, as it is spelled; None if it does not match."""
        match = self.shape.search(label)
        if not match:
            return None
        groups = dict(zip(self.shape.names, match[1:], strict=True))
        return GroupResource(groups.get("group") or "", groups["resource"] or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelMapping:
    """`resources`, compiled; `bind` resolves its resources in a cluster."""

    overrides: tuple[config.Override, ...]
    template: LabelTemplate | None

    def bind(self, kinds: Kinds) -> BoundMapping:
        """Resolve the overrides. Never raises: `BoundMapping.unknown` has those that fail."""
        unknown: list[config.Override] = []
        overridden: dict[str, GroupResource | None] = {}
        labels: dict[GroupResource, tuple[str, ...]] = {}
        for override in self.overrides:
            kind = kinds.find(override.resource, override.group)
            # Without a kind, the template must not associate the label with another resource.
            overridden[override.label] = kind.group_resource if kind else None
            if kind is None:
                unknown.append(override)
            else:
                resource = kind.group_resource
                labels[resource] = (*labels.get(resource, ()), override.label)
        return BoundMapping(
            unknown=tuple(unknown),
            _kinds=kinds,
            _template=self.template,
            _resources=overridden,
            _labels=labels,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoundMapping:
    """A label mapping with its resources resolved in one cluster."""

    unknown: tuple[config.Override, ...]
    """Overrides whose resource the cluster does not have; they have no effect."""
    _kinds: Kinds
    _template: LabelTemplate | None
    _resources: dict[str, GroupResource | None]
    """Label -> resource: the overrides, and a cache of what the template reads."""
    _labels: dict[GroupResource, tuple[str, ...]]
    """Resource -> labels: the overrides, and a cache of what the template renders."""

    def associations(self, labels: Iterable[str]) -> dict[GroupResource, tuple[str, ...]]:
        """Return the resources of a series with these label names, and the labels to query each by.

        Sorted by resource. The labels are those of `self.labels` that the series carries, else the
        first of them.
        """
        names = frozenset(labels)
        carried: dict[GroupResource, tuple[str, ...]] = {}
        for resource in sorted({each for name in names if (each := self._resource(name))}):
            candidates = self.labels(resource)
            if candidates:
                present = tuple(label for label in candidates if label in names)
                carried[resource] = present or candidates[:1]
        return carried

    def labels(self, resource: GroupResource) -> tuple[str, ...]:
        """Return the labels of the overrides for a resource in the order of the file.

        Without one, return the label that the template renders; empty if there is none either.
        """
        if resource not in self._labels:
            label = self._render(resource)
            self._labels[resource] = (label,) if label else ()
        return self._labels[resource]

    def _resource(self, label: str) -> GroupResource | None:
        if label not in self._resources:
            spelling = self._template.read(label) if self._template else None
            kind = self._kinds.find(spelling.resource, spelling.group) if spelling else None
            self._resources[label] = kind.group_resource if kind else None
        return self._resources[label]

    def _render(self, resource: GroupResource) -> str:
        if not self._template:
            return ""
        try:
            # The original looks the singular up by the resource's name, without its group.
            singular = self._kinds.first(resource.resource).singular
            group = resource.group.translate(_GROUP_IN_LABEL)
            return self._template.parsed.render({"Group": group, "Resource": singular})
        except (UnknownResourceError, TemplateExecError):
            return ""


def compile(  # noqa: A001 (as re.compile)
    resources: config.ResourceMapping,
    budget: patterns.PatternBudget | None = None,
    *,
    share: float = 1.0,
) -> LabelMapping:
    """Compile `resources`.

    Raises TemplateSyntaxError if the template does not parse, TemplateExecError if it cannot be
    rendered, and MappingError if no label could name a resource by it.
    """
    return LabelMapping(
        overrides=resources.overrides,
        template=_label_template(resources.template, budget, share) if resources.template else None,
    )


def _label_template(
    source: str, budget: patterns.PatternBudget | None, share: float
) -> LabelTemplate:
    parsed = template.parse(source, name="resource-label", share=share)
    if unknown := parsed.unknown_fields({"Group": str, "Resource": str}):
        raise MappingError(
            f"unknown field {unknown[0].name} in the label template {source!r}: "
            "the fields are .Group and .Resource"
        )
    shape = parsed.render(_SHAPE)
    if not shape:
        raise MappingError(f"the label template {source!r} renders an empty label")
    try:
        pattern = patterns.compile(f"^{shape}$", budget)
    except PatternError as error:
        raise MappingError(
            f"the label template {source!r} does not render a regular expression: {error}"
        ) from error
    if "resource" not in pattern.names:
        raise MappingError(f"the label template {source!r} does not contain <<.Resource>>: add it")
    return LabelTemplate(parsed=parsed, shape=pattern)
