"""Encodes samples for Prometheus' remote write, version 1.

Only this lets a caller set the time of each sample, and end a series at any time.
https://prometheus.io/docs/specs/prw/remote_write_spec/
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

HEADERS = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
STALE: float = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
"""Staleness marker: the value that a scrape appends when a series has ended."""

Labels = Mapping[str, str]
Samples = Sequence[tuple[int, float]]
"""Unix milliseconds and value of each sample, in the order of time."""


def encode(series: Iterable[tuple[Labels, Samples]]) -> bytes:
    """Return the body of a request, for series given by their labels with `__name__`."""
    content = b"".join(field(1, _series(*each)) for each in series)
    return uncompressed_snappy(content) if content else b"\0"


def _series(labels: Labels, samples: Samples) -> bytes:
    """Encode prometheus.TimeSeries (prompb/types.proto)."""
    pairs = (
        field(1, field(1, name.encode()) + field(2, text.encode()))
        for name, text in sorted(labels.items())
    )
    points = (
        field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + varint(millis))
        for millis, value in samples
    )
    return b"".join((*pairs, *points))


def field(number: int, content: bytes) -> bytes:
    """Encode a length-delimited protobuf field."""
    return bytes((number << 3 | 2,)) + varint(len(content)) + content


def varint(number: int) -> bytes:
    """Encode a protobuf varint, which is not negative."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def uncompressed_snappy(content: bytes) -> bytes:
    """Encode `content` as one literal (format_description.txt of google/snappy)."""
    return varint(len(content)) + b"\xfc" + struct.pack("<I", len(content) - 1) + content
