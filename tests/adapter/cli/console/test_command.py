"""The command: what it refuses, and how it starts. tools/playground runs it."""

from __future__ import annotations

import socket

import aiohttp
import pytest

from adapter import settings
from adapter.cli.commands import console
from adapter.cli.console import reader, server
from adapter.clients.kubernetes import Kube
from adapter.settings.kubectl import KubectlSettings

KUBECONFIG = (
    "{apiVersion: v1, kind: Config, current-context: dev, users: [{name: jane, user: {}}], "
    "clusters: [{name: one, cluster: {server: 'http://127.0.0.1:9'}}], "
    "contexts: [{name: dev, context: {cluster: one, user: jane}}]}"
)


@pytest.mark.parametrize("prefix", ["console", "/console/", "/a b", "//x", "/<b>"])
def test_a_prefix_that_is_no_path_is_refused(prefix: str) -> None:
    with pytest.raises(settings.UsageError, match="must be a path such as /console"):
        console.main([f"--path-prefix={prefix}"])


def test_a_port_in_use_is_named(tmp_path, capsys) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        code = console.main([f"--port={port}", "--no-browser", f"--kubeconfig={kubeconfig}"])

    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}: " in capsys.readouterr().err


async def test_each_page_names_context_cluster_and_user(tmp_path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    flags = KubectlSettings(kubeconfig=str(kubeconfig))
    cluster = reader.ShownCluster(kubeconfig=flags, prometheus=None)
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        server.running(cluster, port=0, prefix="") as address,
        aiohttp.ClientSession(cookie_jar=jar) as session,
        session.get(address) as response,
    ):
        text = await response.text()

    assert "context dev, cluster one, user jane" in text


def test_without_a_kubeconfig_it_says_what_to_set(tmp_path, capsys) -> None:
    code = console.main(["--no-browser", f"--kubeconfig={tmp_path / 'none'}"])

    assert code == 1
    assert capsys.readouterr().err.endswith("Set --kubeconfig or --context\n")


async def test_a_query_links_to_prometheus_without_credentials(tmp_path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    flags = KubectlSettings(kubeconfig=str(kubeconfig))
    url = "https://me:secret@prometheus.example/base?tenant=a"
    prometheus = settings.PrometheusSettings(url=url)
    kube = await Kube.connect(flags, qps=1, burst=1)
    shown = reader.ClusterReader(
        kube, reader.ShownCluster(kubeconfig=flags, prometheus=prometheus), None
    )
    await kube.close()

    address = shown.graph("sum(up) / 2")

    assert address.startswith("https://prometheus.example/base/graph?g0.expr=sum(up)")
    assert "secret" not in address
