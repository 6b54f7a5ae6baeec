from __future__ import annotations

import asyncio
import base64
import datetime as dt
import logging
import re

import pytest
from cryptography import x509
from prometheus_client import CollectorRegistry

from adapter import telemetry
from adapter.server.tls import serving_certificate
from adapter.server.tls.apiservices import APIServiceController
from certs import renew, secret
from certs.renew import CertificatePolicy
from tools.certificates import DAY, NOW
from tools.waiting import running

SERVICE, NAMESPACE = "gpu-metrics-adapter", "gpu-metrics"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/gpu-metrics-adapter-tls"
API_SERVICES = ("v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io")
POLICY = CertificatePolicy.of_service(SERVICE, NAMESPACE)
EMPTY = {"kind": "Secret", "type": "Opaque"}
MINUTES_5 = dt.timedelta(minutes=5)


CREATE = (
    "apply the manifests again, or run "
    "`kubectl create secret generic gpu-metrics-adapter-tls --namespace=gpu-metrics`"
)


class Replica:
    """A controller, what it serves, and its clock."""

    def __init__(self, kube, *, jitter=0.0):
        self.now = NOW
        self.served = []
        self.registry = CollectorRegistry()
        self.slept = []
        registration = APIServiceController(
            kube, API_SERVICES, service=SERVICE, namespace=NAMESPACE
        )
        self.controller = serving_certificate.ServingCertificateController(
            kube,
            registration,
            self.served.append,
            name=secret.name_of(SERVICE),
            namespace=NAMESPACE,
            policy=POLICY,
            meter=telemetry.CertificateMetrics(self.registry),
            clock=lambda: self.now,
            jitter=lambda: jitter,
            sleep=self.sleep,
        )

    async def sleep(self, seconds):
        self.slept.append(seconds)
        await self.on_sleep()

    async def on_sleep(self):
        """Replaced by a test of `run`."""

    def metric(self, name, **labels):
        return self.registry.get_sample_value(f"gpu_metrics_adapter_{name}", labels)

    def outcomes(self):
        """Return how many attempts had each outcome."""
        counts = {
            each: self.metric("serving_certificate_reconciles_total", outcome=each)
            for each in ("ok", "failed")
        }
        return {outcome: count for outcome, count in counts.items() if count}

    @property
    def authority(self):
        return self.served[-1].chain[-1]


@pytest.fixture
def store(store):
    store.put(SECRET, EMPTY)
    for name in API_SERVICES:
        store.register(name, SERVICE, NAMESPACE)
    return store


@pytest.fixture
def replica(api):
    return Replica(api)


def published(store):
    """Return the CAs in each caBundle."""
    bundles = []
    for name in API_SERVICES:
        spec = store.objects[f"/apis/apiregistration.k8s.io/v1/apiservices/{name}"]["spec"]
        pem = base64.b64decode(spec.get("caBundle", ""))
        bundles.append(tuple(x509.load_pem_x509_certificates(pem)) if pem else ())
    return bundles


def state_in(store):
    return secret.read(store.objects[SECRET])


async def test_first_start_creates_a_ca_a_certificate_and_the_ca_bundles(store, replica):
    assert await replica.controller.attempt()

    (bundle,) = replica.served
    assert bundle.names == (
        "gpu-metrics-adapter.gpu-metrics.svc",
        "gpu-metrics-adapter.gpu-metrics",
        "gpu-metrics-adapter",
        "gpu-metrics-adapter.gpu-metrics.svc.cluster.local",
    )
    assert bundle.until == NOW + 7 * DAY
    assert state_in(store).serving.chain == bundle.chain
    assert published(store) == [(replica.authority,)] * 2
    until = replica.authority.not_valid_after_utc.timestamp()
    assert replica.metric("serving_ca_expiry_timestamp_seconds") == until
    assert replica.outcomes() == {"ok": 1}
    assert replica.controller.check().fact == f"CA valid until {NOW + 365 * DAY}"


async def test_reconciling_a_current_state_writes_nothing(store, replica):
    await replica.controller.attempt()
    before = len(store.writes)

    assert await replica.controller.attempt()

    assert len(store.writes) == before
    assert len(replica.served) == 1


async def test_two_replicas_that_start_together_share_one_ca(store, api):
    store.delay = 0.01
    one, other = Replica(api), Replica(api, jitter=1.0)

    assert await asyncio.gather(one.controller.attempt(), other.controller.attempt()) == [
        True,
        True,
    ]

    assert [method for method, path, _ in store.writes if path == SECRET] == ["PUT"]
    assert one.authority == other.authority == state_in(store).authority.certificate
    assert one.served[-1].leaf == other.served[-1].leaf
    assert published(store) == [(one.authority,)] * 2


async def test_existing_secret_is_used(store, replica):
    state = renew.create(POLICY, now=NOW - DAY)
    store.put(SECRET, secret.document(state, name="x", namespace=NAMESPACE))

    await replica.controller.attempt()

    assert replica.served[0].chain == state.serving.chain
    assert published(store) == [(state.authority.certificate,)] * 2


