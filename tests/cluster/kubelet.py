"""A kubelet's shadow: binds pods to nodes, says that they run, and ends them."""

from __future__ import annotations


class Kubelet:
    pods: tuple[dict[str, object], ...]
    """As last seen."""
