"""External metrics of another server behind a real aggregator, with the rights of the component.

The other server is a second adapter, which authenticates and authorizes callers by the cluster. A
relay in front of it records what it receives, and attacks in its place.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.cli.local_prometheus.process import free_ports
from certs.issue import issue_temporary
from tests.manifests import relay as attacks
from tests.manifests.relay import Relay
from tools.bench import processes
from tools.cluster import server
from tools.cluster.server import NAME, NAMESPACE, OVERLAY, Server
from tools.control_plane.daemon import Daemon
from tools.control_plane.plane import ControlPlane
from tools.real.prometheus import Prometheus, wait_for

GROUP = "/apis/external.metrics.k8s.io/v1beta1"
ROLE = "gpu-metrics-adapter:external-fallback"
ACCOUNT = f"{NAME}-external-fallback"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
REVIEWS = "/apis/authorization.k8s.io/v1"
OURS, BOTH, THEIRS = "own_queue", "both_queue", "their_queue"


def rules(*names: str, offset: int = 0) -> str:
    return yaml.safe_dump(
        {
            "externalRules": [
                {
                    "seriesQuery": f'{{__name__="{name}"}}',
                    "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
                    "metricsQuery": f"sum(<<.Series>>{{<<.LabelMatchers>>}}) + {offset}",
                }
                for name in names
            ]
        }
    )


@pytest.fixture(scope="module")
def scraped(empty_prometheus: Prometheus) -> Prometheus:
    for later in range(0, 900, 120):
        empty_prometheus.put(
            *(
                f'{name}{{namespace="default",topic="{topic}"}} {value}'
                for value, name in enumerate((OURS, BOTH, THEIRS), start=1)
                for topic in ("a", "b")
            ),
            at=time.time() + later,
        )
    return empty_prometheus


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A cluster with the overlay."""
    with server.installed(control_plane):
        server.install(control_plane, overlay=OVERLAY.with_name("external-fallback"))
        yield control_plane
        control_plane.kubectl("delete", f"clusterrole/{ROLE}", f"clusterrolebinding/{ROLE}")


class Other:
    """The other server: listens on 127.0.0.1, with a certificate of its own."""

    def __init__(self, plane: ControlPlane, folder: Path, url: str) -> None:
        names = ("config.yaml", "ca.crt", "tls.crt", "tls.key")
        config, self.ca, chain, key = (folder / each for each in names)
        config.write_text(rules(BOTH, THEIRS, offset=100))
        issued = issue_temporary([], now=dt.datetime.now(dt.UTC))
        chain.write_bytes(issued.chain_pem)
        key.write_bytes(issued.key_pem)
        self.ca.write_bytes(issued.ca_pem)
        (port,) = free_ports(1)
        self.url = f"https://127.0.0.1:{port}"
        log = folder / "other.log"
        command = [
            *(sys.executable, "-m", "adapter", f"--secure-port={port}", f"--config={config}"),
            f"--lister-kubeconfig={plane.account_kubeconfig(NAME, NAMESPACE)}",
            *(f"--tls-cert-file={chain}", f"--tls-private-key-file={key}"),
            *(f"--prometheus-url={url}", "--service-name=other", "--service-namespace=other"),
            "--authorization-webhook-cache-authorized-ttl=0s",
            "--authorization-webhook-cache-unauthorized-ttl=0s",
        ]
        self.daemon = Daemon("other", command, log, lambda: "serving on" in log.read_text())


@pytest.fixture(scope="module")
def other(plane: ControlPlane, scraped: Prometheus, tmp_path_factory: Any) -> Iterator[Other]:
    running = Other(plane, tmp_path_factory.mktemp("other"), scraped.url)
    running.daemon.start()
    yield running
    running.daemon.stop()


@pytest.fixture(scope="module")
def relay(other: Other, tmp_path_factory: Any) -> Iterator[Relay]:
    relay = Relay(tmp_path_factory.mktemp("relay"), other.url, other.ca)
    with relay.running():
        yield relay


@pytest.fixture(scope="module")
def adapter(
    plane: ControlPlane, relay: Relay, scraped: Prometheus, tmp_path_factory: Any
) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("adapter")
    config = folder / "config.yaml"
    config.write_text(rules(OURS, BOTH))
    running = Server(
        plane,
        folder / "adapter.log",
        [
            f"--config={config}",
            f"--prometheus-url={scraped.url}",
            f"--external-fallback={relay.url}",
            f"--external-fallback-ca-file={relay.ca}",
            f"--external-fallback-service-account={ACCOUNT}",
            "--shutdown-delay=0s",
        ],
    )
    running.start()
    yield running
    running.stop()


def asked(plane: ControlPlane, metric: str, query: str = "") -> tuple[int, Any]:
    reply = plane.admin.request("GET", f"{GROUP}/namespaces/default/{metric}?{query}")
    return reply.status, reply.document


