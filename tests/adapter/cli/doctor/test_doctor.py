"""`doctor`: what each check concludes. tools/faults runs it on a real control plane."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import ssl
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from adapter import errors, settings
from adapter.cli.doctor import (
    autoscalers,
    backend,
    checks,
    client,
    installation,
    registration,
    report,
)
from adapter.cli.doctor import (
    deployment as deployment_flags,
)
from adapter.cli.doctor.installation import Installed
from adapter.clients.kubernetes import Reply
from adapter.settings.kubectl import KubectlSettings, NamespaceSettings
from rules.exporters import detect
from rules.findings import State, failure, ok
from rules.hpa import judgement, reading
from tests import virtual_time
from tests.rules.hpa import test_reading
from tests.rules.hpa.documents import document, external_metric, pods_metric, resource_metric
from tools.certificates import Holder
from tools.fakes import kubernetes
from tools.presets.table import EXPORTERS
from tools.real import prometheus as real

pytestmark = pytest.mark.usefixtures("patience")

NAME = "gpu-metrics-adapter"
CORE = f"/api/v1/namespaces/{NAME}"
SERVICE = {"spec": {"selector": {"app": "x"}, "ports": [{"port": 443}]}}
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAME}/endpointslices"
CONFIG = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
CUSTOM = "v1beta2.custom.metrics.k8s.io"
EXTERNAL = "v1beta1.external.metrics.k8s.io"


@pytest.fixture
def answers():
    """Path -> document, or status and text; other paths are 404."""
    return {}


@pytest.fixture
async def installed(answers, aiohttp_server, kube_of):
    async def respond(request):
        answer = answers.get(request.path, (404, "not found"))
        if isinstance(answer, tuple):
            status, text = answer
            return web.Response(status=status, text=text)
        return web.json_response(answer)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", respond)
    api = await kube_of(await aiohttp_server(app))
    return Installed(api=api, service=NAME, namespace=NAME, user="admin")


def apiservice(*, name=NAME, reason="Passed", message="", status="False", **spec):
    condition = {"type": "Available", "status": status, "reason": reason, "message": message}
    service = {"namespace": NAME, "name": name, "port": 443}
    return {"spec": {"service": service, **spec}, "status": {"conditions": [condition]}}


def pem(days):
    now = datetime.now(UTC) + timedelta(days=days)
    return Holder("ca", ca=True, now=now).pem


def texts(findings):
    return [
        f"{each.state} {each.subject}: {each.fact} | {each.cause} | {each.cure}"
        for each in findings
    ]


@pytest.mark.parametrize(
    ("name", "document", "state", "words"),
    [
        (EXTERNAL, None, State.OK, "component for this API is not installed"),
        (CUSTOM, apiservice(name="prometheus-adapter"), State.FAILURE, "only one adapter can"),
        (EXTERNAL, apiservice(name="keda"), State.OK, f"belongs to {NAME}/keda, not to"),
        (
            CUSTOM,
            apiservice(status="True", insecureSkipTLSVerify=True),
            State.WARNING,
            "the adapter then publishes its caBundle",
        ),
        (CUSTOM, apiservice(reason="ServiceNotFound"), State.FAILURE, "Service does not exist"),
        (CUSTOM, apiservice(reason="MissingEndpoints"), State.FAILURE, "no ready pod is behind"),
        (CUSTOM, {**apiservice(), "status": {}}, State.FAILURE, "has not checked it yet"),
        *(
            (
                CUSTOM,
                apiservice(reason="FailedDiscoveryCheck", message=message),
                State.FAILURE,
                words,
            )
            for message, words in {
                "failing ... dial tcp 10.0.0.1:443: i/o timeout": "firewall, NetworkPolicy",
                "... x509: certificate signed by unknown authority": "does not fit the serving",
                "bad status from https://10.0.0.1:443/apis: 403": "--requestheader-client-ca-file",
                "bad status from https://10.0.0.1:30403/apis: 503": "see service and serving",
                "something else": "the log of the adapter",
                "dial tcp 10.0.0.1:443: connect: connection refused": "start the adapter",
                "... tls: failed to verify certificate: x509: certificate has expired": (
                    "renew the files of --tls-cert-file"
                ),
                "remote error: tls: unknown certificate authority": "is of another CA",
                'Get "https://10.0.0.1:443/apis": EOF': "is of another CA",
            }.items()
        ),
    ],
)
def test_an_apiservice_is_judged_by_owner_and_condition(name, document, state, words):
    installed = Installed(
        api=None, user="", apiservices={name: document}, namespace=NAME, service=NAME
    )

    finding = registration._judge(name, document, installed, required=name == CUSTOM)

    assert finding.state is state
    assert words in texts([finding])[0]


async def test_an_unready_service_names_its_pods_and_why(installed, answers):
    answers[f"{CORE}/services/{NAME}"] = SERVICE
    answers[SLICES] = {"items": [{"endpoints": [{"conditions": {"ready": False}}]}]}
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes fit"}
    answers[f"{CORE}/pods"] = {
        "items": [
            {
                "metadata": {"name": "one"},
                "status": {"containerStatuses": [{"state": {"waiting": waiting}}]},
            },
            {
                "metadata": {"name": "two"},
                "status": {"phase": "Pending", "conditions": [unscheduled]},
            },
            {"metadata": {"name": "three"}, "status": {"phase": "Failed"}},
        ]
    }

    (line,) = texts(await installation.endpoints(installed))

    assert line.startswith(f"failure service: {NAME}/{NAME} has no ready endpoint")
    assert "pod one is waiting: ImagePullBackOff (no such image)" in line
    assert "pod two is Pending, PodScheduled is false: 0/3 nodes fit" in line
    assert "pod three is Failed" in line


async def test_a_service_without_pods_or_that_does_not_exist_is_a_failure(installed, answers):
    assert "does not exist" in texts(await installation.endpoints(installed))[0]
    answers[f"{CORE}/services/{NAME}"] = SERVICE
    answers[SLICES] = {"items": []}
    answers[f"{CORE}/pods"] = {"items": []}

    (line,) = texts(await installation.endpoints(installed))

    assert "no pod has the labels of its selector (app=x)" in line


async def test_a_service_with_ready_pods_is_ok(installed, answers):
    answers[f"{CORE}/services/{NAME}"] = SERVICE
    answers[SLICES] = {"items": [{"endpoints": [{"conditions": {}}, {"conditions": {}}]}]}

    assert "2 ready endpoints" in texts(await installation.endpoints(installed))[0]


async def test_degraded_health_checks_of_each_pod_are_findings(installed, answers):
    ports = [{"containerPort": 7000}]
    answers[f"{CORE}/services/{NAME}"] = SERVICE
    answers[f"{CORE}/pods"] = {
        "items": [
            {"metadata": {"name": name}, "spec": {"containers": [{"ports": ports}]}}
            for name in ("a", "b", "c")
        ]
    }
    path = f"{CORE}/pods/https:{{}}:7000/proxy/readyz"
    answers[path.format("a")] = (200, "[+]ping ok\n[!]prometheus degraded: cannot be reached\n")
    answers[path.format("b")] = (500, "[+]ping ok\n[-]kinds failed: reason withheld\n")

    lines = texts(await installation.health(installed))

    assert lines[0].startswith("warning adapter a: /readyz: prometheus degraded: cannot be")
    assert lines[1].startswith("failure adapter b: /readyz: kinds failed: reason withheld")
    assert lines[2].startswith("skipped adapter c: /readyz was not read: status 404")


@pytest.mark.parametrize(
    ("line", "warned"),
    [
        ("team-rules ok: 4 ConfigMaps of 2 namespaces, 1 refused", True),
        ("team-rules ok: 10 ConfigMaps of 2 namespaces, 0 refused, 2 not read yet", False),
        ("autoscalers ok: 31 metrics left out, for these reasons: hpa-metrics", True),
        ("autoscalers ok: no metric is left out", False),
    ],
)
async def test_objects_that_limits_may_refuse_are_a_warning_with_the_way_back(
    installed, answers, line, warned
):
    answers[f"{CORE}/services/{NAME}"] = SERVICE
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"ports": [{"containerPort": 1}]}]}}
    answers[f"{CORE}/pods"] = {"items": [pod]}
    path = f"{CORE}/pods/https:a:1/proxy/readyz"
    answers[path] = (200, f"[+]ping ok\n[+]{line}\nreadyz check passed\n")

    (finding,) = await installation.health(installed)

    assert finding.state is (State.WARNING if warned else State.OK)
    assert ("--limit=NAME=NUMBER" in finding.cure) is warned
    assert (line in finding.fact) is warned


@pytest.mark.parametrize(
    ("ca", "state", "words"),
    [
        (pem(0), State.OK, "is valid"),
        (pem(-400), State.FAILURE, "expired on 20"),
        (b"?", State.FAILURE, "is not a certificate in PEM"),
        (b"", State.FAILURE, "has no requestheader-client-ca-file"),
    ],
)
async def test_the_front_proxy_needs_a_valid_ca(installed, answers, ca, state, words):
    answers[CONFIG] = {"data": {"requestheader-client-ca-file": ca.decode()}}

    (finding,) = await installation.front_proxy(installed)

    assert finding.state is state
    assert words in finding.fact


async def test_a_missing_front_proxy_configuration_is_a_failure(installed):
    (finding,) = await installation.front_proxy(installed)

    assert finding.state is State.FAILURE


@pytest.mark.parametrize(
    ("bundle", "words"),
    [
        ("", "has no caBundle"),
        ("!", "is not a certificate in PEM"),
        (base64.b64encode(pem(-400)).decode(), "expired on 20"),
    ],
)
async def test_an_invalid_ca_bundle_is_a_failure(installed, answers, bundle, words):
    document = apiservice(status="True", caBundle=bundle)

    (finding,) = await registration.served(replace(installed, apiservices={CUSTOM: document}))

    assert finding.state is State.FAILURE
    assert words in finding.fact


async def test_a_certificate_that_the_ca_bundle_does_not_verify_is_a_failure(
    installed, answers, tmp_path
):
    ca = Holder("ca", ca=True, now=datetime.now(UTC))
    dns = [f"{NAME}.{NAME}.svc"]
    serving = Holder("serving", ca, now=datetime.now(UTC), dns=dns)
    answers[f"{CORE}/services/{NAME}"] = {"spec": {"externalName": "127.0.0.1"}}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.client(context, tmp_path)
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context
    )
    port = server.sockets[0].getsockname()[1]
    states = {}
    for name, bundle in (("own", ca.pem), ("other", pem(0))):
        document = apiservice(status="True", caBundle=base64.b64encode(bundle).decode())
        document["spec"]["service"]["port"] = port
        installed = replace(installed, apiservices={CUSTOM: document})
        states[name] = (await registration.served(installed))[0]
    server.close()

    assert states["own"].state is State.WARNING
    assert "valid until" in states["own"].fact  # it ends within a day
    assert states["other"].state is State.FAILURE
    assert "does not verify" in states["other"].fact

    unreachable = (await registration.served(installed))[0]
    assert unreachable.state is State.SKIPPED
    assert "not reachable from here" in unreachable.fact


async def test_the_account_is_that_of_the_pods_or_of_a_caller_in_a_pod(installed, answers):
    async def account(user="admin"):
        return (await installation.account(replace(installed, user=user))).user

    prefix = f"system:serviceaccount:{NAME}:"
    unknown = await account(), await account(f"{prefix}helm"), await account(f"{prefix[:-1]}x:y")
    answers[f"{CORE}/services/{NAME}"] = SERVICE
    answers[f"{CORE}/pods"] = {"items": [{"spec": {"serviceAccountName": "release"}}]}

    assert unknown == (prefix + NAME, f"{prefix}helm", prefix + NAME)
    assert await account() == f"{prefix}release"


async def test_metrics_are_requested_as_the_hpa_controller_does(installed, answers):
    hpas = [
        document(pods_metric(name="m"), name="good"),
        document(external_metric(averageValue="1"), name="bad"),
        document(pods_metric(name="s"), name="secret"),
        document(name="hidden", target="hidden"),
        document({"type": "Later"}, name="later"),
    ]
    answers |= test_reading.documents() | {
        "/apis/autoscaling/v2/horizontalpodautoscalers": {"items": hpas},
        test_reading.SCALE.replace("serving", "hidden"): (403, "forbidden"),
        test_reading.VALUES.replace("duty_cycle_current", "m"): test_reading.values(p0="1"),
        test_reading.VALUES.replace("duty_cycle_current", "s"): (403, "forbidden"),
        test_reading.EXTERNAL: (404, "not found"),
    }

    lines = texts(await autoscalers.metrics(installed, NamespaceSettings(), "default"))

    assert lines[0].startswith("ok autoscalers: 2 autoscalers use 2 metrics; 3 not checked, see")
    name = "failure autoscaler default/bad, metric queue_length"
    assert lines[1].startswith(f"{name}: status 404: not found")
    assert lines[2].startswith("skipped autoscaler default/secret, metric s: forbidden")
    assert lines[3].startswith("skipped autoscaler default/hidden: forbidden")
    assert lines[4].startswith("skipped autoscaler default/later: this autoscaler cannot be read")
    assert len(lines) == 5


@pytest.mark.parametrize(
    ("query", "fact"),
    [
        ("sum by (a) (x)", "the HPA controller adds up 2 items"),
        (None, "the HPA controller adds up 2 items"),
        ("histogram_quantile(0.9, x)", "each is by its query a percentile"),
    ],
)
async def test_the_query_of_a_sum_is_read_for_what_it_adds_up(installed, answers, query, fact):
    hpas = [document(external_metric(averageValue="5"))]
    answers |= test_reading.documents()
    answers["/apis/autoscaling/v2/horizontalpodautoscalers"] = {"items": hpas}
    if query is not None:
        answers[test_reading.EXTERNAL] |= {"kind": "Explanation", "queries": [{"promql": query}]}

    _, finding = await autoscalers.metrics(installed, NamespaceSettings(), "default")

    assert finding.subject == "autoscaler default/gpu-hpa, metric queue_length"
    assert fact in finding.fact


@pytest.mark.parametrize(
    ("interval", "seconds", "cure"),
    [(5.0, 180.0, "Shorten the range"), (50.0, 0.0, "Scrape more")],
)
async def test_each_autoscaler_that_reacts_slowly_is_named(
    installed, answers, interval, seconds, cure
):
    metric = external_metric(averageValue="5")
    hpas = [document(metric), document(metric, name="other")]
    answers |= test_reading.documents() | {HPAS: {"items": hpas}}
    query = {"promql": "x", "delaySeconds": seconds, "delayedBy": "avg_over_time"}
    query |= {"oldestSampleSeconds": 1.0, "intervalSeconds": interval, "freshnessSeconds": 1.0}
    answers[test_reading.EXTERNAL] |= {"kind": "Explanation", "queries": [query]}

    lines = texts(await autoscalers.metrics(installed, NamespaceSettings(), "default"))

    slow = [each for each in lines if "shows a change of load in full within" in each]
    assert [each.partition(":")[0] for each in slow] == [
        "note autoscaler default/gpu-hpa, metric queue_length",
        "note autoscaler default/other, metric queue_length",
    ]
    assert all(cure in each for each in slow)


async def test_values_that_the_controller_cannot_use_are_named(installed, answers):
    hpas = [document(pods_metric(), name="new"), document(resource_metric(averageUtilization=50))]
    answers |= test_reading.documents() | {HPAS: {"items": hpas}}
    answers[test_reading.PODS] = {"items": [test_reading.pod("p0", "Pending")]}
    answers[test_reading.RESOURCE]["items"][0]["timestamp"] = "then"

    _, new, cpu = texts(await autoscalers.metrics(installed, NamespaceSettings(), "default"))

    assert new.startswith("warning autoscaler default/new, metric duty_cycle_current: did not")
    assert "A pod counts once it is ready" in new
    assert cpu.startswith("failure autoscaler default/gpu-hpa, metric cpu: "), cpu


class Counting:
    """Fake API server of an HPA's target, which counts requests and may hang."""

    def __init__(self, hpas, hangs=()):
        self.hpas, self.hangs, self.number = hpas, hangs, 0

    async def get(self, _path, _params=None):
        return {"items": self.hpas}

    async def fetch(self, path, _params=None):
        self.number += 1
        name = path.rpartition("/")[2]
        if path.endswith("/scale"):
            name = path.split("/")[-2]
            if name in self.hangs:
                await asyncio.sleep(10)
            return reply(200, {"spec": {"replicas": 1}, "status": {"selector": "app=web"}})
        version = {"version": "v1beta2"}
        documents = {
            "v1": {"resources": [{"name": "deployments", "kind": "Deployment"}]},
            "custom.metrics.k8s.io": {"preferredVersion": version, "versions": [version]},
            "pods": {"items": [test_reading.pod("a")]},
        }
        value = {"describedObject": {"name": "a"}, "value": "1"}
        return reply(200, documents.get(name, {"items": [value]}))


