"""Documents of explanations as text for terminals.

`explanation_document` has the documents; clients of the adapter need only this module.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from rules import quantity
from rules.document.sources import DEFAULT
from rules.query import nature
from rules.quoting import counted, escaped

KIND = "Explanation"
"""Kind of the documents."""
WIDTH = 100
"""Columns of the text; only queries and the verdict are longer, so that they can be copied."""

Document = Mapping[str, Any]


def lines(explained: Document) -> Iterator[str]:
    """Yield the lines of a document: the steps in order, and the verdict as the last line.

    Labels are whatever an exporter writes, so control characters are escaped.
    """
    return (escaped(line, keep="\n") for line in _lines(explained))


def last_line(verdict: str) -> str:
    """Return the last line of an explanation; it stands alone, so it is one line."""
    return escaped(f"VERDICT: {' '.join(verdict.split())}")


def _lines(explained: Document) -> Iterator[str]:
    asked = explained["request"]
    objects = f" of {asked['resource']}/{asked['name']}" if asked["resource"] else ", external"
    yield from wrapped("metric    ", f"{asked['metric']}{objects}")
    for title, key in (
        ("namespace ", "namespace"),
        ("selector  ", "labelSelector"),
        ("of series ", "metricLabelSelector"),
    ):
        if asked[key]:
            yield from wrapped(title, asked[key])
    yield f"rules     {_number(explained['rules'], 'rule', 'nearest')}"
    for rule in explained["rules"]["items"]:
        yield from wrapped("  + " if rule["taken"] else "  - ", f"{rule['rule']}: {rule['reason']}")
    if explained["objects"] is not None:
        names = ", ".join(explained["objects"]["items"])
        number = _number(explained["objects"], "object")
        yield from wrapped("objects   ", f"{number}: {names}" if names else number)
    for query in explained["queries"]:
        yield from _query_lines(query, external=explained["objects"] is None)
    yield f"values    {_number(explained['values'], 'value')}"
    for each in explained["values"]["items"]:
        value = readable(asked["metric"], each["value"])
        yield from wrapped("  ", f"{each['object']} {value}".strip())
    yield from _ahead_lines(asked["metric"], explained.get("ahead"))
    for cause in explained["causes"]:
        yield from wrapped("cause     ", f"{cause['reason']}: {cause['message']}")
    yield last_line(explained["verdict"])


def readable(metric: str, value: str) -> str:
    """Return a value of an API document as sentences show it: `19.8 %`."""
    return quantity.readable(quantity.milli_value(value), nature.unit(metric))


def _ahead_lines(metric: str, ahead: Document | None) -> Iterator[str]:
    """Yield whether a forecast is served, and why; nothing for an adapter of an earlier release."""
    if ahead is None:
        return
    yield from wrapped("ahead     ", ahead["sentence"])
    for each in ahead["valuesNow"]["items"]:
        value = readable(metric, each["value"])
        yield from wrapped("  now     ", f"{each['object']} {value}".strip())


def _query_lines(query: Document, *, external: bool) -> Iterator[str]:
    yield from wrapped("query of  ", query["rule"])
    if query["source"] != DEFAULT:
        yield from wrapped("  source  ", query["source"])
    wanted, present = ", ".join(query["wantedLabels"]), ", ".join(query["presentLabels"])
    yield from wrapped("  series  ", query["series"])
    if query["wantedLabels"]:
        yield from wrapped("  wanted  ", f"labels {wanted}")
    if query["presentLabels"]:
        yield from wrapped("  present ", f"labels {present}")
    if query["seriesCount"] is not None:
        newest, oldest, ages = query["newestSampleSeconds"], query["oldestSampleSeconds"], ""
        if newest is not None:
            ages = f", the newest sample is {newest:.1f} s old"
        if oldest is not None:
            ages += f", the oldest {oldest:.1f} s"
        of = "" if external else " of the objects"
        yield from wrapped("  found   ", f"{query['seriesCount']} series{of}{ages}")
    yield f"  promql  {query['promql']}"
    if query["error"]:
        yield from wrapped("  error   ", query["error"])
    for note in query.get("notes", ()):
        yield from wrapped("  note    ", note)
    if query["samples"] is None:
        return
    others = query["otherSamples"]
    more = f"; not shown: {others} without the name of a requested object" if others else ""
    yield f"  result  {_number(query['samples'], 'sample')}{more}"
    for sample in query["samples"]["items"]:
        labels = ", ".join(f"{key}={value}" for key, value in sample["labels"].items())
        labels = labels.replace("\n", r"\n")  # `escaped` keeps line breaks, for queries
        yield from wrapped("          ", f"{{{labels}}} {sample['value']}")


def _number(shown: Document, noun: str, which: str = "first") -> str:
    count, first = shown["count"], len(shown["items"])
    text = counted(count, noun)
    return f"{text}, the {which} {first}" if first < count else text


def wrapped(prefix: str, text: str) -> list[str]:
    """Return the lines of a text of at most 100 columns; only the first has the prefix."""
    return textwrap.wrap(
        text,
        width=WIDTH,
        initial_indent=prefix,
        subsequent_indent=" " * len(prefix),
        break_on_hyphens=False,
        break_long_words=False,  # a query stays one word that can be copied
    )