def value(plane: ControlPlane, metric: str, query: str = "") -> str:
    status, document = asked(plane, metric, query)
    return str(status if status != 200 else [each["value"] for each in document["items"]])


def test_rules_come_first_and_the_other_server_answers_the_rest(plane, adapter, other):
    wait_for(lambda: value(plane, THEIRS) == "['106']", "the metric of the other server")
    assert value(plane, OURS) == "['2']"
    assert value(plane, BOTH) == "['4']"
    # The selector reaches the other server.
    assert value(plane, THEIRS, "labelSelector=topic%3Da") == "['103']"


def test_both_are_in_discovery(plane, adapter, other):
    def listed() -> list[str]:
        return [each["name"] for each in plane.admin.get(GROUP)["resources"]]

    wait_for(lambda: listed() == [BOTH, OURS, THEIRS], "all metrics")


def test_explain_says_who_answers(plane, adapter, relay):
    status, document = asked(plane, THEIRS, "explain=true")

    assert status == 200
    assert document["outcome"] == "values"
    assert document["rules"]["items"][0] == {
        "rule": f"--external-fallback={relay.url}",
        "taken": True,
        "reason": "is asked, because no rule produces the metric",
    }


def test_a_metric_that_nobody_has_is_not_found_and_the_causes_say_both(plane, adapter, relay):
    status, document = asked(plane, "their_queu")

    assert (status, document["reason"]) == (404, "NotFound")
    causes = {each["reason"]: each["message"] for each in document["details"]["causes"]}
    assert causes["FallbackFailed"].startswith(
        f"no rule produces the metric, and {relay.url} of --external-fallback answers 404: "
    )
    assert "WrongName" in causes or "NoRule" in causes
    assert "FallbackFailed: no rule produces the metric" in document["message"]


def test_without_its_right_the_other_server_refuses_and_rules_are_not_affected(
    plane, adapter, other
):
    binding = plane.admin.get(f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{ROLE}")
    plane.kubectl("delete", f"clusterrolebinding/{ROLE}")

    def refused() -> bool:
        status, document = asked(plane, THEIRS)
        return status == 500 and "answers 403" in str(document["details"]["causes"])

    try:
        wait_for(refused, "the refusal")
        assert value(plane, OURS) == "['2']"
    finally:
        for key in ("uid", "resourceVersion"):
            del binding["metadata"][key]
        plane.kubectl("apply", "-f", "-", text=yaml.safe_dump(binding))
    wait_for(lambda: value(plane, THEIRS) == "['106']", "the metric again")


def test_a_stopped_server_is_named_and_rules_are_not_affected(plane, adapter, other, relay):
    other.daemon.stop()
    try:
        status, document = asked(plane, THEIRS)
        assert status == 500
        assert "does not answer: the adapter's log has the error" in str(document)
        assert relay.url in str(document["details"]["causes"])
        assert value(plane, BOTH) == "['4']"
    finally:
        other.daemon.start()
    wait_for(lambda: value(plane, THEIRS) == "['106']", "the metric again")


# The token that the other server gets


def tokens(relay: Relay) -> set[str]:
    """Return the tokens that the relay has received."""
    assert relay.seen
    assert all(header.startswith("Bearer ") for _, header in relay.seen)
    return {header.removeprefix("Bearer ") for _, header in relay.seen}


def claims(token: str) -> Any:
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def test_it_never_receives_the_adapters_own_token(plane, adapter, relay):
    assert value(plane, THEIRS) == "['106']"

    own = yaml.safe_load((plane.folder / f"{NAMESPACE}-{NAME}.kubeconfig").read_text())
    assert own["users"][0]["user"]["token"] not in str(relay.seen)
    for token in tokens(relay):
        found = claims(token)
        assert found["sub"] == USER
        assert found["exp"] - found["iat"] <= 3600


DENIED = [
    ("", "pods", "", "list"),
    ("", "secrets", "", "get"),
    ("", "secrets", "", "list"),
    ("", "configmaps", "", "get"),
    ("", "namespaces", "", "list"),
    ("", "nodes", "", "list"),
    ("", "serviceaccounts", "token", "create"),
    ("apps", "deployments", "", "get"),
    ("autoscaling", "horizontalpodautoscalers", "", "list"),
    ("authentication.k8s.io", "tokenreviews", "", "create"),
    ("authorization.k8s.io", "subjectaccessreviews", "", "create"),
    ("apiregistration.k8s.io", "apiservices", "", "get"),
    ("custom.metrics.k8s.io", "pods", "x", "get"),
    ("metrics.k8s.io", "pods", "", "list"),
    ("external.metrics.k8s.io", "x", "", "create"),
    ("external.metrics.k8s.io", "x", "", "delete"),
]


def allowed(
    client: Any, group: str, resource: str, subresource: str, verb: str, **more: str
) -> bool:
    document = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "namespace": NAMESPACE,
                "group": group,
                "resource": resource,
                "subresource": subresource,
                "verb": verb,
                **more,
            }
        },
    }
    answer = client.call("POST", f"{REVIEWS}/selfsubjectaccessreviews", document)
    return bool(answer["status"]["allowed"])


