"""Parts of diagnosis sentences: names, queries and lists, each of bounded length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rules import promql
from rules.kinds import NAMESPACES, NODES, PODS, GroupResource
from rules.query.catalog import Series
from rules.query.label_binding import LabelBinding
from rules.query.plan import Plan
from rules.quoting import counted, listed, quote, shorten

_MAX_LENGTH = 200
_MAX_LABELS = 20
_SINGULAR = {PODS: "pod", NODES: "node", NAMESPACES: "namespace"}

MATCHED = "Write <<.Series>>{<<.LabelMatchers>>}"
"""What to do with a query that ignores the selector of a request."""


def printable(text: str) -> str:
    """Return a name for a sentence: truncated, and quoted if empty, unprintable or with blanks."""
    short = truncate(text)
    return short if short and short.isprintable() and " " not in short else quote(short)


def truncate(text: str) -> str:
    """Return at most 200 characters of `text`."""
    return shorten(text, _MAX_LENGTH)


def names(all_names: Iterable[str]) -> str:
    """Return `a, b, c and 5 more`."""
    return listed(map(printable, all_names))


def labels(all_names: Iterable[str]) -> str:
    """Return the names of labels, of which the reader has to choose: at most 20."""
    return listed(map(printable, all_names), most=_MAX_LABELS)


def series(all_series: Sequence[Series]) -> str:
    """Return `gpu_util`, or `gpu_util and 2 more names`."""
    first = printable(all_series[0].name)
    more = len(all_series) - 1
    return f"{first} and {counted(more, 'more name')}" if more else first


def code(promql_text: str) -> str:
    """Return PromQL on one line, in backquotes."""
    return f"`{truncate(' '.join(promql_text.split()))}`"


def age(moment: float, now: float) -> str:
    """Return `1m5s`; both times are in seconds."""
    minutes, seconds = divmod(max(0, int(now - moment)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


def did_you_mean(suggestions: Iterable[str]) -> str:
    """Return `; did you mean a, b?`, or nothing without suggestions."""
    names = ", ".join(suggestions)
    return f"; did you mean {names}?" if names else ""


def any_object(resource: GroupResource) -> str:
    """Return `pod`, or `object of widgets.example.com`."""
    return _SINGULAR.get(resource, f"object of {resource}")


def objects(resource: GroupResource, all_names: Sequence[str], namespace: str) -> str:
    """Return `pod a in namespace default`, `pods a, b`, or `widgets.example.com a`."""
    place = f" in namespace {printable(namespace)}" if namespace else ""
    noun = _SINGULAR.get(resource, str(resource)) if len(all_names) == 1 else str(resource)
    return f"{noun} {names(all_names)}{place}"


def matchers(plan: Plan, binding: LabelBinding) -> str:
    """Return what a plan matches series by: `label pod, ns="default", model=x`."""
    parts = [f"label {promql.label(binding.resource)}"]
    if plan.namespace:
        parts.append(promql.matcher(binding.namespace, "=", plan.namespace))
    parts += [truncate(str(requirement)) for requirement in plan.selector.requirements]
    return ", ".join(parts)
