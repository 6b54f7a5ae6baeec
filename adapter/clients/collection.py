"""Paths and parameters of the lists and watches of a kind."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping

from rules.kinds import PODS, Kind

_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


def path(kind: Kind, namespace: str = "") -> str:
    """Return the path of a kind's collection: of a namespace, or of the whole cluster."""
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    if kind.namespaced and namespace:
        root = f"{root}/namespaces/{urllib.parse.quote(namespace, safe='')}"
    return f"{root}/{kind.resource}"


def params(kind: Kind, *, name: str = "", labels: str = "") -> Mapping[str, str]:
    """Return the field selector that leaves out finished pods, and objects not called `name`.

    To a watch with this selector, a pod that finishes is deleted. `labels` is a label selector.
    """
    terms = ([named(name)] if name else []) + ([_UNFINISHED] if kind.group_resource == PODS else [])
    return {
        **({"fieldSelector": ",".join(terms)} if terms else {}),
        **({"labelSelector": labels} if labels else {}),
    }


def named(name: str) -> str:
    """Return the field selector for one object.

    The value is escaped like k8s.io/apimachinery/pkg/fields.EscapeValue.
    """
    escaped = name.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
    return f"metadata.name={escaped}"
