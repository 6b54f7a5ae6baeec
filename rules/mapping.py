"""From label names to resources and back: `resources.template` and `resources.overrides`.

A label associates a series with a resource; the label that a query uses for that resource need not
be the same one (`kube_pods` associates, `kube_pod` is queried).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rules import patterns, template
from rules.document import config
from rules.errors import MappingError, PatternError, TemplateExecError, UnknownResourceError
from rules.kinds import GroupResource, Kinds

_SHAPE = {"Group": "(?P<group>.+?)", "Resource": "(?P<resource>.+?)"}
_GROUP_IN_LABEL = str.maketrans(".-", "__")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelTemplate:
    """`resources.template`: the form of labels that name resources."""

    template: template.Template
    shape: patterns.Pattern
    """What the template renders to, with groups called `resource` and perhaps `group`."""

    def read(self, label: str) -> GroupResource | None:
        """The resource that a label spells, not yet in its normal form; None if it does not fit."""
        match = self.shape.search(label)
        if not match:
            return None
        found = dict(zip(self.shape.names, match.groups[1:], strict=True))
        return GroupResource(found.get("group") or "", found["resource"] or "")

    def label(self, group: str, singular: str) -> str:
        """The label that stands for a resource; "" where the template renders to none."""
        try:
            return self.template.render(
                {"Group": group.translate(_GROUP_IN_LABEL), "Resource": singular}
            )
        except TemplateExecError:
            return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelMapping:
    """`resources`, compiled; what its names mean is up to a cluster (`bind`)."""

    overrides: tuple[config.Override, ...]
    template: LabelTemplate | None

    def bind(self, kinds: Kinds) -> BoundMapping:
        """The mapping for a cluster of these kinds. Never fails: see `BoundMapping.unknown`."""
        unknown: list[config.Override] = []
        overridden: dict[str, GroupResource | None] = {}
        labels: dict[GroupResource, tuple[str, ...]] = {}
        for override in self.overrides:
            try:
                resource = kinds.resolve(override.resource, override.group).group_resource
            except UnknownResourceError:
                unknown.append(override)
                # The file says that this label is no other resource, whatever the template reads.
                overridden[override.label] = None
            else:
                overridden[override.label] = resource
                labels[resource] = (*labels.get(resource, ()), override.label)
        return BoundMapping(
            unknown=tuple(unknown),
            _kinds=kinds,
            _template=self.template,
            _resources=overridden,
            _overrides=labels,
            _rendered={},
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoundMapping:
    """Which labels stand for which resources of one cluster."""

    unknown: tuple[config.Override, ...]
    """Overrides for kinds that the cluster does not know: without effect until it does."""
    _kinds: Kinds
    _template: LabelTemplate | None
    _resources: dict[str, GroupResource | None]
    """Label -> resource; begins with the overrides and remembers what the template said."""
    _overrides: Mapping[GroupResource, tuple[str, ...]]
    _rendered: dict[GroupResource, str]
    """Resource -> the template's label for it, as far as it has been asked for."""

    def carried(self, labels: Iterable[str]) -> dict[GroupResource, tuple[str, ...]]:
        """The resources that a series with these label names has, and the labels to ask them by.

        Sorted by resource. Where overrides stand for the resource, the labels are those of them
        that the series carries, in the file's order (the first of all where it carries none and
        the template associates it); else the template's one label for it.
        """
        names = frozenset(labels)
        found: dict[GroupResource, tuple[str, ...]] = {}
        for resource in sorted({known for name in names if (known := self._resource(name))}):
            candidates = self.labels(resource)
            present = tuple(label for label in candidates if label in names)
            if candidates:
                found[resource] = present or candidates[:1]
        return found

    def labels(self, resource: GroupResource) -> tuple[str, ...]:
        """All labels that may stand for a resource, in order of preference; perhaps none."""
        if overrides := self._overrides.get(resource):
            return overrides
        rendered = self._rendered.get(resource)
        if rendered is None:
            rendered = self._rendered[resource] = self._render(resource)
        return (rendered,) if rendered else ()

    def _resource(self, label: str) -> GroupResource | None:
        if label not in self._resources:
            self._resources[label] = self._read(label)
        return self._resources[label]

    def _read(self, label: str) -> GroupResource | None:
        spelled = self._template.read(label) if self._template else None
        if not spelled:
            return None
        try:
            return self._kinds.resolve(spelled.resource, spelled.group).group_resource
        except UnknownResourceError:
            return None

    def _render(self, resource: GroupResource) -> str:
        if not self._template:
            return ""
        try:
            # The original asks for the singular by the resource's name alone.
            singular = self._kinds.first(resource.resource).singular
        except UnknownResourceError:
            return ""
        return self._template.label(resource.group, singular)


def compile(resources: config.ResourceMapping) -> LabelMapping:  # noqa: A001 (as re.compile)
    """Compile `resources`.

    Raises TemplateSyntaxError for a template that does not parse, TemplateExecError for one that
    cannot be rendered, and MappingError for one that cannot stand for resources.
    """
    return LabelMapping(
        overrides=resources.overrides,
        template=_label_template(resources.template) if resources.template else None,
    )


def _label_template(source: str) -> LabelTemplate:
    parsed = template.parse(source, name="resource-label")
    if unknown := parsed.unknown_fields(template.LABEL_FIELDS):
        raise MappingError(
            f"the label template {source!r} uses {unknown[0].name} at character"
            f" {unknown[0].offset + 1}; it has only .Group and .Resource"
        )
    shape = parsed.render(_SHAPE)
    if not shape:
        raise MappingError(f"the label template {source!r} renders to nothing")
    try:
        pattern = patterns.compile(f"^{shape}$")
    except PatternError as error:
        raise MappingError(
            f"the label template {source!r} cannot be matched against labels: {error}"
        ) from error
    if "resource" not in pattern.names:
        raise MappingError(
            f"the label template {source!r} does not contain <<.Resource>>, so no label could say"
            " which resource it stands for"
        )
    return LabelTemplate(template=parsed, shape=pattern)