async def test_empty_secret_is_filled_and_keeps_its_labels(store, replica):
    store.put(SECRET, {"type": "Opaque", "metadata": {"labels": {"by": "somebody"}}})

    assert await replica.controller.attempt()

    assert store.objects[SECRET]["metadata"]["labels"] == {"by": "somebody"}
    assert state_in(store).authority.certificate == replica.authority


async def test_malformed_secret_is_left_alone(store, replica, caplog):
    store.put(SECRET, {"data": {"tls.crt": "aGk="}})

    assert [await replica.controller.attempt() for _ in range(2)] == [False, False]

    assert store.writes == []
    status = replica.controller.check().fact
    assert "; Secret gpu-metrics/gpu-metrics-adapter-tls: ca.crt and ca.key: " in status
    assert re.search(f"; delete the Secret and {CREATE}$", status)
    assert [record.levelno for record in caplog.records].count(logging.WARNING) == 1
    assert replica.outcomes() == {"failed": 2}


async def test_missing_secret_is_not_created(store, replica):
    del store.objects[SECRET]

    assert not await replica.controller.attempt()

    assert store.writes == []
    message = f"Secret gpu-metrics/gpu-metrics-adapter-tls does not exist: {CREATE}"
    assert message in replica.controller.check().fact


async def test_secret_of_another_type_is_left_alone(store, replica):
    store.put(SECRET, {"type": "kubernetes.io/service-account-token"})

    assert not await replica.controller.attempt()

    assert store.writes == []
    message = "type kubernetes.io/service-account-token is not Opaque; delete the Secret and "
    assert f": {message}{CREATE}" in replica.controller.check().fact


async def test_renewed_certificate_is_served_by_all_replicas(store, api):
    one, other = Replica(api), Replica(api, jitter=1.0)
    for each in (one, other):
        await each.controller.attempt()

    one.now = other.now = NOW + 4.5 * DAY
    for each in (other, one):
        await each.controller.attempt()
    other.now += MINUTES_5
    await other.controller.attempt()

    assert [len(one.served), len(other.served)] == [2, 2]
    assert one.served[1].leaf == other.served[1].leaf
    assert one.authority == other.authority == one.served[0].chain[-1]


async def test_ca_is_published_before_it_issues_and_until_its_last_certificate_expires(
    store, replica
):
    await replica.controller.attempt()
    old = replica.authority
    steps = []

    expired = 226 * DAY + POLICY.propagation
    for after in (219 * DAY, 219 * DAY + POLICY.propagation, expired, expired + MINUTES_5):
        replica.now = NOW + after
        await replica.controller.attempt()
        steps.append((replica.authority, published(store)))

    new = state_in(store).authority.certificate
    assert new != old
    both = [(new, old)] * 2
    assert steps == [(old, both), (new, both), (new, both), (new, [(new,)] * 2)]


@pytest.mark.slow
@pytest.mark.parametrize("status", [403, 409, 500])
async def test_ca_that_cannot_be_published_does_not_issue(store, replica, status):
    await replica.controller.attempt()
    old = replica.authority
    store.refuse = lambda method, _: status if method == "PATCH" else 0

    for days in (219, 220, 221):
        replica.now = NOW + days * DAY
        await replica.controller.attempt()

    assert replica.authority == old
    assert state_in(store).next_ca is not None
    assert (str(status) if status != 409 else "conflicts") in replica.controller.check().fact


async def test_certificates_are_issued_without_permission_to_read_apiservices(
    store, replica, caplog
):
    store.refuse = lambda _, path: 403 if "apiservices" in path else 0

    assert [await replica.controller.attempt() for _ in range(2)] == [True, True]

    assert len(replica.served) == 1
    assert "403" in replica.controller.check().fact
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "the API server may refuse the serving certificate" in warnings[0].getMessage()
    store.refuse = lambda _, __: 0
    await replica.controller.attempt()
    assert "403" not in replica.controller.check().fact


async def test_emptying_the_secret_replaces_the_ca_without_an_outage(store, replica):
    await replica.controller.attempt()
    old = replica.authority
    store.put(SECRET, EMPTY)
    replica.now += MINUTES_5

    await replica.controller.attempt()

    assert replica.authority == old
    assert state_in(store).serving.leaf == replica.served[0].leaf
    new = state_in(store).next_ca.certificate
    assert published(store) == [(new, old)] * 2
    replica.now += POLICY.propagation
    await replica.controller.attempt()
    assert replica.authority == new


@pytest.mark.parametrize("status", [404, 409])
async def test_conflict_is_resolved_by_another_attempt(store, replica, status):
    refusals = [status, status]
    store.refuse = lambda verb, path: (
        refusals.pop() if (verb, path) == ("PUT", SECRET) and refusals else 0
    )

    assert await replica.controller.attempt()

    assert refusals == []
    assert len(replica.served) == 1


