"""Explanations as documents for clients. `explanation_text` renders such documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rules.causes.explanation import MAX_LABEL, Explanation, QueryFacts, Shown
from rules.causes.explanation_text import KIND, Document
from rules.causes.samples import NOT_FINITE
from rules.query import entry_document
from rules.query.aggregate import Sample
from rules.quoting import shorten

T = TypeVar("T")

API_VERSION = "explain.gpu-metrics-adapter/v1"


def document(explanation: Explanation) -> Document:
    """Return the document. Numbers that JSON does not have are text."""
    asked = explanation.asked
    return {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "request": {
            "metric": asked.metric,
            "resource": asked.resource,
            "namespace": asked.namespace,
            "name": asked.name,
            "labelSelector": asked.selector,
            "metricLabelSelector": asked.metric_selector,
        },
        "rules": _shown(
            explanation.rules,
            lambda each: {"rule": each.rule, "taken": each.taken, "reason": each.reason},
        ),
        "objects": None if explanation.objects is None else _shown(explanation.objects, str),
        "plan": None if explanation.entry is None else entry_document.document(explanation.entry),
        "queries": [_query(each) for each in explanation.queries],
        "values": _shown(explanation.values, lambda each: {"object": each[0], "value": each[1]}),
        "causes": [
            {"reason": each.reason, "message": each.sentence} for each in explanation.causes
        ],
        "outcome": explanation.outcome,
        "verdict": explanation.verdict,
    }


def _query(query: QueryFacts) -> Document:
    return {
        "rule": query.rule,
        "source": query.source,
        "series": query.series,
        "wantedLabels": list(query.wanted_labels),
        "presentLabels": list(query.present_labels),
        "promql": query.promql,
        "scope": query.scope,
        "samples": None if query.samples is None else _shown(query.samples, _sample),
        "otherSamples": query.other_samples,
        "error": query.error,
        "seriesCount": query.series_count,
        "newestSampleSeconds": query.newest,
        "oldestSampleSeconds": query.oldest,
        "notes": list(query.notes),
        "evidence": [{"promql": text, "result": result} for text, result in query.evidence],
    }


def _sample(sample: Sample) -> Document:
    text = NOT_FINITE.get(str(sample.value))
    labels = {name: shorten(each, MAX_LABEL) for name, each in sample.labels.items()}
    return {"labels": labels, "value": sample.value if text is None else text}


def _shown(shown: Shown[T], convert: Callable[[T], Any]) -> Document:
    return {"count": shown.count, "items": [convert(each) for each in shown.items]}