def using_four_metrics(name):
    return document(*[pods_metric(name="m")] * 4, name=name, target=name)


def checked(api):
    """Return the lines about autoscalers, in virtual time."""
    installed = Installed(api=api, service=NAME, namespace=NAME, user="admin")

    async def check():
        return texts(await autoscalers.metrics(installed, NamespaceSettings(), "default"))

    return virtual_time.run(check())


def test_fifty_autoscalers_take_few_requests(monkeypatch):
    monkeypatch.setattr(autoscalers, "_SECONDS", 6.0)
    api = Counting([using_four_metrics(f"web-{index}") for index in range(50)])

    (line,) = checked(api)

    assert line.startswith("ok autoscalers: 50 autoscalers use 200 metrics")
    # 100 at once, then 50 per second: 4.5 s.
    assert api.number <= 325


def test_autoscalers_that_take_too_long_are_counted(monkeypatch):
    monkeypatch.setattr(autoscalers, "_SECONDS", 6.0)
    api = Counting([using_four_metrics(name) for name in ("one", "slow", "two")], hangs={"slow"})

    lines = checked(api)

    assert lines[0].startswith("ok autoscalers: 2 autoscalers use 8 metrics")
    assert lines[1].startswith("skipped autoscalers: 1 of 3 were not checked within 6 s")


