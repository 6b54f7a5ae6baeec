from __future__ import annotations

import base64
import datetime as dt
import itertools
import logging

import pytest

from adapter import errors
from adapter.server.tls.apiservices import APIServiceController
from rules.findings import State
from tests import chains
from tests.store import REGISTRATION
from tools.certificates import Holder

CUSTOM, EXTERNAL = "v1beta1.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"
CA, OTHER = Holder("ca", ca=True), Holder("other", ca=True)
AVAILABLE = {"conditions": [{"type": "Available", "status": "True"}]}


class Done(Exception):
    """Ends a loop that would run forever."""


@pytest.fixture
def registration(api):
    return APIServiceController(api, (CUSTOM, EXTERNAL), service="adapter", namespace="ns")


def encoded(*holders):
    return base64.b64encode(b"".join(each.pem for each in holders)).decode()


async def running(kube, *, pauses, between=lambda _: None, jitter=0.5):
    """Run the controller; call `between` in each pause; return the lengths of the pauses."""
    slept = []

    async def sleep(seconds):
        slept.append(seconds)
        between(len(slept))
        if len(slept) == pauses:
            raise Done

    monotonic = itertools.count()
    registration = APIServiceController(
        kube,
        (CUSTOM, EXTERNAL),
        service="adapter",
        namespace="ns",
        jitter=lambda: jitter,
        clock=lambda: dt.datetime.fromtimestamp(next(monotonic), dt.UTC),
        sleep=sleep,
    )
    with pytest.raises(Done):
        await registration.run()
    return slept


async def test_apiservices_of_other_services_are_left_out(store, registration):
    store.register(CUSTOM, "adapter", "elsewhere")
    store.register(EXTERNAL, "adapter", "ns")

    (service,) = await registration.fetch()

    assert service.name == EXTERNAL
    assert registration.check().fact == f"{EXTERNAL} not available"


async def test_no_apiservice_refers_to_the_service(store, registration):
    assert registration.check().fact == "not read yet"
    store.put(REGISTRATION + CUSTOM, {"kind": "APIService"})

    assert await registration.fetch() == ()
    assert registration.check().fact == "no APIService refers to Service ns/adapter"
    assert registration.check().state is State.WARNING


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bundle", "trusted"),
    [
        ("", set()),
        (encoded(CA, OTHER), {CA.certificate, OTHER.certificate}),
        ("aGk=", set()),
        (encoded(CA, chains.UNKNOWN), set()),
    ],
    ids=["empty", "two", "not PEM", "unknown version"],
)
async def test_ca_bundle_is_parsed(store, registration, bundle, trusted):
    path = store.register(CUSTOM, "adapter", "ns", caBundle=bundle)
    store.objects[path]["status"] = AVAILABLE

    (service,) = await registration.fetch()

    assert service.trusted == trusted
    assert service.trusts(CA.certificate) is bool(trusted)
    assert service.available
    assert registration.check().fact == f"{CUSTOM} available"
    assert registration.check().state is State.OK


async def test_ca_bundle_is_written_only_where_it_differs(store, registration):
    path = store.register(CUSTOM, "adapter", "ns", caBundle=encoded(OTHER, CA))
    store.register(EXTERNAL, "adapter", "ns", groupPriorityMinimum=100)
    authorities = (CA.certificate, OTHER.certificate)

    assert await registration.publish(await registration.fetch(), authorities)

    assert [name for _, name, _ in store.writes] == [REGISTRATION + EXTERNAL]
    spec = store.objects[REGISTRATION + EXTERNAL]["spec"]
    assert spec["caBundle"] == encoded(CA, OTHER)
    assert spec["groupPriorityMinimum"] == 100
    assert store.objects[path]["spec"]["caBundle"] == encoded(OTHER, CA)


async def test_insecure_apiservice_is_left_alone_with_one_warning(store, registration, caplog):
    store.register(CUSTOM, "adapter", "ns", insecureSkipTLSVerify=True)

    for _ in range(2):
        services = await registration.fetch()
        assert await registration.publish(services, (CA.certificate,))

    assert store.writes == []
    assert services[0].trusts(CA.certificate)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"APIService {CUSTOM} has insecureSkipTLSVerify" in record.getMessage()


