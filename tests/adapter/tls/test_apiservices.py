from __future__ import annotations

import base64
import datetime as dt
import itertools
import logging

import pytest

from adapter import errors
from adapter.tls.apiservices import APIServiceController
from tests import chains
from tests.certificates import Holder
from tests.fakes.store import REGISTRATION, Store

CUSTOM, EXTERNAL = "v1beta1.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"
CA, OTHER = Holder("ca", ca=True), Holder("other", ca=True)
AVAILABLE = {"conditions": [{"type": "Available", "status": "True"}]}


class Done(Exception):
    """Ends what would run for ever."""


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def cluster(store):
    return store


@pytest.fixture
def registration(api):
    return APIServiceController(api, (CUSTOM, EXTERNAL), service="adapter", namespace="ns")


def encoded(*holders):
    return base64.b64encode(b"".join(each.pem for each in holders)).decode()


async def running(kube, *, pauses, between=lambda _: None):
    """The pauses that are made, with `between` called in each."""
    made = []

    async def sleep(seconds):
        made.append(seconds)
        between(len(made))
        if len(made) == pauses:
            raise Done

    monotonic = itertools.count()
    registration = APIServiceController(
        kube,
        (CUSTOM, EXTERNAL),
        service="adapter",
        namespace="ns",
        interval=20.0,
        clock=lambda: dt.datetime.fromtimestamp(next(monotonic), dt.UTC),
        sleep=sleep,
    )
    with pytest.raises(Done):
        await registration.run()
    return made


async def test_only_those_that_name_our_service_are_ours(store, registration):
    store.register(CUSTOM, "adapter", "elsewhere")
    store.register(EXTERNAL, "adapter", "ns")

    (found,) = await registration.look()

    assert found.name == EXTERNAL
    assert registration.check() == f"{EXTERNAL} not available"


async def test_there_may_be_none(store, registration):
    assert registration.check() == "not looked at yet"
    store.put(REGISTRATION + CUSTOM, {"kind": "APIService"})

    assert await registration.look() == ()
    assert registration.check() == "there are none that name our Service"


@pytest.mark.parametrize(
    ("bundle", "trusted"),
    [
        ("", set()),
        (encoded(CA, OTHER), {CA.certificate, OTHER.certificate}),
        ("aGk=", set()),
        (encoded(CA, chains.UNKNOWN), set()),
    ],
    ids=["none", "two", "nonsense", "unknown version"],
)
async def test_whom_an_apiservice_trusts_is_read(store, registration, bundle, trusted):
    path = store.register(CUSTOM, "adapter", "ns", caBundle=bundle)
    store.objects[path]["status"] = AVAILABLE

    (found,) = await registration.look()

    assert found.trusted == trusted
    assert found.trusts(CA.certificate) is bool(trusted)
    assert found.available
    assert registration.check() == f"{CUSTOM} available"


async def test_what_is_published_is_written_where_it_differs(store, registration):
    path = store.register(CUSTOM, "adapter", "ns", caBundle=encoded(OTHER, CA))
    store.register(EXTERNAL, "adapter", "ns", groupPriorityMinimum=100)
    authorities = frozenset({CA.certificate, OTHER.certificate})

    assert await registration.publish(await registration.look(), authorities, CA.pem + OTHER.pem)

    assert [name for _, name, _ in store.writes] == [REGISTRATION + EXTERNAL]
    spec = store.objects[REGISTRATION + EXTERNAL]["spec"]
    assert spec["caBundle"] == encoded(CA, OTHER)
    assert spec["groupPriorityMinimum"] == 100
    assert store.objects[path]["spec"]["caBundle"] == encoded(OTHER, CA)


async def test_one_that_trusts_anybody_is_left_alone_with_one_warning(store, registration, caplog):
    store.register(CUSTOM, "adapter", "ns", insecureSkipTLSVerify=True)

    for _ in range(2):
        found = await registration.look()
        assert await registration.publish(found, frozenset({CA.certificate}), CA.pem)

    assert store.writes == []
    assert found[0].trusts(CA.certificate)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"APIService {CUSTOM} has insecureSkipTLSVerify" in record.getMessage()


@pytest.mark.parametrize("deleted", [False, True])
async def test_what_changed_meanwhile_is_not_overwritten(store, registration, deleted):
    path = store.register(CUSTOM, "adapter", "ns")
    found = await registration.look()
    if deleted:
        del store.objects[path]
    else:
        store.put(path, store.objects[path])

    assert not await registration.publish(found, frozenset({CA.certificate}), CA.pem)

    assert store.writes == []


async def test_other_failures_are_raised(store, registration):
    store.register(CUSTOM, "adapter", "ns")
    found = await registration.look()
    store.refuse = lambda *_: 403

    with pytest.raises(errors.Refused, match="403"):
        await registration.look()
    with pytest.raises(errors.Refused, match="403"):
        await registration.publish(found, frozenset({CA.certificate}), CA.pem)


async def test_those_that_are_not_available_are_annotated_until_they_are(store, api):
    path = store.register(CUSTOM, "adapter", "ns")
    store.objects[store.register(EXTERNAL, "adapter", "ns")]["status"] = AVAILABLE

    def between(pauses):
        if pauses == 3:
            store.objects[path]["status"] = AVAILABLE

    made = await running(api, pauses=5, between=between)

    assert made == [0.5, 0.5, 1.0, 20.0, 20.0]
    assert {name for _, name, _ in store.writes} == {path}
    values = [
        document["metadata"]["annotations"]["gpu-metrics-adapter/listened-at"]
        for _, _, document in store.writes
    ]
    assert len(set(values)) == 3


async def test_the_writes_end_where_they_do_not_help_and_begin_again_after_a_loss(store, api):
    path = store.register(CUSTOM, "adapter", "ns")
    writes = []

    def between(pauses):
        writes.append(len(store.writes))
        if pauses == 8:
            store.objects[path]["status"] = AVAILABLE
        if pauses == 9:
            store.objects[path]["status"] = {}

    made = await running(api, pauses=10, between=between)

    assert made == [0.5, 0.5, 1.0, 2.0, 4.0, 8.0, 20.0, 20.0, 20.0, 0.5]
    assert writes == [1, 2, 3, 4, 5, 6, 6, 6, 6, 7]


async def test_failures_are_told_once_and_tried_again_soon(store, api, caplog):
    store.register(CUSTOM, "adapter", "ns")
    store.refuse = lambda *_: 403

    def between(pauses):
        if pauses == 6:
            store.refuse = lambda *_: 0

    made = await running(api, pauses=7, between=between)

    assert made == [1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 0.5]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_rights_that_lack_one_apiservice_cost_the_others_nothing(store, registration, caplog):
    store.register(CUSTOM, "adapter", "ns")
    store.register(EXTERNAL, "adapter", "ns")
    store.refuse = lambda method, path: 403 if path.endswith(EXTERNAL) else 0

    for _ in range(2):
        (found,) = await registration.look()

    assert found.name == CUSTOM
    assert registration.check() == f"{CUSTOM} not available, {EXTERNAL} not ours to read"
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert f"APIService {EXTERNAL} is passed over" in caplog.text