def reply(status, document, warning=""):
    headers = {"Warning": warning} if warning else {}
    return Reply(status=status, headers=headers, body=json.dumps(document).encode())


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        (reply(200, {"items": [1]}), None, ""),
        (reply(200, {"items": [1]}, '299 - "NoSample: 1 of 2"'), State.WARNING, "NoSample: 1 of"),
        (reply(200, {"items": []}, '299 - "X: a \\"b\\""'), State.FAILURE, 'no value. X: a "b"'),
        (reply(200, {"items": []}), State.FAILURE, "no value"),
        (
            reply(404, {"details": {"causes": [{"reason": "NoRule", "message": "none"}]}}),
            State.FAILURE,
            "NoRule: none",
        ),
        (reply(500, {"message": "an\nerror"}), State.FAILURE, "status 500: an error"),
        (reply(404, {"message": "404 page not found"}), State.FAILURE, "404 page not found"),
        (reply(403, {"message": "may not"}), State.SKIPPED, "may not"),
    ],
)
async def test_an_answer_is_judged_by_items_causes_and_warning(answer, state, words):
    class Answering:
        async def fetch(self, _path, _params):
            return answer

    request = reading.ApiRequest(path="/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/pods/*/m")
    sent = await client.send(Answering(), request)

    finding = judgement.judge("autoscaler default/web: m", request, sent, "see apiservices")

    assert (finding and finding.state) == state
    assert finding is None or words in finding.fact


