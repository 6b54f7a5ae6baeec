"""Encoded answers: built once as long as the objects that they follow from are the same.

Large documents are built and encoded in a thread, so that the event loop keeps serving. The
encodings are in `apimachinery.encoding`.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Hashable
from concurrent import futures

from adapter import bounds
from adapter.cache import LRUCache, SingleFlight
from adapter.server.api.groups.group import Content
from adapter.server.apimachinery import encoding
from adapter.server.apimachinery.negotiation import Accepted
from adapter.server.apimachinery.responses import Answer

_ENTRY_SIZE = 1024
_CHARACTER_SIZE = 4
_MAX_ON_LOOP = {encoding.JSON: 100, encoding.PROTOBUF: 50, encoding.YAML: 5}
"""Maximum number of items that are encoded on the event loop, which takes 1 ms: hundreds of
requests may do so in turn. A pod of metrics.k8s.io takes 10 µs in JSON, 20 µs in protobuf and
200 µs in YAML."""

_Key = tuple[tuple[str, ...], Accepted]
"""What a request means, and its form, encoding and layout. Other parameters of the URL would let
one client have the same document encoded again and again."""


class EncodedAnswers:
    """Encoder that remembers its last result for each request (LRU).

    It has one thread, because only one can hold the interpreter lock: the event loop waits for the
    lock, and would wait as long for each other thread.
    """

    def __init__(self) -> None:
        self.cache: LRUCache[_Key, tuple[tuple[object, ...], Answer]] = LRUCache(bounds.ANSWERS)
        self._thread = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="encoder")
        self._in_flight: SingleFlight[Hashable, bytes] = SingleFlight()

    async def encode(
        self, meaning: tuple[str, ...], content: Content, accepted: Accepted
    ) -> Answer:
        """Return the answer with `content`, remembered if its sources are the same objects.

        `meaning` is what the document can follow from in the request. A document of many items is
        built in the thread, once for concurrent callers. Raises what `content.build` raises.
        """
        key = meaning, accepted
        cached = self.cache.get(key)
        if cached is not None and _are_same(cached[0], content.sources):
            return cached[1]
        if content.items <= _MAX_ON_LOOP[accepted.encoding]:
            body = _encode(content, accepted)
        else:
            body = await self._in_flight.run(
                (*key, *map(id, content.sources)), lambda: self._encode_in_thread(content, accepted)
            )
        answer = Answer(body=body, content_type=accepted.encoding)
        text = _CHARACTER_SIZE * sum(map(len, meaning))
        size = _ENTRY_SIZE + text + len(body) + content.size
        self.cache.set(key, (content.sources, answer), size=size)
        return answer

    async def _encode_in_thread(self, content: Content, accepted: Accepted) -> bytes:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, _encode, content, accepted)


def _are_same(some: tuple[object, ...], others: tuple[object, ...]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _encode(content: Content, accepted: Accepted) -> bytes:
    document = content.build(accepted.transform)
    return encoding.encode(document, accepted.encoding, pretty=accepted.pretty)
