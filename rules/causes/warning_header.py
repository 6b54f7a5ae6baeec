"""The header `Warning`, in which an answer has its first cause: rendered and parsed.

https://www.rfc-editor.org/rfc/rfc7234#section-5.5
"""

from __future__ import annotations

import functools
import re

from rules.findings import Finding
from rules.quoting import counted

NAME = "Warning"
_MAX = 1024
"""Characters of a warning. Kubernetes limits all warnings of a response to 4096."""
_HEADER = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


@functools.lru_cache(maxsize=256)
def render(causes: tuple[Finding, ...]) -> str:
    """Return the value of the header. Remembered, because a list has the same causes for long."""
    more = f" (and {counted(len(causes) - 1, 'more cause')})" if len(causes) > 1 else ""
    text = causes[0].within(_MAX).replace("…", "...") + more
    printable = "".join(each if " " <= each <= "~" else "?" for each in " ".join(text.split()))
    quoted = printable.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'


def parse(header: str) -> str:
    """Return the text of the first warning; empty without one."""
    found = _HEADER.search(header)
    return re.sub(r"\\(.)", r"\1", found[1]) if found else ""
