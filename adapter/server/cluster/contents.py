"""What the watch caches of the server keep of objects: labels, readiness, selectors of pods.

`clients.watch_cache` lists and watches them.
"""

from __future__ import annotations

import functools

from adapter.clients.value_index import ValueIndex
from adapter.clients.watch_cache import Content
from adapter.server.cluster import object_index, ready_index, workloads
from adapter.server.cluster.object_index import ObjectIndex
from rules import limits
from rules.limits import Limits
from rules.selectors.selectors import Selector

OBJECTS: Content[ObjectIndex] = Content(
    index=ObjectIndex, parse=object_index.parse, metadata_only=True
)
"""What selectors need of each object."""
READY_PODS: Content[ValueIndex[float]] = Content(
    index=ValueIndex, parse=ready_index.parse, metadata_only=False, suffix="/status"
)
"""What `minPodAge` of rules needs of each pod."""


def pod_selectors(limits: Limits = limits.DEFAULT) -> Content[ValueIndex[Selector]]:
    """Return what `workloads` of rules needs of each workload."""
    return Content(
        index=ValueIndex,
        parse=functools.partial(workloads.parse, limits=limits),
        metadata_only=False,
        suffix="/spec",
    )
