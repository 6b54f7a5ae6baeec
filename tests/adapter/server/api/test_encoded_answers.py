"""Answers are encoded again when the request, the evaluation or the layout is another.

Large documents are built and encoded in a thread; others on the event loop, which is faster.
"""

from __future__ import annotations

import asyncio
import threading

import pytest

from adapter.errors import ApiError
from adapter.server.api import encoded_answers
from adapter.server.api.encoded_answers import EncodedAnswers
from adapter.server.api.groups.group import Content
from adapter.server.apimachinery import encoding, negotiation, request_info
from adapter.server.apimachinery.encoding import JSON, PROTOBUF, YAML
from adapter.server.apimachinery.negotiation import Accepted
from rules.kinds import PODS, Kinds
from rules.query.aggregate import ExternalValue, Value
from rules.query.resource import Usage
from tests.adapter import wired
from tests.rules.query.test_resource import queries

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
    await encoded.encode(INFO.meaning, content(KIND, VALUES), COMPACT)
    return encoded


async def test_the_same_sources_give_the_same_answer(encoded):
    def build(transform):
        raise AssertionError("encoded twice")

    same = Content(sources=(KIND, VALUES), build=build)
    answer = await encoded.encode(INFO.meaning, same, COMPACT)

    assert b'"items"' in answer.body
    assert (encoded.cache.hits, encoded.cache.misses) == (1, 1)


@pytest.mark.parametrize(
    ("query", "same"),
    [("n=1&timeout=5s", True), ("labelSelector=a", False), ("includeObject=None", False)],
)
async def test_only_what_the_document_follows_from_makes_another_answer(encoded, query, same):
    info = request_info.parse(INFO.path, query)

    for _ in range(2):
        await encoded.encode(info.meaning, content(KIND, VALUES), COMPACT)

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
    first = await encoded.encode(INFO.meaning, content(KIND, VALUES), COMPACT)

    assert await encoded.encode(info.meaning, content(*sources), accepted) is not first


async def test_what_the_sources_keep_in_memory_counts(encoded):
    large = Content(sources=(KIND,), size=128 << 20, build=lambda _: {})

    first = await encoded.encode(OTHER.meaning, large, COMPACT)

    assert await encoded.encode(OTHER.meaning, large, COMPACT) is not first


# Large documents


DOCUMENT = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
RULES = """
rules:
- seriesQuery: gpu
  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: m
externalRules:
- seriesQuery: gpu
  resources: {overrides: {ns: {resource: namespace}}}
  metricsQuery: m
"""


class Build:
    """Builder of a document that blocks its thread until the event loop lets it continue."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.began = asyncio.Event()
        self.blocked = threading.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self, _: object) -> encoding.Document:
        self.threads.append(threading.current_thread())
        self._loop.call_soon_threadsafe(self.began.set)
        assert self.blocked.wait(timeout=90)
        return DOCUMENT


@pytest.fixture
async def build():
    build = Build()
    yield build
    build.blocked.set()


async def encode(encoded, build, items=1000, media_type=YAML):
    """Encode what `build` builds, which is also what it follows from."""
    content = Content(sources=(build,), items=items, build=build)
    return await encoded.encode(("/path",), content, Accepted(encoding=media_type))


@pytest.mark.parametrize(
    ("media_type", "items", "in_thread"),
    [
        (JSON, 100, False),
        (JSON, 101, True),
        (PROTOBUF, 50, False),
        (PROTOBUF, 51, True),
        (YAML, 5, False),
        (YAML, 6, True),
    ],
)
async def test_many_items_are_built_in_a_thread(build, media_type, items, in_thread):
    build.blocked.set()

    body = (await encode(EncodedAnswers(), build, items, media_type)).body

    assert body == encoding.encode(DOCUMENT, media_type)
    assert (build.threads != [threading.main_thread()]) is in_thread


async def test_the_event_loop_runs_while_a_large_document_is_encoded(build):
    encoding_ = asyncio.create_task(encode(EncodedAnswers(), build))
    await build.began.wait()

    assert not encoding_.done()
    build.blocked.set()
    assert (await encoding_).body == encoding.encode(DOCUMENT, YAML)


async def test_one_large_document_is_encoded_at_a_time_and_once_for_all_that_wait(build):
    shared, other = EncodedAnswers(), Build()
    first = asyncio.create_task(encode(shared, build))
    await build.began.wait()
    second = asyncio.create_task(encode(shared, build))
    third = asyncio.create_task(encode(shared, other))
    first.cancel()
    other.blocked.set()
    await asyncio.sleep(0.05)

    assert (len(build.threads), len(other.threads)) == (1, 0)
    build.blocked.set()
    assert (await second).body == (await third).body
    assert (len(build.threads), len(other.threads)) == (1, 1)


async def test_a_form_that_a_large_document_does_not_have_is_an_error():
    def build(_):
        raise ApiError(406, "no such form")

    with pytest.raises(ApiError, match="no such form"):
        await encode(EncodedAnswers(), build)


@pytest.mark.parametrize(
    "target",
    [
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/gpu",
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/gpu",
        "/apis/metrics.k8s.io/v1beta1/pods",
        "/apis/custom.metrics.k8s.io/v1beta2",
    ],
)
async def test_the_documents_of_all_groups_count_their_items(monkeypatch, target):
    monkeypatch.setattr(encoded_answers, "_MAX_ON_LOOP", dict.fromkeys(encoding.PRODUCED, 1))
    threads = []

    def encode(*args, **options):
        threads.append(threading.current_thread())
        return original(*args, **options)

    original = encoding.encode
    names = ("a", "b")
    value = Value(milli=1, time=0.0, samples=1)
    evaluation = wired.Evaluation(
        {(PODS, name): value for name in names},
        {"gpu": [ExternalValue(labels={}, value=value)] * 2},
    )
    used = Usage(milli={"main": 1}, time=0.0)
    evaluation.used = {
        (each, "default", name): used for each in ("cpu", "memory") for name in names
    }
    catalog = wired.catalog(RULES, "gpu", "gpu", labels=("ns", "pod"))
    objects = wired.Objects(Kinds.builtin(), {(PODS, "default"): {name: {} for name in names}})
    handler = wired.build_router(catalog, objects, evaluation, resources=queries())

    monkeypatch.setattr(encoding, "encode", encode)
    async with wired.listening(handler) as port:
        reply = await wired.fetch(port, target)

    assert reply.status == 200
    (thread,) = threads
    assert thread is not threading.main_thread()
