"""Which pods belong to a workload, without I/O; for `workloads` of rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapter.cluster.value_index import Item
from rules.selectors import selectors
from rules.selectors.selectors import Selector


def parse(item: Mapping[str, Any]) -> Item[Selector]:
    """Return the workload in a JSON document, with the selector of its pods.

    Raises KeyError, TypeError and AttributeError.
    """
    metadata, spec = item["metadata"], item.get("spec") or {}
    return Item(str(metadata["namespace"]), str(metadata["name"]), pod_selector(spec))


def pod_selector(spec: Mapping[str, Any]) -> Selector | None:
    """Return the selector in the `spec` of a workload; None without one, which has no pods."""
    selector = selectors.of_object(spec.get("selector"))
    return None if selector.empty else selector
