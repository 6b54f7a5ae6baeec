"""Writes native histograms to a Prometheus: prometheus.Histogram of prompb/types.proto."""

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adapter.cli.local_prometheus.remote_write import field, uncompressed_snappy, varint
from tools.real.prometheus import Client

_STEP, _STEPS = 15, 40
_ZERO_THRESHOLD = 1e-128


def write(client: Client, histograms: Iterable[Mapping[str, Any]]) -> None:
    """Write each histogram over the last ten minutes; `buckets` and `sum` are per step.

    The buckets are those of schema 0 from (0.5, 1] on.
    """
    now = int(time.time())
    for step in range(_STEPS + 1):
        series = [
            field(1, _series(each, step, now - (_STEPS - step) * _STEP)) for each in histograms
        ]
        if series:
            client.send(uncompressed_snappy(b"".join(series)))


def _series(histogram: Mapping[str, Any], step: int, at: int) -> bytes:
    labels = b"".join(
        field(1, field(1, name.encode()) + field(2, value.encode()))
        for name, value in sorted(histogram["labels"].items())
    )
    counts = [each * step for each in histogram["buckets"]]
    return labels + field(4, _histogram(counts, histogram["sum"] * step, at))


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
            field(11, span),
            field(12, b"".join(varint(each << 1 ^ each >> 63) for each in deltas)),
            _number(15, at * 1000),
        )
    )


def _number(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def _double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)