def test_its_token_can_read_external_metrics_and_nothing_else(plane, adapter, relay):
    value(plane, THEIRS)
    client = plane.client(token=tokens(relay).pop())

    assert [each for each in DENIED if allowed(client, *each)] == []
    assert allowed(client, "external.metrics.k8s.io", "x", "", "list")
    document = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": NAMESPACE},
    }
    found = client.call("POST", f"{REVIEWS}/selfsubjectrulesreviews", document)["status"]
    rights = {
        (group, resource, verb)
        for rule in found["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {each for each in rights if each[2] != "create"} == {
        ("external.metrics.k8s.io", "*", "get"),
        ("external.metrics.k8s.io", "*", "list"),
    }
    # What every account may: ask about itself.
    assert {resource for _, resource, verb in rights if verb == "create"} == {
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "selfsubjectreviews",
    }


def test_the_adapter_can_request_a_token_of_this_account_only(plane, adapter):
    client = plane.client(token=plane.token(NAME, NAMESPACE))
    right = ("", "serviceaccounts", "token", "create")

    assert allowed(client, *right, name=ACCOUNT)
    assert not allowed(client, *right, name=NAME)
    assert not allowed(client, *right, name="default")
    assert not allowed(client, *right, name=ACCOUNT, namespace="default")
    assert not allowed(client, *right)


def test_a_new_token_comes_after_the_account_was_made_again(plane, adapter, relay):
    assert value(plane, THEIRS) == "['106']"
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}"
    before = plane.admin.get(path)
    plane.admin.call("DELETE", path)
    plane.admin.call(
        "POST",
        path.rpartition("/")[0],
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "labels": before["metadata"].get("labels", {})},
            "automountServiceAccountToken": False,
        },
    )
    relay.seen.clear()

    wait_for(
        lambda: value(plane, THEIRS) == "['106']" and len(tokens(relay)) > 1,
        "a new token",
    )


# Attacks


def test_a_name_that_no_metric_can_have_is_not_sent(plane, adapter, relay):
    relay.seen.clear()

    status, document = asked(plane, "a%ff")

    assert (status, document["reason"]) == (400, "BadRequest")
    assert "not forwarded to" in document["message"]
    assert [sent for sent, _ in relay.seen if "/namespaces/" in sent] == []


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        (attacks.many, "answers with more than 1000 items, which is the limit fallback-items"),
        (attacks.large, "answers with more than 1048576 bytes, which is the limit fallback-answer"),
        (attacks.endless, "answers with more than 1048576 bytes, which is the limit fallback-ans"),
        (attacks.compressed, "answers with something else than values: the adapter's log has the"),
        # "does not answer", or "did not answer 4 other requests": 4 of the 8 wait for their turn.
        (attacks.slow, "not answer"),
        (attacks.repeating, "answers 403: "),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_no_answer_harms_more_than_its_request(plane, adapter, relay, attack, words):
    assert value(plane, THEIRS) == "['106']"
    assert value(plane, OURS) == "['2']"
    attacks.prepare()
    pid = adapter.daemon.pid
    before, log = processes.mebibytes(pid, "VmRSS"), len(adapter.log)
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    relay.attack = attack
    try:
        with ThreadPoolExecutor(8) as pool:
            attacked = [pool.submit(asked, plane, THEIRS, f"a={each}") for each in range(8)]
            busiest, answered = 0.0, 0
            while not all(each.done() for each in attacked):
                began = processes.cpu_seconds(pid)
                assert value(plane, OURS) == "['2']"
                busiest = max(busiest, processes.cpu_seconds(pid) - began)
                answered += 1
                time.sleep(0.05)
        answers = [each.result() for each in attacked]
    finally:
        relay.attack = None

    grown = processes.mebibytes(pid, "VmHWM") - before
    print(f"{attack.__name__}: {grown:.0f} MiB more, CPU of {answered} values {busiest:.2f} s")
    for status, document in answers:
        assert status == 500
        assert words in str(document["details"]["causes"]), document
    assert grown < 100
    # Seconds of the adapter's own work for which a value waited: a busy machine adds none.
    assert busiest < 1
    assert answered > 2 or attack is not attacks.slow
    said = adapter.log[log:] + str(answers)
    assert [token for token in tokens(relay) if token in said or token[-40:] in said] == []
    assert value(plane, THEIRS) == "['106']"
