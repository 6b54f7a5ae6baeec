"""Names, label keys and label values that Kubernetes accepts.

An object with another name cannot exist. The messages about labels are those of k8s.io/apimachinery
0.36 (pkg/api/validate/content), word for word.
"""

from __future__ import annotations

import re

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
MAX_NAME = 253
"""Bytes of the name of an object."""


def is_namespace(name: str) -> bool:
    """Return whether a namespace can have this name: it is a DNS label (RFC 1123)."""
    return _DNS_LABEL.fullmatch(name) is not None


def is_subdomain(name: str) -> bool:
    """Return whether objects of most kinds can have this name: a DNS subdomain (RFC 1123).

    Parts between dots may be longer than in DNS.
    https://github.com/kubernetes/apimachinery/blob/master/pkg/util/validation/validation.go
    """
    return len(name) <= MAX_NAME and _SUBDOMAIN.fullmatch(name) is not None


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
    return 0 < size <= MAX_NAME and is_path_segment(name)


_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_WORD_MUST = (
    "consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character"
)
_NAME_MUST = (
    f"must {_WORD_MUST} (e.g. 'MyName',  or 'my.name',  or '123-abc',"
    f" regex used for validation is '{_NAME.pattern}')"
)
_VALUE_MUST = (
    f"a valid label must be an empty string or {_WORD_MUST} (e.g. 'MyValue',  or 'my_value',"
    f"  or '12345', regex used for validation is '({_NAME.pattern})?')"
)
_SUBDOMAIN_MUST = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'example.com',"
    f" regex used for validation is '{_SUBDOMAIN.pattern}')"
)


def _length_problems(text: str, limit: int) -> list[str]:
    """Check the length in bytes; a byte of invalid UTF-8 counts as one."""
    too_long = len(text.encode("utf-8", "replace")) > limit
    return [f"must be no more than {limit} bytes"] if too_long else []


def key_problem(key: str) -> str:
    """Return why a label key is invalid; empty if it is valid (`app.kubernetes.io/name`)."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return (
            f"a valid label key {_NAME_MUST}"
            " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )
    of_prefix: list[str] = []
    if slash:
        of_prefix = _length_problems(prefix, 253) if prefix else ["must be non-empty"]
        if prefix and not _SUBDOMAIN.fullmatch(prefix):
            of_prefix.append(_SUBDOMAIN_MUST)
    of_name = _length_problems(name, 63) if name else ["must be non-empty"]
    if not _NAME.fullmatch(name):
        of_name.append(_NAME_MUST)
    return "; ".join(
        [f"prefix part {problem}" for problem in of_prefix]
        + [f"name part {problem}" for problem in of_name]
    )


def value_problem(value: str) -> str:
    """Return why a label value is invalid; empty if it is valid."""
    problems = _length_problems(value, 63)
    if value and not _NAME.fullmatch(value):
        problems.append(_VALUE_MUST)
    return "; ".join(problems)
