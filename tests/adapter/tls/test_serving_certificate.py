from __future__ import annotations

import asyncio
import base64
import datetime as dt
import logging

import pytest
from cryptography import x509

from adapter import errors
from adapter.tls import serving_certificate
from adapter.tls.apiservices import APIServiceController
from certs import renew, secret
from tests.certificates import DAY, NOW
from tests.fakes.store import Store

SERVICE, NAMESPACE = "gpu-metrics-adapter", "gpu-metrics"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
SECRET = f"{SECRETS}/gpu-metrics-adapter-tls"
API_SERVICES = ("v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io")
POLICY = serving_certificate.policy(SERVICE, NAMESPACE)


class Meter:
    def __init__(self):
        self.until = []
        self.outcomes = []

    def authority(self, until):
        self.until.append(until)

    def looked(self, outcome):
        self.outcomes.append(outcome)


class Replica:
    """An Identity, what it serves, and the time that it is told."""

    def __init__(self, kube, *, jitter=0.0):
        self.now = NOW
        self.served = []
        self.meter = Meter()
        self.slept = []
        self.sleep = asyncio.sleep
        registration = APIServiceController(
            kube, API_SERVICES, service=SERVICE, namespace=NAMESPACE
        )
        self.identity = serving_certificate.ServingCertificateController(
            kube,
            registration,
            self.served.append,
            name=serving_certificate.secret_name(SERVICE),
            namespace=NAMESPACE,
            policy=POLICY,
            meter=self.meter,
            interval=10.0,
            clock=lambda: self.now,
            jitter=lambda: jitter,
            sleep=self.pause,
        )

    async def pause(self, seconds):
        await self.sleep(seconds)

    @property
    def authority(self):
        return self.served[-1].chain[-1]


@pytest.fixture
def store():
    store = Store()
    for name in API_SERVICES:
        store.register(name, SERVICE, NAMESPACE)
    return store


@pytest.fixture
def cluster(store):
    return store


@pytest.fixture
def replica(api):
    return Replica(api)


def published(store):
    """The authorities in each caBundle."""
    found = []
    for name in API_SERVICES:
        spec = store.objects[f"/apis/apiregistration.k8s.io/v1/apiservices/{name}"]["spec"]
        pem = base64.b64decode(spec.get("caBundle", ""))
        found.append(tuple(x509.load_pem_x509_certificates(pem)) if pem else ())
    return found


def held(store):
    return secret.read(store.objects[SECRET])


async def test_an_empty_cluster_gets_an_authority_a_certificate_and_its_bundle(store, replica):
    assert await replica.identity.attempt()

    (bundle,) = replica.served
    assert bundle.names == (
        "gpu-metrics-adapter.gpu-metrics.svc",
        "gpu-metrics-adapter.gpu-metrics",
        "gpu-metrics-adapter",
        "gpu-metrics-adapter.gpu-metrics.svc.cluster.local",
    )
    assert bundle.until == NOW + 7 * DAY
    assert held(store).serving.chain == bundle.chain
    assert published(store) == [(replica.authority,)] * 2
    assert replica.meter.until == [replica.authority.not_valid_after_utc.timestamp()]
    assert replica.meter.outcomes == ["ok"]
    assert replica.identity.check() == f"authority good until {NOW + 365 * DAY}"


async def test_a_look_at_what_is_well_writes_nothing(store, replica):
    await replica.identity.attempt()
    before = len(store.writes)

    assert await replica.identity.attempt()

    assert len(store.writes) == before
    assert len(replica.served) == 1


async def test_two_that_start_at_once_end_with_one_authority_that_both_are_trusted_by(store, api):
    store.delay = 0.01
    one, other = Replica(api), Replica(api, jitter=1.0)

    assert await asyncio.gather(one.identity.attempt(), other.identity.attempt()) == [True, True]

    assert [method for method, path, _ in store.writes if path == SECRET] == ["POST"]
    assert one.authority == other.authority == held(store).authority.certificate
    assert one.served[-1].leaf == other.served[-1].leaf
    assert published(store) == [(one.authority,)] * 2


