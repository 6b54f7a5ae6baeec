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
from tools import kubeconfig as kubeconfigs


@pytest.fixture
def kubeconfig(tmp_path):
    """Path of a kubeconfig whose context, cluster and user are called `it`."""
    return str(kubeconfigs.write(tmp_path / "kubeconfig", {"server": "http://127.0.0.1:9"}, {}))


@pytest.mark.parametrize("prefix", ["console", "/console/", "/a b", "//x", "/<b>"])
def test_a_prefix_that_is_no_path_is_refused(prefix):
    with pytest.raises(settings.UsageError, match="must be a path such as /console"):
        console.main([f"--path-prefix={prefix}"])


def test_a_port_in_use_is_named(kubeconfig, cli):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        code, _, error = cli(
            "console", f"--port={port}", "--no-browser", f"--kubeconfig={kubeconfig}"
        )

    assert (code, f"cannot listen on 127.0.0.1:{port}: " in error) == (1, True)


async def test_each_page_names_context_cluster_and_user(kubeconfig):
    flags = KubectlSettings(kubeconfig=kubeconfig)
    cluster = reader.ShownCluster(kubeconfig=flags, prometheus=None)
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        server.running(cluster, port=0, prefix="") as address,
        aiohttp.ClientSession(cookie_jar=jar) as session,
        session.get(address) as response,
    ):
        text = await response.text()

    assert "context it, cluster it, user it" in text


def test_without_a_kubeconfig_it_says_what_to_set(cli):
    code, _, error = cli("console", "--no-browser", "--kubeconfig=/none")

    assert (code, error.endswith("Set --kubeconfig or --context\n")) == (1, True)


async def test_a_query_links_to_prometheus_without_credentials(kubeconfig):
    flags = KubectlSettings(kubeconfig=kubeconfig)
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
