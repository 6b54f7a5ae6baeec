"""The manifests on a real API server, and the certificate controllers with their permissions."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import functools
import gc
import re
from typing import Any

import pytest
import yaml
from aiohttp import web

from adapter import errors
from adapter.cli.commands import certs
from adapter.clients.kubernetes import Kube
from adapter.server.tls import context, serving_certificate
from adapter.server.tls.apiservices import APIServiceController
from certs import renew, secret
from certs.issue import issue_temporary
from certs.renew import CertificatePolicy
from rules.metrics_apis import CUSTOM, EXTERNAL
from tests.manifests.chart.test_installers import application
from tests.manifests.test_manifests import MANIFESTS, NAME, NAMESPACE, documented, write_overlay
from tools.cluster import server
from tools.real.prometheus import wait_for

API_SERVICES = [*CUSTOM.apiservices, *EXTERNAL.apiservices]
PATH = "/apis/apiregistration.k8s.io/v1/apiservices/"
TLS = secret.name_of(NAME)
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/{TLS}"
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
            name=TLS,
            namespace=NAMESPACE,
            policy=CertificatePolicy.of_service(NAME, NAMESPACE),
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
            gc.collect()  # otherwise a later test is blamed


async def _close_handshakes(port):
    """Close connections that are still in their handshake, which the runner does not know."""
    loop: Any = asyncio.get_running_loop()
    for transport in list(loop._transports.values()):
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


def written(document):
    """Yield JSON pointers of the fields that the adapter wrote."""

    def pointers(fields, before):
        for name, below in fields.items():
            if name.startswith("f:"):
                pointer = f"{before}/{name[2:].replace('/', '~1')}"
                yield from pointers(below, pointer) if below else (pointer,)

    for each in document["metadata"]["managedFields"]:
        if each["manager"] == "gpu-metrics-adapter":
            yield from pointers(each["fieldsV1"], "")


async def test_argo_cd_and_flux_ignore_exactly_what_the_adapter_writes(applied, kube):
    # Keep this test first: the adapter annotates APIServices that no server answers for yet.
    replica = Replica(kube)
    assert await replica.controller.attempt()
    running = asyncio.create_task(replica.apiservices.run())
    ignored = application()[2]

    def as_documented(kind, path):
        pointers = written(applied.admin.get(path))
        return {re.sub("^/data/.*", "/data", each) for each in pointers} == ignored[kind]

    for kind, path in (("Secret", SECRET), ("APIService", PATH + API_SERVICES[0])):
        what = f"the fields of {path} are {ignored[kind]}"
        await asyncio.to_thread(wait_for, functools.partial(as_documented, kind, path), what)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


# asyncio forgets a TLS connection that the API server closes while reading is paused.
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
async def test_two_replicas_share_a_ca_and_are_available_at_once(applied, kube):
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
        running = asyncio.create_task(one.apiservices.run())
        for name in API_SERVICES:
            # Without a change of the APIService, the aggregator tries again only after 30 s.
            await asyncio.to_thread(applied.wait_available, name)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_the_permissions_suffice_to_rotate_the_ca(applied, kube):
    replica = Replica(kube)
    await replica.controller.attempt()
    old = replica.live.bundle.ca_pem
    policy = CertificatePolicy.of_service(NAME, NAMESPACE)
    steps = []

    overlap = dt.timedelta(minutes=2)
    for after in (dt.timedelta(days=300), policy.propagation, policy.serving, overlap):
        replica.now += after
        assert await replica.controller.attempt()
        steps.append((replica.live.bundle.ca_pem, published(applied)))

    new = replica.live.bundle.ca_pem
    both = [new + old] * len(API_SERVICES)
    assert steps == [(old, both), (new, both), (new, both), (new, [new] * len(API_SERVICES))]


INSTALL = MANIFESTS.parent / "docs" / "install.md"
APPLY = {"client-side": (), "server-side": ("--server-side", "--force-conflicts")}


@pytest.fixture(params=APPLY.values(), ids=APPLY.keys())
def apply(applied, request):
    """Apply the manifests again, in one of two ways."""
    return lambda: server.install(applied, *request.param)


def replace_secret(applied, document=None):
    """Delete the Secret, and create `document` in its place."""
    applied.kubectl("delete", "--ignore-not-found", "secret", TLS, f"--namespace={NAMESPACE}")
    if document is not None:
        applied.admin.call("POST", SECRET.rpartition("/")[0], document)


@pytest.fixture(scope="module")
def secret_as_applied(applied):
    """The Secret in the overlay, as YAML."""
    documents = yaml.safe_load_all(applied.kubectl("kustomize", server.OVERLAY))
    (found,) = (each for each in documents if each["kind"] == "Secret")
    return yaml.safe_dump(found)


@pytest.fixture
def secret_restored(applied, secret_as_applied):
    """Let a test replace the Secret."""
    yield
    replace_secret(applied)
    applied.kubectl("apply", "-f", "-", text=secret_as_applied)


async def test_applying_the_manifests_again_keeps_the_ca(apply, applied, kube):
    replica = Replica(kube)
    await replica.controller.attempt()
    before = applied.admin.get(SECRET)

    for _ in range(2):
        apply()
    after = applied.admin.get(SECRET)

    assert {"tls.crt", "tls.key", "ca.crt", "ca.key"} <= after["data"].keys()
    assert after["data"] == before["data"]
    newcomer = Replica(kube)
    assert await newcomer.controller.attempt()
    assert newcomer.live.bundle.leaf == replica.live.bundle.leaf


async def test_the_secret_of_an_earlier_version_stays_in_use(apply, secret_restored, applied, kube):
    """It was created by the adapter, with another type, and without kubectl's annotation."""
    state = renew.create(CertificatePolicy.of_service(NAME, NAMESPACE), now=NOW)
    document = secret.document(state, name=TLS, namespace=NAMESPACE)
    replace_secret(applied, document | {"type": "kubernetes.io/tls"})

    apply()
    replica = Replica(kube)
    assert await replica.controller.attempt()
    replica.now += dt.timedelta(days=5)
    assert await replica.controller.attempt()

    assert replica.live.bundle.ca_pem == state.authority.pem
    after = applied.admin.get(SECRET)
    assert after["type"] == "kubernetes.io/tls"
    assert after["data"]["ca.crt"] == document["data"]["ca.crt"]
    assert after["data"]["tls.crt"] != document["data"]["tls.crt"]
    assert after["metadata"]["labels"]["app.kubernetes.io/part-of"] == NAME


