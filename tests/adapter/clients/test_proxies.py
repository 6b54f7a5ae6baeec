from __future__ import annotations

import pytest

from adapter import errors, settings
from adapter.clients import kubernetes as kube
from adapter.clients import sources, transport
from tools import kubeconfig


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://prometheus.monitoring:9090/x", "http://plain:3128"),
        ("https://prometheus.monitoring:9090", "http://user:word@secure:3128"),
        ("https://10.96.0.1:443", None),
        ("https://10.97.0.1:443", "http://user:word@secure:3128"),
        ("https://[fd00::1]:443", None),
        ("https://192.0.2.7", None),
        ("https://api.corp.example", None),
        ("https://corp.example", None),
        ("https://notcorp.example", "http://user:word@secure:3128"),
        ("http://localhost:9090", None),
        ("http://127.1.2.3:9090", None),
        ("http://[::1]:9090", None),
    ],
)
def test_proxy_is_chosen_from_the_environment(environment, url, expected):
    environment.setenv("HTTP_PROXY", "plain:3128")
    environment.setenv("https_proxy", "http://user:word@secure:3128")
    environment.setenv("NO_PROXY", "10.96.0.0/16, fd00::/8,192.0.2.7,.corp.example")

    assert transport.proxy_for(url) == expected


@pytest.mark.parametrize("excepted", ["*", "prometheus.monitoring"])
def test_no_proxy_variable_or_an_exception_means_no_proxy(environment, excepted):
    assert transport.proxy_for("http://prometheus.monitoring") is None

    environment.setenv("HTTP_PROXY", "http://plain:3128")
    environment.setenv("NO_PROXY", excepted)

    assert transport.proxy_for("http://prometheus.monitoring") is None


async def test_requests_to_the_api_server_use_the_proxy(environment, cluster, api_server, tmp_path):
    path = kubeconfig.write(tmp_path / "kubeconfig", {"server": "http://cluster.invalid/"}, {})

    async def pods():
        api = await kube.Kube.connect(str(path), qps=99, burst=99)
        try:
            return await api.get("/api/v1/namespaces/a/pods")
        finally:
            await api.close()

    with pytest.raises(errors.Unreachable):
        await pods()
    environment.setenv("http_proxy", str(api_server.make_url("/")))
    document = await pods()

    assert document["kind"] == "PodList"
    assert len(cluster.requests) == 1


async def test_requests_to_prometheus_use_the_proxy(environment, fake):
    environment.setenv("http_proxy", fake.url)
    parsed = settings.parse(("--prometheus-url=http://prometheus.invalid", "--secure-port=6443"))

    async with sources.connect_prometheus(parsed.prometheus) as client:
        result = await client.query("up")

    assert result.samples == ()
    assert len(fake.requests) == 1


async def test_netrc_is_ignored(environment, cluster, api, tmp_path):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password secret\n")
    environment.setenv("NETRC", str(tmp_path / "netrc"))

    await api.get("/api/v1/namespaces/a/pods")

    (request,) = cluster.requests
    assert request.authorization is None