@pytest.mark.parametrize(
    ("error", "fact"),
    [
        (errors.Refused("401", status=401), "refuses the credentials (401)"),
        (errors.Unreachable("no route"), "cannot be reached"),
        (errors.NoCredentials("no token"), "there are no credentials for Prometheus"),
    ],
)
def test_a_prometheus_that_does_not_answer_has_its_cause(error, fact):
    finding = backend._unreachable(error)

    assert fact in finding.fact
    assert finding.cause == str(error)


def test_clocks_are_compared():
    assert installation.clock("x", 0).state is State.OK
    for skew, direction in ((60, "behind"), (-60, "ahead of")):
        found = installation.clock("x", skew)
        assert (found.state, direction in found.fact) == (State.WARNING, True)


async def test_one_check_hides_no_other_and_each_is_bounded(monkeypatch):
    monkeypatch.setattr(report, "_TIMEOUT", 0.05)

    async def hang():
        await asyncio.Event().wait()

    async def refuse():
        error = errors.Refused("GET /x: 403: user a may not", status=403)
        error.refusal = "user a may not"
        raise error

    async def fail():
        raise errors.Broken("GET /y: 500: broken")

    async def break_down():
        return {}["items"]

    async def succeed():
        return [ok("good", "is good")]

    checks = (hang, refuse, fail, break_down, succeed)
    findings = await report.run({each.__name__: each() for each in checks})

    states = [State.FAILURE, State.SKIPPED, State.FAILURE, State.FAILURE, State.OK]
    assert [each.state for each in findings] == states
    assert findings[3].fact == "the check failed: KeyError('items')"
    assert findings[1].fact == "user a may not"


