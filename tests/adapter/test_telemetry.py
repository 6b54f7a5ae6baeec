from __future__ import annotations

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from adapter import settings, telemetry
from adapter.cli.local_prometheus.process import free_ports
from adapter.server.app.server import running
from certs.issue import issue_temporary
from tools.certificates import NOW
from tools.fakes import kubernetes

RULES = "rules: []\n"


def samples(text, *names):
    """Return the values of some metrics by name and label values."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in names
    }


def expose(registry):
    return generate_latest(registry).decode()


@pytest.mark.parametrize(
    ("user", "username"),
    [
        ("jane", "other"),
        ("system:serviceaccount:gpu:web", "other"),
        ("system:anonymous", "other"),
        ("jane@example.com", "email_id"),
        ("admin", "admin"),
        ("kubelet", "kubelet"),
        (
            "system:serviceaccount:kube-system:default",
            "system:serviceaccount:kube-system:default",
        ),
    ],
)
def test_usernames_are_compressed_as_in_kubernetes(user, username):
    registry = CollectorRegistry()
    access = telemetry.AuthMetrics(registry)

    access.authenticated(user)
    access.authenticated(user)

    assert samples(expose(registry), "authenticated_user_requests") == {
        ("authenticated_user_requests", username): 2
    }


def test_results_are_exposed_before_the_first_request():
    registry = CollectorRegistry()

    telemetry.AuthMetrics(registry)

    names = "authentication_attempts", "authorization_attempts_total"
    assert samples(expose(registry), *names) == {
        ("authentication_attempts", "success"): 0,
        ("authentication_attempts", "error"): 0,
        ("authorization_attempts_total", "allowed"): 0,
        ("authorization_attempts_total", "denied"): 0,
        ("authorization_attempts_total", "no-opinion"): 0,
        ("authorization_attempts_total", "error"): 0,
    }


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.slow
async def test_a_server_counts_authentication_and_authorization(aiohttp_server, tmp_path):
    cluster = kubernetes.Cluster()
    for name in ("jane@example.com", "joe"):
        cluster.tokens[name] = {"authenticated": True, "user": {"username": name}}
    cluster.decide = lambda spec: {"allowed": spec["user"] != "joe"}
    kubeconfig = kubernetes.kubeconfig(tmp_path, await aiohttp_server(cluster.app()))
    serving = issue_temporary(("127.0.0.1",), now=NOW)
    (tmp_path / "tls.crt").write_bytes(serving.chain_pem)
    (tmp_path / "tls.key").write_bytes(serving.key_pem)
    (tmp_path / "rules.yaml").write_text(RULES)
    parsed = settings.parse(
        (
            "--prometheus-url=http://127.0.0.1:9",
            f"--lister-kubeconfig={kubeconfig}",
            f"--config={tmp_path / 'rules.yaml'}",
            f"--tls-cert-file={tmp_path / 'tls.crt'}",
            f"--tls-private-key-file={tmp_path / 'tls.key'}",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_ports(1)[0]}",
        )
    )

    async with running(parsed) as url, aiohttp.ClientSession(url) as session:

        async def fetch(path, token):
            async with session.get(path, headers=bearer(token), ssl=False) as response:
                return response.status, await response.text()

        statuses = [(await fetch("/version", token))[0] for token in ("joe", "joe", "nobody")]
        status, text = await fetch("/metrics", "jane@example.com")

    assert [*statuses, status] == [403, 403, 401, 200]
    names = (
        "authentication_attempts",
        "authenticated_user_requests",
        "authorization_attempts_total",
    )
    assert samples(text, *names) == {
        ("authentication_attempts", "success"): 3,
        ("authentication_attempts", "error"): 1,
        ("authenticated_user_requests", "other"): 2,
        ("authenticated_user_requests", "email_id"): 1,
        ("authorization_attempts_total", "allowed"): 1,
        ("authorization_attempts_total", "denied"): 0,
        ("authorization_attempts_total", "no-opinion"): 2,
        ("authorization_attempts_total", "error"): 0,
    }


def test_a_stall_is_shown_for_a_minute_or_two_and_counted_for_good():
    registry, times = CollectorRegistry(), [0.0]
    metrics = telemetry.LoopMetrics(registry, clock=lambda: times[-1])

    shown = []
    for now, late in ((1.0, 0.03), (59.0, 0.001), (61.0, 0.002), (119.0, 0.001), (130.0, 0.004)):
        times.append(now)
        metrics.late(late)
        shown.append(registry.get_sample_value("gpu_metrics_adapter_event_loop_stall_seconds"))

    assert shown == [0.03, 0.03, 0.03, 0.03, 0.004]
    lag = "gpu_metrics_adapter_event_loop_lag_seconds"
    assert registry.get_sample_value(f"{lag}_bucket", {"le": "0.02"}) == 4
    assert registry.get_sample_value(f"{lag}_count") == 5