async def test_a_secret_that_was_made_beforehand_is_used(store, replica):
    state = renew.create(POLICY, now=NOW - DAY)
    store.put(SECRET, secret.document(state, name="x", namespace=NAMESPACE))

    await replica.identity.attempt()

    assert replica.served[0].chain == state.serving.chain
    assert published(store) == [(state.authority.certificate,)] * 2


async def test_an_empty_secret_is_filled_and_keeps_its_labels(store, replica):
    store.put(SECRET, {"type": "Opaque", "metadata": {"labels": {"by": "somebody"}}})

    assert await replica.identity.attempt()

    assert store.objects[SECRET]["metadata"]["labels"] == {"by": "somebody"}
    assert held(store).authority.certificate == replica.authority


async def test_a_secret_that_cannot_be_read_is_left_alone(store, replica, caplog):
    store.put(SECRET, {"data": {"tls.crt": "aGk="}})

    assert [await replica.identity.attempt() for _ in range(2)] == [False, False]

    assert store.writes == []
    message = (
        "Secret gpu-metrics/gpu-metrics-adapter-tls: ca.crt and ca.key: cannot read a certificate"
    )
    with pytest.raises(RuntimeError, match=f"^{message}.*; delete it, and a new one is made$"):
        replica.identity.check()
    assert [record.levelno for record in caplog.records].count(logging.WARNING) == 1
    assert replica.meter.outcomes == ["failed", "failed"]


async def test_a_certificate_is_renewed_and_replicas_take_it_over(store, api):
    one, other = Replica(api), Replica(api, jitter=1.0)
    for each in (one, other):
        await each.identity.attempt()

    one.now = other.now = NOW + 4.5 * DAY
    for each in (other, one, other):
        await each.identity.attempt()

    assert [len(one.served), len(other.served)] == [2, 2]
    assert one.served[1].leaf == other.served[1].leaf
    assert one.authority == other.authority == one.served[0].chain[-1]


async def test_a_new_authority_is_published_before_it_issues_and_the_old_one_after(store, replica):
    await replica.identity.attempt()
    old = replica.authority
    steps = []

    for after in (219 * DAY, 219 * DAY + POLICY.settle, 226 * DAY + POLICY.settle):
        replica.now = NOW + after
        await replica.identity.attempt()
        steps.append((replica.authority, published(store)))

    new = held(store).authority.certificate
    assert new != old
    assert steps == [(old, [(new, old)] * 2), (new, [(new, old)] * 2), (new, [(new,)] * 2)]


@pytest.mark.parametrize("status", [403, 409, 500])
async def test_a_new_authority_that_cannot_be_published_does_not_issue(store, replica, status):
    await replica.identity.attempt()
    old = replica.authority
    store.refuse = lambda method, _: status if method == "PATCH" else 0

    for days in (219, 220, 221):
        replica.now = NOW + days * DAY
        await replica.identity.attempt()

    assert replica.authority == old
    assert held(store).next_ca is not None
    assert str(status) in replica.identity.check() or "others change it" in replica.identity.check()


async def test_without_a_right_to_read_apiservices_certificates_are_issued_all_the_same(
    store, replica, caplog
):
    store.refuse = lambda _, path: 403 if "apiservices" in path else 0

    assert [await replica.identity.attempt() for _ in range(2)] == [True, True]

    assert len(replica.served) == 1
    assert "403" in replica.identity.check()
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "the API server may refuse our certificate" in warnings[0].getMessage()
    store.refuse = lambda _, __: 0
    await replica.identity.attempt()
    assert "403" not in replica.identity.check()


async def test_a_deleted_secret_begins_a_change_of_authority_without_an_outage(store, replica):
    await replica.identity.attempt()
    old = replica.authority
    del store.objects[SECRET]

    await replica.identity.attempt()

    assert replica.authority == old
    assert held(store).serving.leaf == replica.served[0].leaf
    new = held(store).next_ca.certificate
    assert published(store) == [(new, old)] * 2
    replica.now += POLICY.settle
    await replica.identity.attempt()
    assert replica.authority == new


