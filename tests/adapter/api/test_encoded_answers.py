"""Answers are encoded again when the request, the evaluation or the layout is another."""

from __future__ import annotations

import pytest

from adapter.api.encoded_answers import EncodedAnswers
from adapter.api.groups.group import Content
from adapter.http import request_info

INFO = request_info.parse("/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/pods/*/m")
SAME_TEXT = request_info.parse("/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/pods/*/m")
KIND, VALUES, EQUAL_VALUES = object(), {"p": 1}, {"p": 1}


def content(*sources):
    return Content(sources=sources, build=lambda: {"items": [str(each) for each in sources]})


@pytest.fixture
def encoded():
    encoded = EncodedAnswers()
    encoded.encode(INFO, content(KIND, VALUES), pretty=False)
    return encoded


def test_the_same_sources_give_the_same_answer(encoded):
    def build():
        raise AssertionError("encoded twice")

    answer = encoded.encode(INFO, Content(sources=(KIND, VALUES), build=build), pretty=False)

    assert b'"items"' in answer.body
    assert (encoded.cache.hits, encoded.cache.misses) == (1, 1)


def test_an_answer_that_is_not_remembered_leaves_nothing_behind(encoded):
    first = encoded.encode(SAME_TEXT, content(KIND), pretty=False, remember=False)

    assert encoded.encode(SAME_TEXT, content(KIND), pretty=False) is not first


@pytest.mark.parametrize(
    ("info", "sources", "pretty"),
    [
        (SAME_TEXT, (KIND, VALUES), False),
        (INFO, (object(), VALUES), False),
        (INFO, (KIND, EQUAL_VALUES), False),
        (INFO, (KIND, VALUES), True),
        (INFO, (), False),
        (INFO, (KIND,), False),
        (INFO, (KIND, VALUES, KIND), False),
    ],
    ids=["request", "kind", "evaluation", "layout", "none", "fewer", "more"],
)
def test_anything_else_is_encoded_again(encoded, info, sources, pretty):
    first = encoded.encode(INFO, content(KIND, VALUES), pretty=False)

    assert encoded.encode(info, content(*sources), pretty=pretty) is not first
