"""Parts of sentences about rules and what was found of them, each of a bounded length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rules import promql, quantity
from rules.query.catalog import Series
from rules.query.label_binding import LabelBinding
from rules.query.plan import Plan, Step
from rules.quoting import quote
from rules.ruleset import CompiledRule

_LONGEST = 200
_MOST = 20


def place(rule: CompiledRule) -> str:
    """Where a rule stands: `rules[3] (rules.yaml:12)`."""
    where = rule.config.where
    line, _ = where.positions.get("", (0, 0))
    file = ":".join(str(part) for part in (where.file, line) if part)
    path = where.path or f"{rule.section}[{rule.index}]"
    return f"{path} ({file})" if file else path


def shown(text: str) -> str:
    """A name as it is, in quotes where it would be mistaken for something else; cut if long."""
    short = cut(text)
    return short if short and short.isprintable() and " " not in short else quote(short)


def cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def listed(names: Iterable[str]) -> str:
    """`a, b, c`; of very many the first."""
    every = tuple(names)
    first = ", ".join(shown(name) for name in every[:_MOST])
    return f"{first} and {len(every) - _MOST} more" if len(every) > _MOST else first


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def series(found: Sequence[Series]) -> str:
    """`gpu_util`; of several the first, and how many more."""
    first = shown(found[0].name)
    more = len(found) - 1
    return f"{first} and {counted(more, 'more name')}" if more else first


def selector(rule: CompiledRule) -> str:
    """The `seriesQuery` of a rule, on one line."""
    return f"`{cut(' '.join(rule.config.series_query.split()))}`"


def query(step: Step) -> str:
    """The query of a step, on one line."""
    return f"`{cut(' '.join(step.promql.split()))}`"


def since(moment: float, now: float) -> str:
    """`1m5s ago`."""
    seconds = max(0, int(now - moment))
    return f"{quantity.format_go_duration(seconds * 10**9)} ago"


def question(names: Iterable[str]) -> str:
    """`: did you mean a, b?`; nothing without names."""
    close = ", ".join(names)
    return f": did you mean {close}?" if close else ""


def objects(plan: Plan) -> str:
    """The objects that a plan asks about: `pods a, b in namespace default`."""
    space = f" in namespace {shown(plan.namespace)}" if plan.namespace else ""
    return f"{plan.resource} {listed(plan.names)}{space}"


def asked(plan: Plan, binding: LabelBinding) -> str:
    """The labels that a plan asks by: `pod`, and `ns="default"`; the selector, if there is one."""
    parts = [f"label {promql.label(binding.resource)}"]
    if plan.namespace:
        parts.append(promql.matcher(binding.namespace, "=", plan.namespace))
    parts += [cut(str(requirement)) for requirement in plan.selector.requirements]
    return ", ".join(parts)