@pytest.mark.parametrize("kind", ["Opaque", "kubernetes.io/tls"])
async def test_the_secret_of_certs_issue_stays_in_use(
    apply, kind, secret_restored, applied, kube, capsys
):
    state = renew.create(CertificatePolicy.of_service(NAME, NAMESPACE), now=NOW)
    document = secret.document(state, name=TLS, namespace=NAMESPACE)
    replace_secret(applied, document | {"type": kind})
    documented = r"^gpu-metrics-adapter certs (issue .*) \| kubectl (.*)$"
    ((issue, flags),) = re.findall(documented, INSTALL.read_text(), re.MULTILINE)

    assert certs.main(issue.replace("NAMESPACE", NAMESPACE).split()) == 0
    issued = capsys.readouterr().out
    applied.kubectl(*flags.split(), text=issued)
    apply()
    replica = Replica(kube)

    assert await replica.controller.attempt()
    assert replica.live.bundle.ca_pem == secret.read(yaml.safe_load(issued)).authority.pem


async def test_a_deleted_secret_is_filled_once_it_is_applied_again(
    apply, secret_restored, applied, kube
):
    replica = Replica(kube)
    await replica.controller.attempt()
    old = replica.live.bundle
    replace_secret(applied)
    replica.now += dt.timedelta(minutes=5)

    assert not await replica.controller.attempt()
    failure = replica.controller.check().fact
    apply()
    assert await replica.controller.attempt()

    assert f"Secret {NAMESPACE}/{TLS} does not exist: " in failure
    assert replica.live.bundle == old
    assert "next-ca.crt" in applied.admin.get(SECRET)["data"]


async def test_the_error_about_a_missing_secret_names_a_command_that_helps(
    secret_restored, applied, kube
):
    replace_secret(applied)
    replica = Replica(kube)

    assert not await replica.controller.attempt()
    (command,) = re.findall("`kubectl (.*)`", replica.controller.check().fact)
    applied.kubectl(*command.split())

    assert await replica.controller.attempt()
    assert "tls.crt" in applied.admin.get(SECRET)["data"]


async def test_a_secret_of_another_type_is_not_used(secret_restored, applied, kube):
    document = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": {"name": TLS, "annotations": {"kubernetes.io/service-account.name": "default"}},
    }
    replace_secret(applied, document)
    replica = Replica(kube)

    def token():
        return applied.admin.get(SECRET).get("data")

    await asyncio.to_thread(wait_for, token, "the Secret has a token")
    before = token()
    assert not await replica.controller.attempt()

    assert "service-account-token is not Opaque" in replica.controller.check().fact
    assert token() == before


async def test_the_account_may_not_create_secrets(applied, kube):
    with pytest.raises(errors.Refused, match="cannot create resource") as error:
        await kube.post(SECRET.rpartition("/")[0], {"metadata": {"name": "other"}})

    assert error.value.status == 403


def test_the_network_policies_are_accepted_without_a_warning(applied, tmp_path):
    restricted = write_overlay(tmp_path, documented("components"))

    for folder in (MANIFESTS / "overlays" / "network-policy", restricted):
        output = applied.kubectl(
            "apply", "--dry-run=server", "--warnings-as-errors", "-k", str(folder)
        )
        assert "networkpolicy.networking.k8s.io/gpu-metrics-adapter created" in output


def test_the_examples_are_accepted_without_a_warning(applied):
    output = applied.kubectl(
        "apply", "--dry-run=server", "--warnings-as-errors", "-f", MANIFESTS / "examples"
    )

    assert output.count("created (server dry run)") == 6
