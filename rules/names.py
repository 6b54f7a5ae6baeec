"""Names that Kubernetes accepts; an object with another name cannot exist."""

from __future__ import annotations

import re

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(rf"{_DNS_LABEL.pattern}(\.{_DNS_LABEL.pattern})*")
_MAX_NAME = 253
"""Bytes."""


def is_namespace(name: str) -> bool:
    """Return whether a namespace can have this name: it is a DNS label (RFC 1123)."""
    return _DNS_LABEL.fullmatch(name) is not None


def is_subdomain(name: str) -> bool:
    """Return whether a name is a DNS subdomain (RFC 1123), which objects of most kinds need."""
    return len(name) <= _MAX_NAME and _DNS_SUBDOMAIN.fullmatch(name) is not None


def is_path_segment(name: str) -> bool:
    """Return whether a name can be one segment of a path, which the names of all objects are.

    https://github.com/kubernetes/apimachinery/blob/master/pkg/api/validation/path/name.go
    """
    return "/" not in name and "%" not in name and name not in {".", ".."}


def is_object_name(name: str) -> bool:
    """Return whether an object of some kind can have this name."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:  # bytes that are not UTF-8
        return False
    return 0 < size <= _MAX_NAME and is_path_segment(name)
