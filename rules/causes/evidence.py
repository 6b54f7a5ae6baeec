"""Evidence about one step of a plan: what Prometheus returned, and the cause that follows.

Pure. `adapter.server.causes.evidence` collects it, and `explanation` shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rules.causes import questions, samples
from rules.causes.ended import Results
from rules.causes.questions import ExaminedStep
from rules.findings import Finding
from rules.query.pod_age import FirstSamples

_OF_RULE = frozenset({"answer", "compared", "present", "excluded"})
"""Keys of queries that return what the rule, or an exporter, writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Results of the queries about one step of a plan."""

    question: ExaminedStep
    queries: Mapping[str, str]
    """Key of a query -> its PromQL."""
    results: Results
    at: float
    """When the queries were answered, in Unix seconds."""
    error: str = ""
    """Why the query of the step failed, or that its response is partial."""
    cause: Finding | None = None
    """Why there is no value; None if there is one."""

    @property
    def series(self) -> int | None:
        """Number of series of the objects; None if that is unknown."""
        counted = self._number("here", 0.0 if "here" in self.results else None)
        return None if counted is None else int(counted)

    @property
    def newest(self) -> float | None:
        """Age of the newest sample of the objects, in seconds, also of a series that ended."""
        return self._number("newest age", self._since("latest", "last"))

    @property
    def oldest(self) -> float | None:
        """Age of the oldest of the last samples of the objects, in seconds."""
        return self._number("oldest age")

    @property
    def interval(self) -> float | None:
        """Seconds between samples of the objects; None if that is unknown."""
        count = self._number("steady samples")
        return questions.WINDOW / count if count else None

    @property
    def first_samples(self) -> FirstSamples | None:
        """Times of the first samples of pods; None if they were not queried or not answered."""
        since = self._number("series since")
        if since is None or "first samples" not in self.results:
            return None
        label, names = self.question.step.binding.resource, self.question.names
        found = {each.labels.get(label, ""): each.value for each in self.results["first samples"]}
        return FirstSamples(since, {pod: at for pod, at in found.items() if pod in names})

    @property
    def notes(self) -> tuple[str, ...]:
        """What is remarkable about an answer with values."""
        if self.cause is not None:
            return ()
        return tuple(samples.notes(self.question, self.results, self.at))

    def _number(self, key: str, default: float | None = None) -> float | None:
        found = self.results.get(key)
        return found[0].value if found else default

    def _since(self, *keys: str) -> float | None:
        """Return the age of the time that one of the queries returned."""
        times = (found[0].value for key in keys if (found := self.results.get(key)))
        return next((max(0.0, self.at - each) for each in times), None)


def lines(queries: Mapping[str, str], results: Results) -> Iterator[tuple[str, str]]:
    """Yield the PromQL of each query, and its result in a few words.

    Labels, and values of the rule's own query, may be of objects that the caller may not read.
    """
    for key, promql in queries.items():
        found = results.get(key)
        if found is None:
            yield promql, "failed"
        elif len(found) == 1 and not found[0].labels and key not in _OF_RULE:
            yield promql, f"{found[0].value:.15g}"
        else:
            yield promql, f"{len(found)} series" if found else "no result"