@pytest.mark.parametrize("deleted", [False, True])
async def test_apiservice_changed_since_it_was_read_is_not_overwritten(
    store, registration, deleted
):
    path = store.register(CUSTOM, "adapter", "ns")
    services = await registration.fetch()
    if deleted:
        del store.objects[path]
    else:
        store.put(path, store.objects[path])

    assert not await registration.publish(services, (CA.certificate,))

    assert store.writes == []


async def test_refusals_are_raised(store, registration):
    store.register(CUSTOM, "adapter", "ns")
    services = await registration.fetch()
    store.refuse = lambda *_: 403

    with pytest.raises(errors.Refused, match="403"):
        await registration.fetch()
    with pytest.raises(errors.Refused, match="403"):
        await registration.publish(services, (CA.certificate,))


async def test_unavailable_apiservices_are_annotated_until_they_are_available(store, api):
    path = store.register(CUSTOM, "adapter", "ns")
    store.objects[store.register(EXTERNAL, "adapter", "ns")]["status"] = AVAILABLE

    def between(pauses):
        if pauses == 3:
            store.objects[path]["status"] = AVAILABLE

    slept = await running(api, pauses=5, between=between)

    assert slept == [0.5, 0.5, 1.0, 600.0, 600.0]
    assert {name for _, name, _ in store.writes} == {path}
    values = [
        document["metadata"]["annotations"]["gpu-metrics-adapter/listened-at"]
        for _, _, document in store.writes
    ]
    assert len(set(values)) == 3


async def test_annotations_stop_after_six_and_start_again_after_a_loss(store, api):
    path = store.register(CUSTOM, "adapter", "ns")
    writes_by_pause = []

    def between(pauses):
        writes_by_pause.append(len(store.writes))
        if pauses == 8:
            store.objects[path]["status"] = AVAILABLE
        if pauses == 9:
            store.objects[path]["status"] = {}

    slept = await running(api, pauses=10, between=between)

    assert slept == [0.5, 0.5, 1.0, 2.0, 4.0, 8.0, 600.0, 600.0, 600.0, 0.5]
    assert writes_by_pause == [1, 2, 3, 4, 5, 6, 6, 6, 6, 7]


@pytest.mark.parametrize(("jitter", "pause"), [(0.0, 540.0), (1.0, 660.0)])
async def test_available_apiservices_are_read_every_ten_minutes_with_jitter(
    store, api, jitter, pause
):
    store.objects[store.register(CUSTOM, "adapter", "ns")]["status"] = AVAILABLE

    assert await running(api, pauses=3, jitter=jitter) == [pause] * 3


async def test_failures_are_logged_once_and_retried_with_backoff(store, api, caplog):
    store.register(CUSTOM, "adapter", "ns")
    store.refuse = lambda *_: 403

    def between(pauses):
        if pauses == 6:
            store.refuse = lambda *_: 0

    slept = await running(api, pauses=7, between=between)

    assert slept == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 0.5]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_a_week_of_failures_does_not_end_the_controller(monkeypatch):
    async def fail(_):
        raise errors.Unreachable("no route")

    monkeypatch.setattr(APIServiceController, "fetch", fail)

    assert (await running(None, pauses=1030))[-1] == 600.0


async def test_forbidden_apiservice_does_not_affect_the_others(store, registration, caplog):
    store.register(CUSTOM, "adapter", "ns")
    store.register(EXTERNAL, "adapter", "ns")
    store.refuse = lambda method, path: 403 if path.endswith(EXTERNAL) else 0

    for _ in range(2):
        (service,) = await registration.fetch()

    assert service.name == CUSTOM
    assert registration.check().fact == f"{CUSTOM} not available, {EXTERNAL} forbidden to read"
    assert registration.check().state is State.WARNING
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert f"APIService {EXTERNAL} is ignored because it cannot be read" in caplog.text
