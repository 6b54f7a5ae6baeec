"""Building and encoding of documents; large ones in a thread, so that the event loop keeps serving.

The encodings are in `apimachinery.encoding`. `encoded_answers` and `discovery` remember the result.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Hashable
from concurrent import futures

from adapter.apimachinery import encoding
from adapter.apimachinery.negotiation import Accepted
from adapter.cache import SingleFlight

_MAX_ON_LOOP = {encoding.JSON: 100, encoding.PROTOBUF: 50, encoding.YAML: 5}
"""Maximum number of items that are encoded on the event loop, which takes 1 ms: hundreds of
requests may do so in turn. A pod of metrics.k8s.io takes 10 µs in JSON, 20 µs in protobuf and
200 µs in YAML."""


class Encoder:
    """Encoder with a thread for large documents.

    It has one thread, because only one can hold the interpreter lock: the event loop waits for the
    lock, and would wait as long for each other thread.
    """

    def __init__(self) -> None:
        self._thread = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="encoder")
        self._in_flight: SingleFlight[Hashable, bytes] = SingleFlight()

    async def encode(
        self, key: Hashable, build: Callable[[], encoding.Document], accepted: Accepted, items: int
    ) -> bytes:
        """Build a document of about `items` items and encode it. Raises what `build` raises.

        `build` is called in the thread if there are many items. Concurrent callers with the same
        `key` share the result then.
        """
        if items <= _MAX_ON_LOOP[accepted.encoding]:
            return _encode(build, accepted)
        return await self._in_flight.run(key, lambda: self._encode_in_thread(build, accepted))

    async def _encode_in_thread(
        self, build: Callable[[], encoding.Document], accepted: Accepted
    ) -> bytes:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, _encode_large, build, accepted)


def _encode(build: Callable[[], encoding.Document], accepted: Accepted) -> bytes:
    return encoding.encode(build(), accepted.encoding, pretty=accepted.pretty)


def _encode_large(build: Callable[[], encoding.Document], accepted: Accepted) -> bytes:
    # So many new objects cause full collections, which stop all threads for 0.1 s; there are no
    # cycles to collect.
    gc.disable()
    try:
        return _encode(build, accepted)
    finally:
        gc.enable()