def test_without_a_fault_the_last_line_has_the_numbers():
    *_, last = report.lines([ok("o", "fine")])

    assert last == "0 failures, 0 warnings, 1 ok, 0 skipped"


def test_text_of_others_forges_no_line_and_controls_no_terminal():
    hostile = "a\x1b[2J\nok      all: fine\u2028ok\u202e"
    finding = failure(hostile, hostile, cause=hostile, cure=hostile)

    text = "\n".join(report.lines([finding]))

    shown = r"a\x1b[2J ok all: fine ok\u202e"
    assert text.splitlines() == [
        f"failure {shown}: {shown}",
        f"          cause: {shown}",
        f"          cure: {shown}",
        f"1 failure, 0 warnings. Begin with {shown}: {shown}. A{shown[1:]}. A{shown[1:]}",
    ]


@pytest.fixture
def without_cluster(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("PROMETHEUS_URL", raising=False)


def test_without_an_api_server_the_rest_is_still_checked(without_cluster, cli):
    code, output, _ = cli("doctor", "--prometheus-url=http://127.0.0.1:9", "--output=json")

    report = json.loads(output)
    subjects = [each["subject"] for each in report["findings"]]
    assert subjects == ["api-server", "cluster", "prometheus"]
    assert (code, report["failures"]) == (2, 2)


def denied(user: str, verb: str, resource: str, group: str, where: str) -> tuple[int, str]:
    """Return the 403 of a real API server."""
    message = (
        f'{resource}.{group} is forbidden: User "{user}" cannot {verb} resource "{resource}" in '
        f'API group "{group}" {where}'
    )
    return 403, json.dumps({"kind": "Status", "message": message})


HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
HPAS_OF_TEAM = HPAS.replace("v2/", "v2/namespaces/team/")


def of_hpas(where: str) -> tuple[int, str]:
    return denied("ann", "list", "horizontalpodautoscalers", "autoscaling", where)


@pytest.mark.parametrize(
    ("flags", "subjects"),
    [
        ({}, ["autoscalers", "autoscalers of all namespaces", "autoscaler team/gpu-hpa"]),
        ({"all": True}, ["autoscalers of all namespaces"]),
        ({"names": ("team",)}, ["autoscalers", "autoscaler team/gpu-hpa"]),
        (
            {"names": ("other", "nope")},
            ["autoscalers", "autoscalers of other", "autoscalers of nope"],
        ),
    ],
)
async def test_autoscalers_are_those_of_the_namespaces_that_may_be_listed(
    installed, answers, flags, subjects
):
    answers |= test_reading.documents() | {
        HPAS: of_hpas("at the cluster scope"),
        HPAS_OF_TEAM: {"items": [document(pods_metric(name="m"), namespace="team")]},
        HPAS_OF_TEAM.replace("team", "other"): of_hpas('in the namespace "other"'),
        HPAS_OF_TEAM.replace("team", "nope"): {"items": []},
    }

    found = await autoscalers.metrics(installed, NamespaceSettings(**flags), "team")

    assert [each.subject for each in found] == subjects


async def test_autoscalers_that_may_not_be_checked_are_not_well(installed, answers):
    answers |= test_reading.documents() | {
        HPAS: {"items": [document(pods_metric(name="m"), name="web")]},
        test_reading.SCALE: denied(
            "ann", "get", "deployments/scale", "apps", 'in the namespace "a"'
        ),
    }

    found = [*await autoscalers.metrics(installed, NamespaceSettings(), "default")]

    assert [each.state for each in found] == [State.SKIPPED, State.SKIPPED]
    assert not report.told(found)
    *_, last = report.lines(found)
    assert last.startswith(
        "0 failures, 0 warnings, 2 skipped: no APIService and no autoscaler was checked. Begin "
        "with autoscaler default/web: deployments/scale.apps is forbidden"
    )
    assert " -n a create role get-deployments-scale --verb=get" in last


async def test_an_api_server_that_hangs_ends_its_checks_soon(aiohttp_server, tmp_path, monkeypatch):
    async def hang(_request):
        await asyncio.sleep(3)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", hang)
    path = kubernetes.kubeconfig(tmp_path, await aiohttp_server(app))
    monkeypatch.setattr(checks, "_TIMEOUT", 0.1)

    cluster = KubectlSettings(kubeconfig=path)
    findings = await checks.examine(cluster, prometheus=None)

    assert not report.told(findings)
    assert "0.1 s" in findings[0].fact
    states = [State.FAILURE, State.SKIPPED, State.SKIPPED]
    assert [each.state for each in findings] == states


def test_the_url_of_the_environment_is_the_default(without_cluster, monkeypatch, cli):
    assert "skipped prometheus: its URL is not known" in cli("doctor").out
    monkeypatch.setenv("PROMETHEUS_URL", "http://127.0.0.1:9")
    assert "failure prometheus: Prometheus cannot be reached" in cli("doctor").out


@pytest.mark.usefixtures("real_servers")
async def test_series_of_exporters_are_judged_on_a_real_prometheus(tmp_path):
    flags = settings.PrometheusSettings()
    with real.run(tmp_path) as server:
        flags = replace(flags, url=server.url)
        server.put('up{job="x",instance="y"} 1')
        nothing = texts(await checks._prometheus(flags))
        labels = 'gpu="0",UUID="u",job="d",instance="i",pod="exporter"'
        server.put('up{job="d",instance="i",pod="exporter"} 1', at=time.time() - 120)
        server.put(f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 1", at=time.time() - 120)
        own = texts(await checks._prometheus(flags))
    (tmp_path / "whole").mkdir()
    with real.run(tmp_path / "whole") as server:
        flags = replace(flags, url=server.url)
        server.put('up{job="d",instance="i",pod="exporter"} 1')
        for each in sorted((EXPORTERS / "c4-4.8.2-default").glob("*.prom")):
            server.put(*each.read_text().splitlines())
        whole = texts(await checks._prometheus(flags))

    assert any(line.startswith("ok scrapes: samples of exporters are ") for line in whole), whole
    assert any(line.startswith("warning exporters: Prometheus has no series") for line in nothing)
    assert any(line.startswith("skipped scrapes: ") for line in nothing)
    assert any(line.startswith("ok clock of Prometheus") for line in nothing)
    assert any(line.startswith("warning pod-labels: the series of ") for line in own)
    assert any(line.startswith("warning scrapes: samples of exporters are 1") for line in own)


DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAME}/deployments"


def deployment(*args, env=()):
    """Return the list of Deployments of a namespace; the first one is of somebody else."""
    container = {"name": "adapter", "args": list(args), "env": list(env)}
    other = {"metadata": {"labels": {"app": "other"}}, "spec": {"containers": [{"args": ["-x"]}]}}
    own = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container]}}
    return {"items": [{"spec": {"template": each}} for each in (other, own)]}


