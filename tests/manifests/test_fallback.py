"""External metrics of another server behind a real aggregator, with the rights of the component.

The other server is a second adapter, which authenticates and authorizes callers by the cluster.
"""

from __future__ import annotations

import datetime as dt
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from certs.issue import issue_temporary
from tests.cluster import server
from tests.cluster.server import NAME, NAMESPACE, OVERLAY, Server
from tests.control_plane.daemon import Daemon, free_ports
from tests.control_plane.plane import ControlPlane
from tests.real import prometheus
from tests.real.prometheus import Prometheus, wait_for

GROUP = "/apis/external.metrics.k8s.io/v1beta1"
ROLE = "gpu-metrics-adapter:external-fallback"
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
def scraped(real_servers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus.run(tmp_path_factory.mktemp("prometheus")) as running:
        for later in range(0, 900, 120):
            running.put(
                *(
                    f'{name}{{namespace="default",topic="{topic}"}} {value}'
                    for value, name in enumerate((OURS, BOTH, THEIRS), start=1)
                    for topic in ("a", "b")
                ),
                at=time.time() + later,
            )
        yield running


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
def adapter(
    plane: ControlPlane, other: Other, scraped: Prometheus, tmp_path_factory: Any
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
            f"--external-fallback={other.url}",
            f"--external-fallback-ca-file={other.ca}",
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


def test_explain_says_who_answers(plane, adapter, other):
    status, document = asked(plane, THEIRS, "explain=true")

    assert status == 200
    assert document["outcome"] == "values"
    assert document["rules"]["items"][0] == {
        "rule": f"--external-fallback={other.url}",
        "taken": True,
        "reason": "is asked, because no rule produces the metric",
    }


def test_a_metric_that_nobody_has_is_not_found_and_the_causes_say_both(plane, adapter, other):
    status, document = asked(plane, "their_queu")

    assert (status, document["reason"]) == (404, "NotFound")
    causes = {each["reason"]: each["message"] for each in document["details"]["causes"]}
    assert causes["FallbackFailed"].startswith(
        f"no rule produces the metric, and {other.url} of --external-fallback answers 404: "
    )
    assert "WrongName" in causes or "NoRule" in causes
    assert "FallbackFailed: no rule produces the metric" in document["message"]


def test_without_its_right_the_other_server_refuses_and_rules_are_not_affected(
    plane, adapter, other
):
    binding = plane.admin.get(f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{ROLE}")
    plane.kubectl("delete", f"clusterrolebinding/{ROLE}")
    try:
        wait_for(lambda: value(plane, THEIRS) == "500", "the refusal", seconds=30)
        _, document = asked(plane, THEIRS)
        assert "answers 403" in str(document["details"]["causes"])
        assert value(plane, OURS) == "['2']"
    finally:
        for key in ("uid", "resourceVersion"):
            del binding["metadata"][key]
        plane.kubectl("apply", "-f", "-", text=yaml.safe_dump(binding))
    wait_for(lambda: value(plane, THEIRS) == "['106']", "the metric again", seconds=30)


def test_a_stopped_server_is_named_and_rules_are_not_affected(plane, adapter, other):
    other.daemon.stop()
    try:
        status, document = asked(plane, THEIRS)
        assert status == 500
        assert "does not answer: the adapter's log has the error" in str(document)
        assert other.url in str(document["details"]["causes"])
        assert value(plane, BOTH) == "['4']"
    finally:
        other.daemon.start()
    wait_for(lambda: value(plane, THEIRS) == "['106']", "the metric again", seconds=30)
