"""Large documents are built and encoded in a thread; others on the event loop, which is faster."""

from __future__ import annotations

import asyncio
import threading

import pytest

from adapter.api import encoder
from adapter.api.encoder import Encoder
from adapter.apimachinery import encoding
from adapter.apimachinery.encoding import JSON, PROTOBUF, YAML
from adapter.apimachinery.negotiation import Accepted
from adapter.errors import ApiError
from rules import ruleset
from rules.kinds import PODS, Kinds
from rules.query import catalog as catalogs
from rules.query.aggregate import ExternalValue, Value
from rules.query.catalog import Listing, Series
from rules.query.resource import Usage
from tests.adapter import wired
from tests.rules.query.test_resource import queries

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

    def __call__(self) -> encoding.Document:
        self.threads.append(threading.current_thread())
        self._loop.call_soon_threadsafe(self.began.set)
        assert self.blocked.wait(timeout=10)
        return DOCUMENT


@pytest.fixture
async def build():
    build = Build()
    yield build
    build.blocked.set()


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

    body = await Encoder().encode("key", build, Accepted(encoding=media_type), items)

    assert body == encoding.encode(DOCUMENT, media_type)
    assert (build.threads != [threading.main_thread()]) is in_thread


async def test_the_event_loop_runs_while_a_large_document_is_encoded(build):
    encoding_ = asyncio.create_task(Encoder().encode("key", build, Accepted(encoding=YAML), 1000))
    await build.began.wait()

    assert not encoding_.done()
    build.blocked.set()
    assert await encoding_ == encoding.encode(DOCUMENT, YAML)


async def test_one_large_document_is_encoded_at_a_time_and_once_for_all_that_wait(build):
    shared, accepted = Encoder(), Accepted(encoding=YAML)
    other = Build()
    first = asyncio.create_task(shared.encode("key", build, accepted, 1000))
    await build.began.wait()
    second = asyncio.create_task(shared.encode("key", build, accepted, 1000))
    third = asyncio.create_task(shared.encode("other", other, accepted, 1000))
    first.cancel()
    other.blocked.set()
    await asyncio.sleep(0.05)

    assert (len(build.threads), len(other.threads)) == (1, 0)
    build.blocked.set()
    assert await second == await third
    assert (len(build.threads), len(other.threads)) == (1, 1)


async def test_a_form_that_a_large_document_does_not_have_is_an_error():
    def build():
        raise ApiError(406, "no such form")

    with pytest.raises(ApiError, match="no such form"):
        await Encoder().encode("key", build, Accepted(encoding=JSON), 1000)


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
    monkeypatch.setattr(encoder, "_MAX_ON_LOOP", dict.fromkeys(encoding.PRODUCED, 1))
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
    kinds = Kinds.builtin()
    listing = Listing(series=(Series(name="gpu", labels=frozenset({"ns", "pod"})),))
    catalog = catalogs.build(ruleset.load([("f", RULES)]), {0: listing, 1: listing}, kinds)
    objects = wired.Objects(kinds, {(PODS, "default"): {name: {} for name in names}})
    handler = wired.build_router(catalog, objects, evaluation, resources=queries())

    monkeypatch.setattr(encoding, "encode", encode)
    async with wired.listening(handler) as port:
        reply = await wired.fetch(port, target)

    assert reply.status == 200
    (thread,) = threads
    assert thread is not threading.main_thread()
