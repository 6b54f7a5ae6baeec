"""Lists and watches of a kind: their paths and parameters, and the objects in them one by one.

What one object contains cannot harm the others. One without a name is the fault of the server, not
of who wrote the object: the caller reports the response as broken.
"""

from __future__ import annotations

import logging
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from rules.kinds import PODS, Kind
from rules.quoting import shorten

_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


def path(kind: Kind, namespace: str = "") -> str:
    """Return the path of a kind's collection: of a namespace, or of the whole cluster."""
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    if kind.namespaced and namespace:
        root = f"{root}/namespaces/{urllib.parse.quote(namespace, safe='')}"
    return f"{root}/{kind.resource}"


def params(kind: Kind, *, name: str = "", labels: str = "", fields: str = "") -> Mapping[str, str]:
    """Return the field selector that leaves out finished pods, and objects not called `name`.

    To a watch with this selector, a pod that finishes is deleted. `labels` is a label selector,
    `fields` another field selector.
    """
    unfinished = _UNFINISHED if kind.group_resource == PODS else ""
    terms = [*filter(None, (named(name) if name else "", unfinished, fields))]
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


log = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_PROBLEM = 200
"""Characters that are kept of the message of an exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """An object whose document cannot be read; it is as if it did not exist."""

    namespace: str
    name: str
    problem: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}".removeprefix("/")


def read(item: Any, extract: Callable[[Any], T]) -> T | Unreadable:
    """Return `extract(item)`, or the name of the object if that fails, whatever it raises.

    Raises AttributeError, KeyError or TypeError for an item that is no object.
    """
    found = attempt(item, extract)
    if not isinstance(found, Exception):
        return found
    metadata = item["metadata"]
    return Unreadable(
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata["name"]),
        problem=shorten(f"{type(found).__name__}: {found}", _MAX_PROBLEM),
    )


def attempt(item: Any, extract: Callable[[Any], T]) -> T | Exception:
    """Return `extract(item)`, or the exception that it raises, of whatever class."""
    try:
        return extract(item)
    except Exception as error:  # noqa: BLE001 (a defect that one object meets ends nothing else)
        return error


def log_unreadable(path: str, found: Unreadable) -> None:
    """Log that an object of the collection at `path` is left out."""
    log.warning("%s: %s cannot be read and is left out: %s", path, found, found.problem)