URL_OF_CONFIG_MAP = {
    "name": "PROMETHEUS_URL",
    "valueFrom": {"configMapKeyRef": {"name": "config-1", "key": "url"}},
}


async def test_url_and_presets_are_those_of_the_deployment(installed, answers):
    answers[f"{CORE}/services/{NAME}"] = SERVICE
    answers[f"{CORE}/configmaps/config-1"] = {"data": {"url": "http://127.0.0.1:9"}}
    answers[DEPLOYMENTS] = deployment(
        "--prometheus-url=$(PROMETHEUS_URL)", "--preset=gpu-dcgm", env=[URL_OF_CONFIG_MAP]
    )

    found = await deployment_flags.flags(installed)
    (finding,) = await checks._deployed(installed, None)

    assert found.prometheus.url == "http://127.0.0.1:9"
    assert [each.name for each in found.rules.sources] == ["gpu-dcgm"]
    # The address may be one that only pods reach.
    assert finding.state is State.SKIPPED
    assert f"run kubectl -n {NAME} exec service/{NAME} -- gpu-metrics-adapter " in finding.cure
    assert "is not reachable from here" in finding.fact


async def test_a_prometheus_in_the_pods_is_queried_there_only(installed, answers, monkeypatch):
    answers[f"{CORE}/services/{NAME}"] = SERVICE
    answers[DEPLOYMENTS] = deployment("--embedded-prometheus-url=http://127.0.0.1:9")

    (outside,) = await checks._deployed(installed, None)
    monkeypatch.setenv("POD_NAMESPACE", NAME)
    (inside,) = await checks._deployed(installed, None)

    assert (outside.state, outside.fact) == (
        State.SKIPPED,
        "it listens in the adapter's pods only",
    )
    assert "is not reachable from here" in inside.fact


