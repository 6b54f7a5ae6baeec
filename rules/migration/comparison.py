"""Compares the answers of two metrics servers to the same request; without I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rules import quantity
from rules.errors import QuantityError
from rules.findings import Finding, State, skipped
from rules.hpa.autoscaler import TOLERANCE, Document
from rules.hpa.reading import ApiReply
from rules.migration.notes import number
from rules.quoting import shorten

_MESSAGE = 300


def differences(original: ApiReply, ours: ApiReply) -> Iterator[Finding]:
    """Yield the differences between the answers; timestamps and messages may differ.

    Values so close that an HPA decides the same by default are a warning, others a failure. It is
    skipped if neither server answered.
    """
    try:
        yield from _differences(original, ours)
    except (KeyError, TypeError, AttributeError, QuantityError) as error:
        yield _finding(f"an answer is not a list of values: {error}")


def _differences(original: ApiReply, ours: ApiReply) -> Iterator[Finding]:
    before, now = _values(original), _values(ours)
    text = f"original {_shown(original, before)}, ours {_shown(ours, now)}"
    if not original.failed and not ours.failed:
        yield from _of_values(before, now)
    elif original.failed and ours.failed and 404 not in {original.status, ours.status}:
        yield skipped("", f"neither server answered: {text}")
    elif original.status == 404 and not ours.failed and not now:
        yield _finding(f"{text}: {number(1)}", matters=False)
    elif ours.status == 404 and not original.failed and not before:
        yield _finding(f"{text}: {number(31)}", matters=False)
    elif original.status != ours.status:
        yield _finding(text)


def _of_values(original: Mapping[str, int], ours: Mapping[str, int]) -> Iterator[Finding]:
    for key in sorted(original.keys() | ours.keys()):
        if key not in ours:
            yield _finding(f"{key}: {quantity.decimal(original[key])}, not in ours")
        elif key not in original:
            yield _finding(f"{key}: {quantity.decimal(ours[key])}, not in the original")
        elif original[key] != ours[key]:
            before, now = original[key], ours[key]
            text = f"{key}: original {quantity.decimal(before)}, ours {quantity.decimal(now)}"
            yield _finding(text, matters=abs(now - before) > TOLERANCE * abs(before))


def _values(reply: ApiReply) -> dict[str, int]:
    """Return the values in thousandths by object, or by labels for an external metric."""
    items = () if reply.failed else reply.document["items"] or ()
    return {_key(each): quantity.milli_value(each["value"]) for each in items}


def _key(item: Document) -> str:
    if described := item.get("describedObject"):
        return f"{described['kind']} {described['name']}"
    labels = item.get("metricLabels") or {}
    return "{" + ",".join(f"{key}={labels[key]}" for key in sorted(labels)) + "}"


def _finding(text: str, *, matters: bool = True) -> Finding:
    return Finding(state=State.FAILURE if matters else State.WARNING, fact=text)


def _shown(reply: ApiReply, values: Mapping[str, int]) -> str:
    if reply.failed:
        return f"{reply.status or 'no answer'} ({shorten(reply.message, _MESSAGE)})"
    return f"{len(values)} values"
