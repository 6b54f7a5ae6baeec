"""Answers are encoded again when the request, the evaluation or the layout is another."""

from __future__ import annotations

import pytest

from adapter.api.encoded_answers import EncodedAnswers
from adapter.api.groups.group import Content
from adapter.apimachinery import negotiation, request_info
from adapter.apimachinery.encoding import JSON, YAML
from adapter.apimachinery.negotiation import Accepted

INFO = request_info.parse("/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/pods/*/m")
OTHER = request_info.parse("/apis/custom.metrics.k8s.io/v1beta2/namespaces/b/pods/*/m")
COMPACT = Accepted(encoding=JSON)
(TABLE,) = (each for each in negotiation.TABLE if each.version == "v1")
KIND, VALUES, EQUAL_VALUES = object(), {"p": 1}, {"p": 1}


def content(*sources):
    return Content(sources=sources, build=lambda _: {"items": [str(each) for each in sources]})


@pytest.fixture
async def encoded():
    encoded = EncodedAnswers()
    await encoded.encode(INFO, content(KIND, VALUES), COMPACT)
    return encoded


async def test_the_same_sources_give_the_same_answer(encoded):
    def build(transform):
        raise AssertionError("encoded twice")

    answer = await encoded.encode(INFO, Content(sources=(KIND, VALUES), build=build), COMPACT)

    assert b'"items"' in answer.body
    assert (encoded.cache.hits, encoded.cache.misses) == (1, 1)


@pytest.mark.parametrize(
    ("query", "same"),
    [("n=1&timeout=5s", True), ("labelSelector=a", False), ("includeObject=None", False)],
)
async def test_only_what_the_document_follows_from_makes_another_answer(encoded, query, same):
    info = request_info.parse(INFO.path, query)

    for _ in range(2):
        await encoded.encode(info, content(KIND, VALUES), COMPACT)

    assert len(encoded.cache) == (1 if same else 2)


@pytest.mark.parametrize(
    ("info", "sources", "accepted"),
    [
        (OTHER, (KIND, VALUES), COMPACT),
        (INFO, (object(), VALUES), COMPACT),
        (INFO, (KIND, EQUAL_VALUES), COMPACT),
        (INFO, (KIND, VALUES), COMPACT._replace(pretty=True)),
        (INFO, (KIND, VALUES), Accepted(encoding=YAML)),
        (INFO, (KIND, VALUES), COMPACT._replace(transform=TABLE)),
        (INFO, (), COMPACT),
        (INFO, (KIND,), COMPACT),
        (INFO, (KIND, VALUES, KIND), COMPACT),
    ],
    ids=["request", "kind", "evaluation", "layout", "encoding", "form", "none", "fewer", "more"],
)
async def test_anything_else_is_encoded_again(encoded, info, sources, accepted):
    first = await encoded.encode(INFO, content(KIND, VALUES), COMPACT)

    assert await encoded.encode(info, content(*sources), accepted) is not first


async def test_what_the_sources_keep_in_memory_counts(encoded):
    large = Content(sources=(KIND,), size=64 << 20, build=lambda _: {})

    first = await encoded.encode(OTHER, large, COMPACT)

    assert await encoded.encode(OTHER, large, COMPACT) is not first
