"""Cache of encoded answers, which are kept as long as the evaluation that they come from."""

from __future__ import annotations

import operator

from adapter.api.encoder import Encoder
from adapter.api.groups.group import Content
from adapter.apimachinery.negotiation import Accepted
from adapter.apimachinery.request_info import RequestInfo
from adapter.apimachinery.responses import Answer
from adapter.cache import LRUCache

_MAX_SIZE = 32 << 20
"""Bytes of the bodies and the requests: 3 000 autoscalers of ten pods each."""
_ENTRY_SIZE = 1024

_Key = tuple[tuple[str, ...], Accepted]
"""What a request means, and its form, encoding and layout. Other parameters of the URL would let
one client have the same document encoded again and again."""


class EncodedAnswers:
    """Encoder that remembers its last result for each path with its selectors (LRU)."""

    def __init__(self) -> None:
        self.cache: LRUCache[_Key, tuple[tuple[object, ...], Answer]] = LRUCache(_MAX_SIZE)
        self._encoder = Encoder()

    async def encode(self, info: RequestInfo, content: Content, accepted: Accepted) -> Answer:
        """Return the answer with `content`, remembered if its sources are the same objects.

        Raises ApiError if the object cannot be sent in the requested form.
        """
        key = info.meaning, accepted
        cached = self.cache.get(key)
        if cached is not None and _are_same(cached[0], content.sources):
            return cached[1]
        body = await self._encoder.encode(
            (*key, *map(id, content.sources)),
            lambda: content.build(accepted.transform),
            accepted,
            items=content.items,
        )
        answer = Answer(body=body, content_type=accepted.encoding)
        size = _ENTRY_SIZE + info.size + len(answer.body) + content.size
        self.cache.set(key, (content.sources, answer), size=size)
        return answer


def _are_same(some: tuple[object, ...], others: tuple[object, ...]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))
