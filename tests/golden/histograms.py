"""Writes native histograms to a Prometheus: prometheus.Histogram of prompb/types.proto."""

from __future__ import annotations

import itertools
import struct
import time
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adapter.local_prometheus.remote_write import HEADERS

_STEP, _STEPS = 15, 40
_ZERO_THRESHOLD = 1e-128
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def write(url: str, histograms: Iterable[Mapping[str, Any]]) -> None:
    """Write each histogram over the last ten minutes; `buckets` and `sum` are per step.

    The buckets are those of schema 0 from (0.5, 1] on.
    """
    now = int(time.time())
    for step in range(_STEPS + 1):
        series = [
            _text(1, _series(each, step, now - (_STEPS - step) * _STEP)) for each in histograms
        ]
        if series:
            body = _uncompressed(b"".join(series))
            request = urllib.request.Request(f"{url}/api/v1/write", data=body, headers=HEADERS)
            with _OPENER.open(request, timeout=60):
                pass


def _series(histogram: Mapping[str, Any], step: int, at: int) -> bytes:
    labels = b"".join(
        _text(1, _text(1, name.encode()) + _text(2, value.encode()))
        for name, value in sorted(histogram["labels"].items())
    )
    counts = [each * step for each in histogram["buckets"]]
    return labels + _text(4, _histogram(counts, histogram["sum"] * step, at))


def _histogram(counts: Sequence[int], total: float, at: int) -> bytes:
    deltas = (after - before for before, after in itertools.pairwise((0, *counts)))
    span = _number(1, 0) + _number(2, len(counts))
    return b"".join(
        (
            _number(1, sum(counts)),
            _double(3, total),
            _number(4, 0),
            _double(5, _ZERO_THRESHOLD),
            _number(6, 0),
            _text(11, span),
            _text(12, b"".join(_varint(each << 1 ^ each >> 63) for each in deltas)),
            _number(15, at * 1000),
        )
    )


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _text(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def _uncompressed(content: bytes) -> bytes:
    return _varint(len(content)) + b"\xfc" + struct.pack("<I", len(content) - 1) + content
