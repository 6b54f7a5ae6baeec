"""The kinds of resource that a cluster knows, as one immutable value.

`Kinds` resolves the spellings that rules files and URLs use (singular, plural, any case, with or
without a group) to the normal form, as the original's RESTMapper does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rules import builtin_kinds
from rules.errors import UnknownResourceError


@dataclass(frozen=True, slots=True, order=True)
class GroupResource:
    """A resource in its normal form: the plural, with its API group ("" for core)."""

    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


NODES = GroupResource("", "nodes")
PODS = GroupResource("", "pods")
NAMESPACES = GroupResource("", "namespaces")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResource:
    """One entry of a version's resource list, as API discovery gives it."""

    name: str
    """The plural. Entries with a `/` are subresources, which no rule and no URL can mean."""
    singular: str = ""
    """Empty where the server leaves it out: then it is the kind in lower case."""
    kind: str
    namespaced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiGroup:
    """One group of API discovery."""

    name: str
    versions: tuple[str, ...]
    """In the order in which discovery lists them."""
    preferred: str
    resources: Mapping[str, tuple[ApiResource, ...]]
    """Version -> its resources; a version whose discovery failed is absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A resource of one version of its group."""

    group: str
    version: str
    kind: str
    resource: str
    singular: str
    namespaced: bool

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.resource)

    @property
    def api_version(self) -> str:
        """`v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version


_Index = Mapping[tuple[str, str], Kind]
"""(group, spelling in lower case) -> what it means; group "" is any group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """All kinds that a cluster serves; iterating gives those of every version, as discovered."""

    groups: tuple[ApiGroup, ...]
    _kinds: tuple[Kind, ...] = field(repr=False, compare=False)
    _preferred: _Index = field(repr=False, compare=False)
    _first: _Index = field(repr=False, compare=False)

    @classmethod
    def of(cls, groups: Iterable[ApiGroup]) -> Kinds:
        """The kinds of `groups`, which stand in discovery order."""
        known = tuple(groups)
        kinds: list[Kind] = []
        preferred: dict[tuple[str, str], tuple[_Rank, Kind]] = {}
        first: dict[tuple[str, str], Kind] = {}
        for place, group in enumerate(known):
            for version in group.versions:
                for resource in group.resources.get(version, ()):
                    if "/" in resource.name:
                        continue
                    kind = _kind(group.name, version, resource)
                    kinds.append(kind)
                    rank = _rank(place, group, version)
                    for key in {(g, s) for g in ("", kind.group) for s in _spellings(kind)}:
                        first.setdefault(key, kind)
                        if key not in preferred or rank < preferred[key][0]:
                            preferred[key] = (rank, kind)
        return cls(
            groups=known,
            _kinds=tuple(kinds),
            _preferred={key: kind for key, (_, kind) in preferred.items()},
            _first=first,
        )

    @classmethod
    def builtin(cls) -> Kinds:
        """What every cluster has, for work without one."""
        return cls.of(
            ApiGroup(
                name=name,
                versions=versions,
                preferred=versions[0],
                resources=dict.fromkeys(
                    versions,
                    tuple(
                        ApiResource(name=plural, kind=kind, namespaced=namespaced)
                        for plural, kind, namespaced in resources
                    ),
                ),
            )
            for name, versions, resources in builtin_kinds.GROUPS
        )

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds)

    def resolve(self, resource: str, group: str = "") -> Kind:
        """What `resource` (singular or plural, any case) of `group` means, as the RESTMapper says.

        A group is meant exactly, else as the beginning of one. No group is any group: core first,
        then the group that discovery lists first, in its preferred version. Raises
        UnknownResourceError. k8s.io/client-go/restmapper/discovery.go
        """
        return self._find(self._preferred, resource, group)

    def first(self, resource: str, group: str = "") -> Kind:
        """The first in discovery order that `resource` can mean: the one that `*` lists."""
        return self._find(self._first, resource, group)

    def _find(self, index: _Index, resource: str, group: str) -> Kind:
        if kind := index.get((group, resource)):
            return kind
        spelling = resource.lower()
        if kind := index.get((group, spelling)):
            return kind
        if group:
            for known in self.groups:
                if known.name.startswith(group) and (kind := index.get((known.name, spelling))):
                    return kind
        raise UnknownResourceError(
            f'the cluster knows no resource "{resource}"'
            + (f' in an API group "{group}"' if group else "")
        )


_Rank = tuple[int, int]


def _rank(place: int, group: ApiGroup, version: str) -> _Rank:
    """How far behind a version stands in the RESTMapper's order of preference."""
    if group.name == "" and version == "v1":
        return 0, 0
    return place + 1, 0 if version == group.preferred else group.versions.index(version) + 1


def _kind(group: str, version: str, resource: ApiResource) -> Kind:
    return Kind(
        group=group,
        version=version,
        kind=resource.kind,
        resource=resource.name,
        singular=resource.singular or resource.kind.lower(),
        namespaced=resource.namespaced,
    )


def _spellings(kind: Kind) -> tuple[str, str]:
    return kind.resource, kind.singular
