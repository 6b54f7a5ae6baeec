"""What Kubernetes allows as a label's key and value, and what it says otherwise.

The messages are those of k8s.io/apimachinery 0.36 (pkg/api/validate/content), word for word.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
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


def _length_problems(text: str, most: int) -> list[str]:
    """Kubernetes counts bytes; a byte that was no UTF-8 counts as one."""
    too_long = len(text.encode("utf-8", "replace")) > most
    return [f"must be no more than {most} bytes"] if too_long else []


def key_problem(key: str) -> str:
    """What is wrong with a label's key, `app.kubernetes.io/name`; empty when nothing is."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return (
            f"a valid label key {_NAME_MUST}"
            " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )
    problems: list[str] = []
    if slash:
        found = _length_problems(prefix, 253) if prefix else ["must be non-empty"]
        if prefix and not _SUBDOMAIN.fullmatch(prefix):
            found.append(_SUBDOMAIN_MUST)
        problems += [f"prefix part {problem}" for problem in found]
    found = _length_problems(name, 63) if name else ["must be non-empty"]
    if not _NAME.fullmatch(name):
        found.append(_NAME_MUST)
    return "; ".join(problems + [f"name part {problem}" for problem in found])


def value_problem(value: str) -> str:
    """What is wrong with a label's value; empty when nothing is."""
    found = _length_problems(value, 63)
    if value and not _NAME.fullmatch(value):
        found.append(_VALUE_MUST)
    return "; ".join(found)
