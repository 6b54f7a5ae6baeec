"""`explain hpa`: what the HorizontalPodAutoscaler controller computes now, and why."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from adapter.cli.doctor.client import NO_ANSWER, ApiClient
from rules.causes import explanation_text
from rules.errors import UnreadableError
from rules.hpa import decision, judgement, reading, report
from rules.hpa.reading import Observation
from rules.quoting import escaped

_CORRECT = "Correct namespace and name: `kubectl get hpa -A` lists them"
_CHECK = "Check its load, and --prometheus-url"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """What the controller sees of an HPA, and what it decides."""

    observed: Observation
    decided: decision.Decision
    explanations: Mapping[int, Mapping[str, Any]]
    """Explanations of the metrics without a value, by their position."""
    verdict: str
    permitted: bool
    """Whether the caller may read each metric."""

    @property
    def complete(self) -> bool:
        """Whether each metric has a value, and the last sync of the controller did not fail."""
        known = all(each.replicas is not None for each in self.observed.proposals)
        failed = self.observed.blocked or judgement.last_failure(self.observed)[0]
        return known and not failed

    def document(self) -> dict[str, Any]:
        """Return a document for clients."""
        document = report.document(self.observed, self.decided, self.verdict)
        return {**document, "explanations": list(self.explanations.values())}

    def lines(self) -> Iterator[str]:
        """Yield the lines of the text; the last is the verdict."""
        for line in _lines(self.observed, self.decided, self.explanations):
            yield escaped(line, keep="\n")
        yield explanation_text.last_line(self.verdict)


async def explain(client: ApiClient, namespace: str, name: str) -> Explained:
    """Read an HPA and what it depends on, and compute the decision. Raises UnreadableError."""
    try:
        observed = await client.run(reading.read(namespace, name, time.time))
    except UnreadableError as error:
        cure = error.cure or (_CORRECT if error.status == 404 else "")
        text = ". ".join(filter(None, (str(error), cure)))
        raise UnreadableError(text, status=error.status) from error
    observed = await client.with_queries(observed, notes=True)
    explanations = await _explanations(client, observed)
    decided = decision.decide(
        observed.hpa, observed.scale.spec, observed.proposals, now=time.time()
    )
    denied = judgement.denied(observed)
    if denied:
        low, high = observed.hpa.minimum, observed.hpa.maximum
        unknown = "a metric that you may not read"
        decided = decision.Decision(low=low, high=high, recommended=None, unknown=unknown)
    why = [
        str(each["verdict"]) for each in explanations.values() if each.get("outcome") != "values"
    ]
    return Explained(
        observed=observed,
        decided=decided,
        explanations=explanations,
        verdict=report.verdict(observed, decided, why),
        permitted=not denied,
    )


async def _explanations(client: ApiClient, observed: Observation) -> dict[int, Mapping[str, Any]]:
    """Return the explanations of the metrics without a value, by their position."""
    found: dict[int, Mapping[str, Any]] = {}
    for index, proposed in enumerate(observed.proposals):
        request = observed.requests[index]
        if proposed.replicas is not None or request is None or not request.is_explained:
            continue
        if proposed.error == NO_ANSWER:
            found[index] = {"verdict": f"{NO_ANSWER}: Prometheus hangs or is slow. {_CHECK}"}
            continue
        try:
            found[index] = await client.explanation(request)
        except UnreadableError as error:
            found[index] = {"verdict": str(error)}
    return found


def _lines(
    observed: Observation,
    decided: decision.Decision,
    explanations: Mapping[int, Mapping[str, Any]],
) -> Iterator[str]:
    for line in report.lines(observed, decided):
        text = line.lstrip()
        yield from explanation_text.wrapped(" " * (len(line) - len(text)), text)
    for index, document in explanations.items():
        if "kind" in document:
            yield f"Why metric {index + 1} has no value"
            *steps, _ = explanation_text.lines(document)
            yield from steps
