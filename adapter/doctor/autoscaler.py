"""`explain hpa`: what the HorizontalPodAutoscaler controller computes now, and why."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from adapter.doctor.client import CannotTellError, Client
from rules.causes import explanation_document
from rules.errors import UnreadableError
from rules.hpa import decision, reading, report
from rules.hpa.reading import Observation
from rules.quoting import escaped


async def explain(client: Client, namespace: str, name: str, *, as_json: bool) -> bool:
    """Print the explanation; return whether each metric has a value. Raises CannotTellError."""
    try:
        observed = await client.run(reading.read(namespace, name, time.time))
    except UnreadableError as error:
        advice = ". Correct namespace and name" if error.status == 404 else ""
        raise CannotTellError(f"{error}{advice}") from error
    explanations = await _explanations(client, observed)
    decided = decision.decide(
        observed.hpa, observed.scale.spec, observed.proposals, now=time.time()
    )
    why = [str(each["verdict"]) for each in explanations.values()]
    verdict = report.verdict(observed, decided, why)
    if as_json:
        document = report.document(observed, decided, verdict)
        print(json.dumps({**document, "explanations": list(explanations.values())}, indent=2))
    else:
        for line in _lines(observed, decided, explanations):
            print(escaped(line, keep="\n"))
        print(explanation_document.last_line(verdict))
    return not observed.blocked and all(each.replicas is not None for each in observed.proposals)


async def _explanations(client: Client, observed: Observation) -> dict[int, Mapping[str, Any]]:
    """Return the explanations of the metrics without a value, by their position."""
    found = {}
    for index, proposed in enumerate(observed.proposals):
        request = observed.requests[index]
        if proposed.replicas is not None or request is None or not report.explains(request):
            continue
        try:
            found[index] = await client.explanation(request)
        except CannotTellError as error:
            found[index] = {"verdict": str(error)}
    return found


def _lines(
    observed: Observation,
    decided: decision.Decision,
    explanations: Mapping[int, Mapping[str, Any]],
) -> Iterator[str]:
    for line in report.lines(observed, decided):
        text = line.lstrip()
        yield from explanation_document.wrapped(" " * (len(line) - len(text)), text)
    for index, document in explanations.items():
        if "kind" in document:
            yield f"Why metric {index + 1} has no value"
            *steps, _ = explanation_document.lines(document)
            yield from steps
