"""Flags for the Kubernetes cluster: its kinds and objects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from adapter.settings.flag import (
    FILE,
    NUMBER,
    FlagGroup,
    FlagType,
    duration,
    flag,
    integer,
    repeated,
)
from rules.kinds import SCALE_TARGETS, GroupResource
from rules.names import is_subdomain

N = TypeVar("N", int, float)


def _or_default(flag_type: FlagType[N], default: N) -> FlagType[N]:
    """Return a type like `flag_type` that replaces values of 0 and below with `default`."""

    def parse(text: str) -> N:
        value = flag_type.parse(text)
        return value if value > 0 else default

    return replace(flag_type, parse=parse)


def _resources(text: str) -> tuple[GroupResource, ...]:
    found = []
    for each in filter(None, map(str.strip, text.split(","))):
        resource, _, group = each.partition(".")
        if not is_subdomain(each):
            raise ValueError(f"{each!r} is not RESOURCE.GROUP, such as rollouts.argoproj.io")
        found.append(GroupResource(group, resource))
    return tuple(found)


_RESOURCES = FlagType(name="strings", parse=_resources, repeatable=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings(FlagGroup):
    """Where kinds and objects come from, and how fast the API server may be queried."""

    TITLE = "Cluster"

    kubeconfig: str | None = flag(
        "lister-kubeconfig",
        FILE,
        "Kubeconfig of the cluster whose objects are listed. Without it, the cluster that the "
        "adapter runs in.",
    )
    objects: tuple[str, ...] = flag(
        "objects",
        repeated("file", str),
        "YAML or JSON file with manifests that replace the cluster, to try rules without one. "
        "Callers are not authenticated, so the server listens on a loopback address only. "
        "Repeatable.",
    )
    discovery_interval: float = flag(
        "discovery-interval",
        _or_default(duration(), 600.0),
        "Time between two discoveries of the cluster's resource kinds; 0 means 10m. A request for "
        "an unknown kind also starts a discovery.",
        default="0s",
    )
    scale_targets: tuple[GroupResource, ...] = flag(
        "scale-targets",
        _RESOURCES,
        "Comma-separated resources (RESOURCE.GROUP) whose scale selects their pods, for HPAs and "
        "`workloads`, instead of the default ones. The adapter needs the right to get "
        "RESOURCE/scale.",
        default=", ".join(map(str, SCALE_TARGETS)),
    )
    qps: float = flag(
        "client-qps",
        _or_default(NUMBER, 5.0),
        "Maximum requests per second to the API server for watches and kinds; 0 or less means 5. "
        "Lists for kinds that cannot be watched have a limit of their own: 100, or this if it is "
        "higher; so have reviews, the Secret and the APIServices.",
        default="5",
    )
    burst: int = flag(
        "client-burst",
        _or_default(integer(), 10),
        "Requests to the API server that may exceed --client-qps at once; 0 or less means 10. "
        "For lists it is 200, or this if it is higher.",
        default="10",
    )
