"""Detection of exporters on a real Prometheus: several at once, idle ones, and the command.

What is detected of each generation alone is in test_variants.py.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from adapter import errors
from adapter.cli.doctor import backend
from adapter.cli.program import main
from adapter.clients.kubernetes import Kube
from adapter.clients.prometheus import Prometheus
from rules.findings import State
from tools.fakes import kubernetes
from tools.fakes import prometheus as fakes
from tools.presets import api, worlds
from tools.real import prometheus as real

DCGM, PROF, NODE = "gpu-dcgm", "gpu-dcgm-prof", "gpu-node"


AT_ONCE: Mapping[str, tuple[Mapping[str, str], tuple[str, ...]]] = {
    "c+d": (
        {
            "c4-4.8.2-default/gpu-node-a.prom": "exported",
            "d1-4.9.0-renamed/gpu-node-b.prom": "exported",
        },
        ("gpu-dcgm49", DCGM, PROF),
    ),
    "e2+c+b": (
        {
            "e2-nvidia-smi/gpu-node-a.prom": "exported",
            "c2-2.6-default/gpu-node-b.prom": "honored",
            "b2-compat-2x/gpu-node-c.prom": "bare",
        },
        (DCGM, "gpu-dcgm-compat", PROF, NODE),
    ),
    "b1+b2": (
        {
            "b1-dcgm-1x/gpu-node-a.prom": "bare",
            "b2-compat-2x/gpu-node-b.prom": "bare",
        },
        ("gpu-dcgm-compat", PROF),
    ),
    "schemes": (
        {
            "c4-4.8.2-default/gpu-node-a.prom": "exported",
            "c4-4.8.2-default/gpu-node-b.prom": "honored",
            "c4-4.8.2-default/gpu-node-c.prom": "bare",
        },
        (DCGM, PROF),
    ),
}
"""Files that are scraped at once, each with its scheme, and the presets that fit."""


@pytest.fixture(scope="module")
def scraped(
    real_servers: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, real.Prometheus]]:
    """Yield a Prometheus for each of AT_ONCE."""
    with worlds.exporters() as port:
        configs = {name: worlds.configuration(jobs, port) for name, (jobs, _) in AT_ONCE.items()}
        with worlds.scraping(tmp_path_factory.mktemp("prometheus"), configs) as running:
            yield running


@pytest.mark.parametrize("name", AT_ONCE)
async def test_presets_of_several_generations_are_combined_from_new_to_old(name, scraped):
    detected = await api.detected(scraped[name].url)

    assert detected.presets == AT_ONCE[name][1]


async def test_several_scrape_schemes_of_one_generation_are_detected(scraped):
    detected = await api.detected(scraped["schemes"].url)

    assert detected.exporters[0].schemes == ("exported", "honored", "direct")


UP = 'up{job="gpu",instance="a",namespace="gpu-operator",pod="exporter-x"} 1'
OWN = 'job="gpu",instance="a",namespace="gpu-operator",pod="exporter-x"'
EXPORTED = 'exported_namespace="default",exported_pod="bert-0"'
HONORED = 'job="gpu",instance="a",namespace="default",pod="bert-0"'


@pytest.fixture
def server(real_servers: None, tmp_path: Path) -> Iterator[real.Prometheus]:
    with real.run(tmp_path) as running:
        yield running


@pytest.mark.parametrize(
    ("busy", "scheme"),
    [(f"{OWN},{EXPORTED}", "exported"), (HONORED, "honored")],
    ids=["exported", "honored"],
)
async def test_the_scheme_of_an_idle_fleet_is_that_of_its_last_pods(busy, scheme, server):
    busy_at = time.time() - 1200
    server.put(f'DCGM_FI_DEV_GPU_UTIL{{UUID="1",{busy}}} 5', UP, at=busy_at)
    server.put(f'DCGM_FI_DEV_GPU_UTIL{{UUID="1",{OWN}}} 0', UP)

    detected = await api.detected(server.url)

    assert detected.presets == (DCGM,)
    assert detected.exporters[0].schemes == (scheme,)
    assert "idle" in {finding.reason for finding in detected.exporters[0].findings}
    assert not detected.provisional


async def test_the_scheme_of_an_idle_fleet_without_target_pods_is_direct(server):
    target = 'job="gpu",instance="a"'
    gpu = f'DCGM_FI_DEV_GPU_UTIL{{UUID="1",{target}'
    server.put(f'{gpu},namespace="default",pod="bert-0"}} 5', at=time.time() - 1200)
    server.put(f"{gpu}}} 0", f"up{{{target}}} 1")

    detected = await api.detected(server.url)

    assert detected.exporters[0].schemes == ("direct",)


async def test_a_report_is_provisional_if_series_have_only_the_exporters_own_pod(server):
    server.put(f'DCGM_FI_DEV_GPU_UTIL{{UUID="1",{OWN}}} 0', UP)

    detected = await api.detected(server.url)

    assert detected.presets == (NODE,)
    assert detected.provisional
    assert detected.waiting == "gpu-dcgm"
    assert any("series have only the exporter's own pod" in text for text in detected.sentences)


async def test_an_idle_gke_plugin_is_detected_before_the_first_pod(server: real.Prometheus) -> None:
    server.put('duty_cycle_gpu_node{accelerator_id="1",make="nvidia"} 0', "up 1")

    detected = await api.detected(server.url)

    assert detected.presets == ("gpu-gke-plugin",)
    assert [finding.reason for finding in detected.exporters[0].findings] == ["idle"]


async def test_an_empty_prometheus_is_reported(server, capsys):
    code = await _run("detect", f"--prometheus-url={server.url}")

    assert code == 1
    assert "has no series at all" in capsys.readouterr().out


async def test_a_prometheus_without_gpu_series_is_reported(server, capsys):
    server.put('up{job="node"} 1', 'up{job="gpu"} 0', 'node_cpu_seconds_total{cpu="0"} 1')
    server.put("memory_used 5")

    code = await _run("detect", f"--prometheus-url={server.url}")

    out = " ".join(capsys.readouterr().out.split())
    assert code == 1
    assert "scrapes 2 targets, none with series of a GPU exporter" in out
    assert "1 of 2 targets down" in out


async def test_an_unknown_exporter_beside_a_known_one_is_reported(server: real.Prometheus) -> None:
    server.put(f'DCGM_FI_DEV_GPU_UTIL{{UUID="1",{HONORED}}} 5', UP)
    server.put('RBLN_DEVICE_STATUS:UTILIZATION{card="0"} 40', 'mtgpu_utilization{gpu="0"} 30')

    detected = await api.detected(server.url, unknown=True)

    assert detected.presets == (DCGM,)
    [finding] = detected.findings
    assert finding.fact.endswith("them: RBLN_DEVICE_STATUS:UTILIZATION, mtgpu_utilization")


async def test_an_exporter_whose_series_ended_is_reported(server: real.Prometheus) -> None:
    server.put('DCGM_FI_DEV_GPU_UTIL{UUID="1",pod="a"} 5', at=time.time() - 1200)

    detected = await api.detected(server.url)

    assert detected.presets == ()
    assert "have ended" in detected.sentences[0]
    assert not detected.provisional


async def test_the_command_reports_an_unreachable_prometheus(capsys):
    code = await _run("detect", "--prometheus-url=http://127.0.0.1:9")

    assert code == 1
    assert "Prometheus cannot be queried" in capsys.readouterr().err


async def test_detection_raises_if_prometheus_is_unreachable() -> None:
    with pytest.raises(errors.Unreachable):
        await api.detected("http://127.0.0.1:9")


async def test_prometheus_returns_names_only(server: real.Prometheus, aiohttp_server) -> None:
    server.put(f'DCGM_FI_DEV_GPU_UTIL{{UUID="1",Hostname="exporter-x",{HONORED}}} 5', UP)
    returned = bytearray()
    proxy = fakes.through(server.url)

    async def behave(request: web.Request, asked: fakes.Received) -> web.StreamResponse:
        response = await proxy(request, asked)
        assert isinstance(response, web.Response)
        assert isinstance(response.body, bytes)
        returned.extend(response.body)
        return response

    fake = fakes.Prometheus(behave)
    proxied = await aiohttp_server(fake.app())

    detected = await api.detected(str(proxied.make_url("/")).rstrip("/"))

    assert detected.presets == (DCGM,)
    assert {asked.path for asked in fake.requests} == {
        "/api/v1/query",
        "/api/v1/label/__name__/values",
    }
    assert b"bert-0" not in returned
    assert b"exporter-x" not in returned


@pytest.mark.usefixtures("patience")
async def test_pods_that_are_not_scraped_are_named_by_detect_and_doctor(
    server: real.Prometheus,
    aiohttp_server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = kubernetes.Cluster()
    image = {"containers": [{"name": "vllm", "image": "vllm/vllm-openai:v0.18.0"}]}
    for name, phase in (("llm-0", "Running"), ("llm-1", "Running"), ("llm-2", "Pending")):
        cluster.put("pods", "team", name, spec=image, status={"phase": phase})
    path = kubernetes.kubeconfig(tmp_path, await aiohttp_server(cluster.app()))
    server.put('up{job="vllm",namespace="team",pod="llm-0",instance="a"} 1')

    await _run("detect", f"--prometheus-url={server.url}", f"--kubeconfig={path}")
    kube = await Kube.connect(path, qps=100, burst=100)
    async with aiohttp.ClientSession() as session:
        prometheus = Prometheus(session, server.url)
        found = await backend.findings(prometheus, api=kube)
        cluster.failures.append(kubernetes.Failure(path="/api/v1/pods", status=403))
        without_right = await backend.findings(prometheus, api=kube)
        cluster.failures.append(kubernetes.Failure(path="/api/v1/pods", delay=5))
        monkeypatch.setattr(backend, "_PODS_SECONDS", 0.1)
        slow = await backend.findings(prometheus, api=kube)
    await kube.close()

    fact = "vLLM (vllm:*): 1 pod in 1 namespace (team/llm-1), not scraped by Prometheus"
    cure = "`gpu-metrics-adapter presets scrape inference-vllm` prints what makes it scrape them"
    assert f"{fact}. {cure}" in " ".join(capsys.readouterr().out.split())
    assert [(each.fact, each.cure) for each in found if each.subject == "pods"] == [(fact, cure)]
    assert not [each for each in without_right if each.subject == "pods"]
    assert [each.state for each in slow if each.subject == "pods"] == [State.SKIPPED]


async def test_the_command_prints_json(server, capsys):
    server.put(f'DCGM_FI_DEV_FB_USED{{UUID="1",{OWN},{EXPORTED}}} 5', UP)

    code = await _run("detect", f"--prometheus-url={server.url}", "--output=json")

    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert document["flags"] == ["--preset=gpu-dcgm"]
    assert document["exporters"][0]["schemes"] == ["exported"]
    assert document["exporters"][0]["findings"][0]["reason"] == "missing"


COMMAND_LINES = [
    ((), 0, "gpu-hami                HAMi's vGPU monitor"),
    (("gpu-hami",), 0, "rules:\n"),
    (
        ("gpu-nothing",),
        1,
        "there is no preset called 'gpu-nothing' (presets: ",
    ),
    (("detect", "--prometheus-url=ftp://x"), 2, "must be an http or https URL with a host"),
    (("detect",), 2, "--prometheus-url: is missing, and so is $PROMETHEUS_URL"),
    (
        ("detect", "--prometheus-url=http://p", "--prometheus-token-file=/none"),
        1,
        "/none: No such file or directory",
    ),
    (
        ("detect", "--prometheus-url=http://127.0.0.1:9", "--prometheus-auth-config=/none"),
        1,
        "--prometheus-auth-config=/none: [Errno 2] No such file",
    ),
]


@pytest.mark.parametrize(("argv", "code", "text"), COMMAND_LINES)
async def test_exit_code_and_output_of_a_command_line(argv, code, text, capsys):
    status = await _run(*argv)

    captured = capsys.readouterr()
    assert status == code
    assert text in captured.out + captured.err


async def _run(*argv: str) -> int:
    """Run the program in a thread, because it starts an event loop of its own."""
    return await asyncio.to_thread(main, ["presets", *argv])