async def test_an_address_of_pods_that_lets_connections_time_out_is_skipped(installed, answers):
    answers[f"{CORE}/services/{NAME}"] = SERVICE
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listener.getsockname()
        stack.enter_context(socket.create_connection(address))  # the kernel takes no other one
        url = f"http://127.0.0.1:{address[1]}"
        arguments = [f"--prometheus-url={url}", "--prometheus-timeout=100ms"]
        answers[DEPLOYMENTS] = deployment(*arguments)

        (of_deployment,) = await checks._deployed(installed, None)
        (of_user,) = await checks._prometheus(settings.parse(arguments).prometheus)

    assert of_deployment.state is State.SKIPPED
    assert "no connection in time" in of_deployment.fact
    assert (of_user.state, of_user.fact) == (State.FAILURE, "Prometheus cannot be reached")


@pytest.mark.parametrize(
    "listed",
    [
        deployment("--prometheus-url=$(SECRET)"),
        deployment("--no-such-flag"),
        {"items": []},
        (403, "forbidden"),
    ],
)
async def test_a_deployment_that_cannot_be_used_is_as_none(installed, answers, listed):
    answers[f"{CORE}/services/{NAME}"] = SERVICE
    answers[DEPLOYMENTS] = listed

    assert texts(await checks._deployed(installed, None)) == texts(await checks._prometheus(None))


@pytest.mark.parametrize(
    ("presets", "expected"),
    [
        ({"gpu-dcgm49"}, ["use --preset=gpu-dcgm, or --preset=auto"]),
        ({"gpu-dcgm", "gpu-dcgm49"}, []),
        (set(), []),
    ],
)
def test_presets_in_use_are_compared_with_the_exporters(presets, expected):
    observed = frozenset({"DCGM_FI_DEV_GPU_UTIL"})
    report = detect.analyze(
        detect.Observations(
            live=dict.fromkeys(observed, frozenset({"pod"})),
            indexed=dict.fromkeys(observed, frozenset({"pod"})),
            honored=observed,
            anything=True,
        )
    )

    found = backend._of_report(report, frozenset(presets))

    assert [each.cure for each in found if "but the adapter has" in each.fact] == expected


def test_without_another_cause_no_listed_metric_is_blamed_on_the_rules():
    listed = failure("metrics", "none", cause=installation.NO_SERIES, cure="correct the rules")

    *_, found = checks._related([ok("prometheus", "answers"), listed])

    assert found == listed
