"""The manifests on a real API server, and the certificate controllers with their permissions."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import time

import pytest
from aiohttp import web

from adapter.api.groups import GROUPS
from adapter.clients.kubernetes import Kube
from adapter.tls import context, serving_certificate
from adapter.tls.apiservices import APIServiceController
from certs.issue import issue_temporary
from tests.cluster import server
from tests.manifests.test_manifests import MANIFESTS, NAME, NAMESPACE

API_SERVICES = [f"{version}.{group.NAME}" for group in GROUPS for version in group.VERSIONS]
PATH = "/apis/apiregistration.k8s.io/v1/apiservices/"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/{serving_certificate.secret_name(NAME)}"
NOW = dt.datetime.now(dt.UTC)


@pytest.fixture(scope="module")
def applied(control_plane):
    with server.installed(control_plane):
        yield control_plane


class Replica:
    """Server with the adapter's certificate controllers that responds to any request."""

    def __init__(self, kube):
        self.now = NOW
        self.live = context.ReloadingContext(issue_temporary(("127.0.0.1",), now=NOW))
        self.apiservices = APIServiceController(
            kube, API_SERVICES, service=NAME, namespace=NAMESPACE
        )
        self.controller = serving_certificate.ServingCertificateController(
            kube,
            self.apiservices,
            self.live.serve,
            name=serving_certificate.secret_name(NAME),
            namespace=NAMESPACE,
            policy=serving_certificate.policy(NAME, NAMESPACE),
            clock=lambda: self.now,
        )

    @contextlib.asynccontextmanager
    async def listening(self):
        app = web.Application()
        app.router.add_get("/{path:.*}", _respond)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self.live.context)
        await site.start()
        port = runner.addresses[0][1]
        try:
            yield port
        finally:
            await runner.cleanup()
            await _close_handshakes(port)


async def _close_handshakes(port):
    """Close connections that are still in their handshake, which the runner does not know."""
    for transport in list(asyncio.get_running_loop()._transports.values()):
        if transport.get_extra_info("sockname")[1] == port:
            transport.abort()
    await asyncio.sleep(0)


async def _respond(_request):
    return web.json_response({})


@pytest.fixture
async def kube(applied):
    kubeconfig = applied.account_kubeconfig(NAME, NAMESPACE)
    connected = await Kube.connect(str(kubeconfig), qps=1000, burst=1000)
    yield connected
    await connected.close()


def published(applied):
    return [
        base64.b64decode(applied.admin.get(PATH + name)["spec"].get("caBundle") or "")
        for name in API_SERVICES
    ]


async def test_two_replicas_share_a_ca_and_are_available_within_three_seconds(applied, kube):
    one, other = Replica(kube), Replica(kube)

    assert await asyncio.gather(one.controller.attempt(), other.controller.attempt()) == [
        True,
        True,
    ]

    state = applied.admin.get(SECRET)["data"]
    assert one.live.bundle.leaf == other.live.bundle.leaf
    assert published(applied) == [base64.b64decode(state["ca.crt"])] * len(API_SERVICES)
    async with one.listening() as port:
        for name in API_SERVICES:
            await asyncio.to_thread(
                applied.api_service, name, service=NAME, namespace=NAMESPACE, port=port
            )
        started = time.monotonic()
        running = asyncio.create_task(one.apiservices.run())
        for name in API_SERVICES:
            await asyncio.to_thread(applied.wait_available, name, seconds=10)
        assert time.monotonic() - started < 3
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_the_permissions_suffice_to_rotate_the_ca(applied, kube):
    replica = Replica(kube)
    await replica.controller.attempt()
    old = replica.live.bundle.ca_pem
    policy = serving_certificate.policy(NAME, NAMESPACE)
    steps = []

    for after in (dt.timedelta(days=300), policy.propagation, policy.serving):
        replica.now += after
        assert await replica.controller.attempt()
        steps.append((replica.live.bundle.ca_pem, published(applied)))

    new = replica.live.bundle.ca_pem
    both = [new + old] * len(API_SERVICES)
    assert steps == [(old, both), (new, both), (new, [new] * len(API_SERVICES))]


def test_the_examples_are_accepted_without_a_warning(applied):
    output = applied.kubectl(
        "apply", "--dry-run=server", "--warnings-as-errors", "-f", MANIFESTS / "examples"
    )

    assert output.count("created (server dry run)") == 5
