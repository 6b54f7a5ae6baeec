"""Report of `doctor`, and the checks that return its findings: independent, bounded in time.

What is checked is in the other modules of this package.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from adapter import errors
from adapter.cli import output
from rules import rbac
from rules.findings import Finding, State, failure
from rules.quoting import counted, escaped

_AUTOSCALER = "autoscaler"
"""Beginning of the names of findings about autoscalers."""
_TIMEOUT = 9.0
"""Seconds for one check; all run at the same time."""
_IMPORTANT = ("apiservice ", _AUTOSCALER)
"""Beginnings of the names of findings, of which one at least must not be skipped."""


async def run(checks: Mapping[str, Awaitable[Iterable[Finding]]]) -> tuple[Finding, ...]:
    """Run the checks at the same time, and return their findings in the order of the checks.

    The name of a check is that of its findings, or their beginning.
    """
    found = await asyncio.gather(*(_run(name, check) for name, check in checks.items()))
    return tuple(finding for findings in found for finding in findings)


async def _run(name: str, check: Awaitable[Iterable[Finding]]) -> tuple[Finding, ...]:
    try:
        async with asyncio.timeout(_TIMEOUT):
            return tuple(await check)
    except TimeoutError:
        fact = f"no result within {_TIMEOUT:g} s"
        return (failure(name, fact, cure="check the network, and try again"),)
    except errors.BackendError as error:
        if error.status in rbac.STATUSES:
            return (rbac.forbidden(name, error.status, error.refusal),)
        return (failure(name, str(error), cure="see the error"),)
    except Exception as error:  # noqa: BLE001 - one response that is odd ends no other check
        fact = f"the check failed: {error!r}"
        cause = "a response is not what the Kubernetes API defines, or doctor has a bug"
        return (failure(name, fact, cause=cause, cure="report it with this line"),)


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the report as text; the last line alone names the most important fault."""
    findings = [_printable(each) for each in findings]
    for each in findings:
        yield f"{each.state:<8}{each.subject}: {each.fact}"
        if each.cause:
            yield f"          cause: {each.cause}"
        if each.cure:
            yield f"          cure: {each.cure}"
    yield _summary(findings)


def _printable(finding: Finding) -> Finding:
    """Return a finding without line breaks and control characters.

    All users who may create an autoscaler choose the text of a metric's name.
    """
    subject, fact, cause, cure = (
        escaped(" ".join(text.split()))
        for text in (finding.subject, finding.fact, finding.cause, finding.cure)
    )
    return replace(finding, subject=subject, fact=fact, cause=cause, cure=cure)


def document(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the report as a document of JSON types."""
    number = Counter(each.state for each in findings)
    return {
        "failures": number[State.FAILURE],
        "warnings": number[State.WARNING],
        "skipped": number[State.SKIPPED],
        "findings": output.documents(findings),
    }


def failed(findings: Iterable[Finding]) -> bool:
    """Return whether there is a failure."""
    return any(each.state is State.FAILURE for each in findings)


def told(findings: Iterable[Finding]) -> bool:
    """Return whether the APIServices or an autoscaler could be checked."""
    return any(
        each.subject.startswith(_IMPORTANT) and each.state is not State.SKIPPED for each in findings
    )


def _summary(findings: Sequence[Finding]) -> str:
    numbers = Counter(each.state for each in findings)
    counts = ", ".join(counted(numbers[state], state) for state in (State.FAILURE, State.WARNING))
    worst = [State.FAILURE, State.WARNING]
    if numbers[State.SKIPPED] and not numbers[State.FAILURE] and not told(findings):
        counts += f", {numbers[State.SKIPPED]} skipped: no APIService and no autoscaler was checked"
        worst = [State.SKIPPED]
    for state in worst:
        # What concerns an autoscaler comes before advice about exporters.
        ordered = findings if state is State.FAILURE else sorted(findings, key=_distance)
        for each in ordered:
            if each.state is state:
                parts = filter(None, (each.cause, each.cure))
                sentences = [f"{part[0].upper()}{part[1:]}" for part in parts]
                return ". ".join([counts, f"Begin with {each.subject}: {each.fact}", *sentences])
    return f"{counts}, {numbers[State.OK]} ok, {numbers[State.SKIPPED]} skipped"


def _distance(finding: Finding) -> int:
    """Return 0 for a finding about one autoscaler, 1 about several, 2 about anything else."""
    subject = finding.subject
    return 2 - subject.startswith(_AUTOSCALER) - subject.startswith(f"{_AUTOSCALER} ")