@pytest.mark.parametrize(("method", "status"), [("POST", 409), ("PUT", 409), ("PUT", 404)])
async def test_a_write_that_comes_too_late_is_decided_anew(store, replica, method, status):
    if method == "PUT":
        store.put(SECRET, {})
    times = [status, status]
    store.refuse = lambda asked, path: (
        times.pop() if asked == method and path.startswith(SECRETS) and times else 0
    )

    assert await replica.identity.attempt()

    assert times == []
    assert len(replica.served) == 1


async def test_a_conflict_without_end_is_a_failure(store, replica):
    store.refuse = lambda method, _: 409 if method == "POST" else 0

    assert not await replica.identity.attempt()

    with pytest.raises(RuntimeError, match="others change it all the time"):
        replica.identity.check()


@pytest.mark.parametrize(
    ("method", "status", "message"),
    [("GET", 403, "403"), ("GET", 500, "500"), ("POST", 404, "404"), ("POST", 403, "403")],
)
async def test_what_the_api_server_refuses_is_told_and_tried_again(
    store, replica, method, status, message
):
    store.refuse = lambda asked, path: status if asked == method and "secrets" in path else 0

    assert not await replica.identity.attempt()

    assert replica.served == []
    with pytest.raises(RuntimeError, match=f"{method} /api/v1/.*secrets.*{message}"):
        replica.identity.check()
    store.refuse = lambda _, __: 0
    assert await replica.identity.attempt()
    assert replica.meter.outcomes == ["failed", "ok"]


async def test_what_is_served_outlives_a_failure(store, replica):
    await replica.identity.attempt()
    store.refuse = lambda _, __: 500

    assert not await replica.identity.attempt()

    assert len(replica.served) == 1
    assert replica.identity.check().startswith(f"authority good until {NOW + 365 * DAY}; ")


def test_before_the_first_look_it_is_not_ready():
    async def never(*_):
        raise errors.Unreachable("nobody there")

    fresh = Replica(type("Api", (), {"get": never})())
    with pytest.raises(RuntimeError, match="was not looked at yet"):
        fresh.identity.check()


async def test_it_looks_at_intervals_and_sooner_after_failures(store, replica):
    store.refuse = lambda _, __: 500
    await replica.identity.attempt()
    enough = asyncio.Event()

    async def sleep(seconds):
        replica.slept.append(seconds)
        if len(replica.slept) == 5:
            store.refuse = lambda _, __: 0
        if len(replica.slept) == 8:
            enough.set()
            await asyncio.Event().wait()

    replica.sleep = sleep
    running = asyncio.create_task(replica.identity.run())
    async with asyncio.timeout(20):
        await enough.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert replica.slept == [1.0, 2.0, 4.0, 8.0, 9.0, 9.0, 9.0, 9.0]


async def test_a_replica_that_lags_does_not_take_back_what_another_published(store, api):
    lagging, ahead = Replica(api), Replica(api)
    await lagging.identity.attempt()
    await ahead.identity.attempt()
    overtaken = False

    def overtake(method, path):
        nonlocal overtaken
        if method == "PATCH" and not overtaken:
            # Between what the lagging one decided and what it writes, the other goes on.
            overtaken = True
            state = renew.announce(held(store), POLICY, now=NOW)
            store.put(SECRET, secret.replaced(store.objects[SECRET], state))
            service = store.objects[path]
            bundle = base64.b64encode(state.ca_bundle).decode()
            store.put(path, {**service, "spec": {**service["spec"], "caBundle": bundle}})
        return 0

    for name in API_SERVICES:
        store.register(name, SERVICE, NAMESPACE)
    store.refuse = overtake
    assert await lagging.identity.attempt()

    assert overtaken
    assert published(store) == [held(store).trusted] * 2
    assert len(held(store).trusted) == 2


def test_the_default_names_are_those_of_the_manifests():
    assert serving_certificate.secret_name("gpu-metrics-adapter") == "gpu-metrics-adapter-tls"
    assert POLICY.serving == dt.timedelta(days=7)
