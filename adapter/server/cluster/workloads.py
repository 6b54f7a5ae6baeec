"""Which pods belong to a workload, without I/O; for `workloads` of rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapter.clients.value_index import Item
from rules import limits
from rules.limits import Limits
from rules.selectors import selectors
from rules.selectors.selectors import Selector


def parse(item: Mapping[str, Any], limits: Limits = limits.DEFAULT) -> Item[Selector]:
    """Return the workload in a JSON document, with the selector of its pods.

    Raises ValueError if that is too large, for it is matched against pods while others wait; and
    KeyError, TypeError and AttributeError.
    """
    metadata, spec = item["metadata"], item.get("spec") or {}
    selector = spec.get("selector") or {}
    expressions = selector.get("matchExpressions") or ()
    size = 2 * len(selector.get("matchLabels") or ())
    size += sum(1 + len(each.get("values") or ()) for each in expressions)
    if size > limits.workload_selector:
        raise ValueError(
            f"its selector has {size} requirements and values: use at most "
            f"{limits.workload_selector}, or --limit=workload-selector={size}"
        )
    return Item(str(metadata["namespace"]), str(metadata["name"]), pod_selector(spec))


def pod_selector(spec: Mapping[str, Any]) -> Selector | None:
    """Return the selector in the `spec` of a workload; None without one, which has no pods."""
    selector = selectors.of_object(spec.get("selector"))
    return None if selector.empty else selector