async def test_repeated_conflicts_are_a_failure(store, replica):
    store.refuse = lambda method, _: 409 if method == "PUT" else 0

    assert not await replica.controller.attempt()

    assert "5 attempts failed with conflicts" in replica.controller.check().fact


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "status", "message"), [("GET", 403, "403"), ("GET", 500, "500"), ("PUT", 403, "403")]
)
async def test_refusal_is_reported_and_recovers(store, replica, method, status, message):
    store.refuse = lambda verb, path: status if verb == method and "secrets" in path else 0

    assert not await replica.controller.attempt()

    assert replica.served == []
    assert re.search(f"{method} /api/v1/.*secrets.*{message}", replica.controller.check().fact)
    store.refuse = lambda _, __: 0
    assert await replica.controller.attempt()
    assert replica.outcomes() == {"failed": 1, "ok": 1}


async def test_failure_leaves_the_certificate_in_use(store, replica):
    await replica.controller.attempt()
    replica.now += MINUTES_5
    store.refuse = lambda _, __: 500

    assert not await replica.controller.attempt()

    assert len(replica.served) == 1
    assert replica.controller.check().fact.startswith(f"CA valid until {NOW + 365 * DAY}; ")


def test_status_before_the_first_attempt_names_no_ca(replica):
    assert replica.controller.check().fact == "no CA is shared with other replicas"


async def test_secret_is_read_every_five_minutes_while_the_ca_bundles_are_right(store, replica):
    await replica.controller.attempt()
    paths = []
    store.refuse = lambda _, path: paths.append(path) or 0

    for _ in range(10):
        replica.now += dt.timedelta(minutes=1)
        assert await replica.controller.attempt()

    assert paths.count(SECRET) == 2
    assert len(paths) == 2 + 10 * len(API_SERVICES)


async def test_failure_to_read_apiservices_is_forgotten_when_they_can_be_read_again(store, replica):
    await replica.controller.attempt()
    store.refuse = lambda *_: 500
    await replica.controller.attempt()
    assert "500" in replica.controller.check().fact

    store.refuse = lambda *_: 0
    await replica.controller.attempt()

    assert replica.controller.check().fact == f"CA valid until {NOW + 365 * DAY}"


async def test_changed_ca_bundle_is_restored_by_the_next_attempt(store, replica):
    await replica.controller.attempt()
    store.register(API_SERVICES[0], SERVICE, NAMESPACE)

    assert await replica.controller.attempt()

    assert published(store) == [(replica.authority,)] * 2


async def test_a_new_secret_keeps_the_ca_that_other_replicas_serve(store, api):
    present = Replica(api)
    await present.controller.attempt()
    old = present.authority
    store.put(SECRET, EMPTY)
    started = [Replica(api), Replica(api)]
    for each in started:
        await each.controller.attempt()

    new = started[0].authority
    assert started[1].authority == new != old
    assert published(store) == [(new, old)] * 2
    assert present.authority == old

    await present.controller.attempt()  # a minute later at the latest
    assert present.authority == new

    for each in (present, *started):
        each.now += MINUTES_5
        await each.controller.attempt()
    assert published(store) == [(new,)] * 2


async def test_run_reconciles_every_minute_and_retries_failures_with_backoff(store, replica):
    store.refuse = lambda _, __: 500
    await replica.controller.attempt()
    enough = asyncio.Event()

    async def on_sleep():
        if len(replica.slept) == 5:
            store.refuse = lambda _, __: 0
        if len(replica.slept) == 8:
            enough.set()
            await asyncio.Event().wait()

    replica.on_sleep = on_sleep
    async with running(replica.controller.run()), asyncio.timeout(90):
        await enough.wait()

    assert replica.slept == [1.0, 2.0, 4.0, 8.0, 16.0, 54.0, 54.0, 54.0]


async def test_lagging_replica_does_not_overwrite_newer_ca_bundles(store, api):
    lagging, ahead = Replica(api), Replica(api)
    await lagging.controller.attempt()
    await ahead.controller.attempt()
    overtaken = False

    def overtake(method, path):
        nonlocal overtaken
        if method == "PATCH" and not overtaken:
            # The other replica announces a new CA before the lagging one writes its decision.
            overtaken = True
            state = renew.announce(state_in(store), POLICY, now=NOW)
            store.put(SECRET, secret.updated(store.objects[SECRET], state))
            service = store.objects[path]
            bundle = base64.b64encode(state.ca_bundle).decode()
            store.put(path, {**service, "spec": {**service["spec"], "caBundle": bundle}})
        return 0

    for name in API_SERVICES:
        store.register(name, SERVICE, NAMESPACE)
    store.refuse = overtake
    assert await lagging.controller.attempt()

    assert overtaken
    assert published(store) == [state_in(store).trusted] * 2
    assert len(state_in(store).trusted) == 2
