"""Ten renewals of the CA under load: two replicas, clients that trust only the caBundle."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import datetime as dt
import random
import ssl

import pytest
from cryptography import x509

from adapter.server.tls import context, serving_certificate
from adapter.server.tls.apiservices import APIServiceController
from certs import secret
from certs.issue import issue_temporary
from certs.renew import CertificatePolicy
from tests.store import REGISTRATION
from tools.certificates import NOW

pytestmark = pytest.mark.slow

SERVICE, NAMESPACE = "gpu-metrics-adapter", "gpu-metrics"
NAME = f"{SERVICE}.{NAMESPACE}.svc"
API_SERVICE = "v1beta1.custom.metrics.k8s.io"
TICK = dt.timedelta(minutes=5)
POLICY = dataclasses.replace(
    CertificatePolicy.of_service(SERVICE, NAMESPACE),
    serving=dt.timedelta(hours=1),
    authority=dt.timedelta(hours=2),
    propagation=2 * TICK,
)
RENEWALS = 10
MISSED = 2
"""Consecutive attempts that a replica may miss."""


@dataclasses.dataclass
class Time:
    now: dt.datetime = NOW
    ticked: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    def tick(self):
        self.now += TICK
        self.ticked.set()
        self.ticked = asyncio.Event()


class Replica:
    def __init__(self, kube, time, jitter):
        self.tls = context.ReloadingContext(issue_temporary(("127.0.0.1",), now=NOW))
        registration = APIServiceController(
            kube, [API_SERVICE], service=SERVICE, namespace=NAMESPACE
        )
        self.controller = serving_certificate.ServingCertificateController(
            kube,
            registration,
            self.tls.serve,
            name=secret.name_of(SERVICE),
            namespace=NAMESPACE,
            policy=POLICY,
            clock=lambda: time.now,
            jitter=lambda: jitter,
        )

    async def listen(self):
        self.server = await asyncio.start_server(self._echo, "127.0.0.1", 0, ssl=self.tls.context)
        self.port = self.server.sockets[0].getsockname()[1]

    async def _echo(self, reader, writer):
        while line := await reader.readline():
            writer.write(line)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class Client:
    """Sends requests; records each missing response and each untrusted certificate as a failure."""

    def __init__(self, store, replicas, time):
        self.store = store
        self.replicas = replicas
        self.time = time
        self.failures = []
        self.responses = 0
        self.over = False

    @contextlib.asynccontextmanager
    async def connected(self, replica, *, late=False):
        """Connect with the CAs of the current caBundle; if `late`, only after the next tick."""
        spec = self.store.objects[REGISTRATION + API_SERVICE]["spec"]
        client = ssl.create_default_context(cadata=base64.b64decode(spec["caBundle"]).decode())
        # X509_V_FLAG_NO_CHECK_TIME: the replicas have a clock of their own.
        client.verify_flags |= 0x200000
        if late and not self.over:
            await self.time.ticked.wait()
        started = self.time.now  # the clock may tick during the handshake
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", replica.port, ssl=client, server_hostname=NAME
        )
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        certificate = x509.load_der_x509_certificate(der)
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if begin > self.time.now or started >= end:
            self.failures.append(f"at {started}: valid from {begin} until {end}")
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def request(self, reader, writer):
        writer.write(b"ping\n")
        assert await reader.readline() == b"ping\n"
        self.responses += 1

    async def reconnect(self, *, late):
        while not self.over:
            for replica in self.replicas:
                try:
                    async with self.connected(replica, late=late) as connection:
                        await self.request(*connection)
                except (OSError, AssertionError) as error:
                    self.failures.append(f"at {self.time.now}: {error!r}")
                await asyncio.sleep(0.002)

    async def stay_connected(self, replica):
        async with self.connected(replica) as connection:
            while not self.over:
                try:
                    await self.request(*connection)
                except (OSError, AssertionError) as error:
                    self.failures.append(f"at {self.time.now}: open connection: {error!r}")
                await asyncio.sleep(0.005)


@pytest.fixture
def store(store):
    name = secret.name_of(SERVICE)
    store.put(f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}", {"type": "Opaque"})
    store.register(API_SERVICE, SERVICE, NAMESPACE)
    return store


async def test_ten_renewals_lose_no_request(store, api):
    time, rng = Time(), random.Random(1)
    replicas = [Replica(api, time, jitter) for jitter in (0.1, 0.9)]
    await asyncio.gather(*(each.controller.attempt() for each in replicas))
    for each in replicas:
        await each.listen()
    client = Client(store, replicas, time)
    load = [
        asyncio.create_task(client.reconnect(late=False)),
        asyncio.create_task(client.reconnect(late=True)),
        *(asyncio.create_task(client.stay_connected(each)) for each in replicas),
    ]
    leaves, authorities, missed = set(), set(), [0, 0]

    while len(authorities) <= RENEWALS:
        await asyncio.sleep(0.01)
        time.tick()
        attempts = []
        for index, each in enumerate(replicas):
            leaves.add(each.tls.bundle.leaf)
            authorities.add(each.tls.bundle.chain[-1])
            missed[index] = missed[index] + 1 if rng.random() < 0.5 else 0
            if missed[index] > MISSED:
                missed[index] = 0
            if not missed[index]:
                attempts.append(each.controller.attempt())
        assert all(await asyncio.gather(*attempts))

    client.over = True
    time.tick()
    await asyncio.gather(*load)
    for each in replicas:
        each.server.close()
    assert client.failures == []
    assert len(leaves) > RENEWALS
    assert client.responses > 100
