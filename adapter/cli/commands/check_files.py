"""Prints for `check` what is wrong with rules, and with what is read together with them."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence

from adapter import errors, settings
from adapter.cli import output
from adapter.cli.commands import check_inputs, without_log
from adapter.cli.commands.check_inputs import Inputs
from rules import ruleset
from rules.errors import ConfigError
from rules.findings import Finding, State
from rules.lint import check, check_hpas, check_sharing
from rules.quoting import counted, escaped


def run(
    sources: Sequence[settings.RulesSource],
    prometheus: settings.PrometheusSettings | None,
    *,
    form: str,
    strict: bool,
) -> int:
    """Return 0 if the server would start with the sources, else 1; print what is wrong.

    Without `prometheus`, nothing is queried. With `strict`, warnings count as errors.
    """
    try:
        inputs = check_inputs.read(sources)
    except ConfigError as error:
        return _report(error.problems, form=form, strict=strict)
    answers, findings, failed = _check(inputs, prometheus)
    found = (*inputs.problems, *findings)
    code = _report(found, form=form, strict=strict, inputs=inputs.notes, answers=answers)
    return 1 if failed else code


def _check(
    inputs: Inputs, prometheus: settings.PrometheusSettings | None
) -> tuple[Sequence[str], Sequence[Finding], bool]:
    """Return what Prometheus answers, the findings, and whether Prometheus cannot be queried."""
    try:
        loaded = ruleset.compile(inputs.parsed)
    except ConfigError as error:
        return (), error.problems, False
    findings = (
        *loaded.problems,
        *check.warnings(loaded, inputs.targets),
        *check_hpas.unproduced(inputs.targets, loaded),
        *check_sharing.notes(loaded),
    )
    if prometheus is None:
        return (), findings, False
    from adapter.cli.commands import check_live  # imports the modules of the server

    try:
        with without_log():
            lines, found = asyncio.run(check_live.report(loaded, prometheus))
    except (errors.BackendError, errors.StartError) as error:
        print(f"Prometheus cannot be queried: {escaped(str(error))}", file=sys.stderr)
        return (), findings, True
    return lines, (*findings, *found), False


def _report(
    findings: Sequence[Finding],
    *,
    form: str,
    strict: bool,
    inputs: Sequence[str] = (),
    answers: Sequence[str] = (),
) -> int:
    """Print what was read, what Prometheus answers, and the findings; return the exit code."""
    number = Counter(each.state for each in findings)
    failures, warnings = number[State.FAILURE], number[State.WARNING]
    if form in {"text", "github"}:
        for line in inputs:
            print(escaped(line))
        for line in answers:
            print(escaped(line, keep="\n"))
        for each in output.github_annotations(findings) if form == "github" else findings:
            print(each)
        print(f"{counted(failures, 'error')}, {counted(warnings, 'warning')}")
    else:
        document = {
            "errors": failures,
            "warnings": warnings,
            "inputs": list(inputs),
            "answers": list(answers),
            "findings": output.documents(findings),
        }
        output.write(document, form)
    return 1 if failures or (strict and warnings) else 0
