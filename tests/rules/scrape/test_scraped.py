"""What a real Prometheus scrapes by generated configurations, with the labels of discovery given.

Its addresses are replaced by that of one server, which knows each page by the address and path.
Options that Prometheus 2.42 does not know are left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from rules.limits import Limits
from rules.scrape import formats, jobs
from rules.scrape.jobs import Job
from tools import embedded, http_server
from tools.http_server import METRICS, Answer
from tools.presets import api, worlds
from tools.presets.pods import EXPOSITIONS
from tools.presets.table import EVERY_VARIANT
from tools.real import prometheus
from tools.real.prometheus import Prometheus
from tools.workload.page import stamped

pytestmark = pytest.mark.usefixtures("real_servers")

TOKEN = "Bearer of-prometheus"
_UNKNOWN = ("scrape_protocols", "keep_dropped_targets", "track_timestamps_staleness")
"""Options that Prometheus 2.42 does not know."""
Target = Mapping[str, Any]


def container(
    namespace: str,
    pod: str,
    *,
    image: str = "registry.example/other:1",
    name: str = "main",
    port: tuple[str, int] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    init: bool = False,
    ip: str = "10.0.0.1",
) -> Mapping[str, str]:
    """Return the labels that discovery gives a container, or one of its declared ports."""
    found = {
        "namespace": namespace,
        "pod_name": pod,
        "pod_ip": ip,
        "pod_node_name": "node-1",
        "pod_container_name": name,
        "pod_container_image": image,
        "pod_container_init": str(init).lower(),
        **({"pod_container_port_name": port[0]} if port else {}),
        **({"pod_container_port_number": str(port[1])} if port else {}),
        **{f"pod_label_{_written(key)}": value for key, value in (labels or {}).items()},
        **{f"pod_annotation_{_written(key)}": value for key, value in (annotations or {}).items()},
    }
    return {f"__meta_kubernetes_{key}": value for key, value in found.items()}


def _written(key: str) -> str:
    return "".join(each if each.isalnum() else "_" for each in key)


def configuration(
    chosen: Mapping[str, Sequence[Job]], pods: Sequence[Mapping[str, str]], port: int, interval: int
) -> str:
    configs = [
        # Shards know themselves by the end of their names.
        each | {"job_name": f"{name}-{each['job_name'].rpartition('-')[2]}"}
        for name, found in chosen.items()
        for each in formats.prometheus(found, interval=interval)["scrape_configs"]
    ]
    for each in configs:
        for key in (*_UNKNOWN, "kubernetes_sd_configs"):
            each.pop(key, None)
        if "authorization" in each:
            each["authorization"] = {"credentials": TOKEN.removeprefix("Bearer ")}
        each["static_configs"] = [{"targets": ["discovered"], "labels": pod} for pod in pods]
        each["relabel_configs"] = each["relabel_configs"] + [
            {"source_labels": ["__address__"], "target_label": "instance"},
            {
                "source_labels": ["__address__", "__metrics_path__"],
                "separator": "",
                "target_label": "__metrics_path__",
                "replacement": "/$1",
            },
            {"target_label": "__scheme__", "replacement": "http"},
            {"target_label": "__address__", "replacement": f"127.0.0.1:{port}"},
        ]
    return json.dumps({**embedded.STORAGE, "scrape_configs": configs})


@contextmanager
def scraping(
    folder: Path,
    chosen: Mapping[str, Sequence[Job]],
    pods: Sequence[Mapping[str, str]],
    pages: Mapping[str, str],
    *,
    interval: int = 5,
) -> Iterator[tuple[Prometheus, dict[str, str]]]:
    """Run Prometheus on pages by address and path, or by IP; yield it, and the tokens they got.

    Its flags and its storage are those of the Prometheus in the adapter's pod.
    """
    tokens: dict[str, str] = {}

    def answer(request: BaseHTTPRequestHandler, _: bytes) -> Answer:
        page = request.path.removeprefix("/")
        tokens[page] = request.headers.get("Authorization", "")
        text = pages.get(page, pages.get(page.rpartition(":")[0]))
        body = b"" if text is None else stamped(text).encode()
        return 404 if text is None else 200, METRICS, body

    with http_server.serving(answer) as port:
        config = configuration(chosen, pods, port, interval)
        with prometheus.run(folder, config, flags=embedded.flags()) as server:
            yield server, tokens


def targets(server: Prometheus) -> list[Target]:
    """Return the active targets, once each has been scraped in time."""
    found: list[Target] = []

    def scraped() -> bool:
        nonlocal found
        listed = server.get("/api/v1/targets")
        found = listed["activeTargets"]
        late = any("deadline exceeded" in each["lastError"] for each in found)
        return any(listed.values()) and not late and all(e["health"] != "unknown" for e in found)

    prometheus.wait_for(scraped, "each target is scraped")
    return found


VLLM = "docker.io/vllm/vllm-openai:v0.18.0"
PAGE = 'vllm:num_requests_running{model_name="m"} 4\nvllm:num_requests_waiting 3\n'


LIMITED: Mapping[str, tuple[int, str]] = {
    "scrape_samples": (1, PAGE),
    "scrape_body": (50, PAGE),
    "scrape_labels": (7, PAGE),
    "scrape_label_value": (40, f'vllm:x{{y="{"x" * 41}"}} 1\n'),
    "scrape_targets": (1, PAGE),
}
"""Limit -> a value that a page exceeds, or two pages."""


def test_pages_beyond_a_limit_are_not_scraped(tmp_path: Path) -> None:
    ips = {name: f"10.0.0.{number}" for number, name in enumerate(LIMITED, 1)}
    pods = [container("team-a", name, image=VLLM, ip=ips[name]) for name in LIMITED]
    pages = {f"{ips[name]}:8000/metrics": page for name, (_, page) in LIMITED.items()}
    chosen = {
        name: jobs.of_presets(["inference-vllm"], limits=Limits(**{name: value}))
        for name, (value, _) in LIMITED.items()
    }
    chosen["default"] = jobs.of_presets(["inference-vllm"])

    with scraping(tmp_path, chosen, pods, pages) as (server, _):
        found = targets(server)

    down = {
        (each["scrapePool"].rpartition("-")[0], each["labels"]["pod"]): each["lastError"]
        for each in found
        if each["health"] == "down"
    }
    assert all("limit" in error for error in down.values())
    for name in LIMITED:
        assert (name, name) in down
        assert ("default", name) not in down
    assert all(("scrape_targets", name) in down for name in LIMITED)


def test_a_namespace_beyond_the_limit_of_targets_ends_those_of_its_shard(tmp_path: Path) -> None:
    teams = [f"team-{number}" for number in range(6)]
    pods = [
        *(container("mallory", f"pod-{number}", image=VLLM, ip="10.0.0.9") for number in range(7)),
        *(container(team, "llm", image=VLLM, ip=f"10.0.1.{n}") for n, team in enumerate(teams)),
    ]
    pages = {pod["__meta_kubernetes_pod_ip"]: PAGE for pod in pods}
    chosen = {"vllm": jobs.of_presets(["inference-vllm"], limits=Limits(scrape_targets=6))}

    with scraping(tmp_path, chosen, pods, pages) as (server, _):
        found = targets(server)

    pools = {each["labels"]["namespace"]: each["scrapePool"] for each in found}
    assert len(found) == len(pods)
    assert len({*pools.values()}) > 1
    for each in found:
        ended = pools[each["labels"]["namespace"]] == pools["mallory"]
        assert each["health"] == ("down" if ended else "up"), each["lastError"]


def test_the_samples_of_a_page_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    """`doctor` names them."""
    chosen = {"vllm": jobs.of_presets(["inference-vllm"], limits=Limits(scrape_samples=1))}

    pods = [container("team-a", "llm", image=VLLM, ip="10.0.0.1")]
    with scraping(tmp_path, chosen, pods, {"10.0.0.1": PAGE}) as (server, _):
        targets(server)
        (refused,) = server.query("scrape_samples_post_metric_relabeling and up == 0")

    assert refused["value"][1] == "2"


def test_series_that_ended_leave_the_memory_soon(tmp_path: Path) -> None:
    """A page may have new series each time; all namespaces share the memory."""
    ages = (300, 180, 60, 0)
    with prometheus.run(tmp_path, flags=embedded.flags()) as server:
        now = time.time()
        server.put(*(f'vllm:num_requests_running{{n="{n}"}} 1' for n in range(100)), at=now - 301)
        for age in ages:
            server.put("vllm:num_requests_waiting 1", at=now - age)

        def in_memory() -> int:
            count: int = server.get("/api/v1/status/tsdb")["headStats"]["numSeries"]
            return count

        prometheus.wait_for(lambda: in_memory() == 1, "ended series are in blocks only")
        kept = server.query("count(last_over_time(vllm:num_requests_running[10m]))")
    assert [each["value"][1] for each in kept] == ["100"]


def test_a_page_of_the_future_does_not_end_the_series_of_others(tmp_path: Path) -> None:
    """Prometheus refuses samples that are older than the newest by half a block."""
    future = int((time.time() + 9 * 60) * 1000)
    pods = [
        container("mallory", "vllm", image=VLLM, ip="10.0.0.1"),
        container("team-a", "vllm", image=VLLM, ip="10.0.0.2"),
    ]
    pages = {"10.0.0.1": f"vllm:num_requests_running 9 {future}\n", "10.0.0.2": PAGE}
    chosen = {"vllm": jobs.of_presets(["inference-vllm"])}

    with scraping(tmp_path, chosen, pods, pages) as (server, _):
        query = 'count_over_time(vllm:num_requests_running{namespace="team-a"}[1m]) > 2'
        prometheus.wait_for(lambda: server.query(query), "it is scraped three times")


LLMD = "ghcr.io/llm-d/llm-d-cuda:v0.5.0"
SIDECAR = "ghcr.io/llm-d/llm-d-routing-sidecar:v0.5.0"
PODS: Mapping[str, tuple[Sequence[Mapping[str, Any]], str]] = {
    "vllm": ([{"image": VLLM}], "inference-vllm 8000/metrics main"),
    "vllm-mirror": (
        [{"image": "mirror:5000/hub/vllm/vllm-openai@sha256:0"}],
        "inference-vllm 8000/metrics main",
    ),
    "vllm-cpu": ([{"image": "vllm/vllm-openai-cpu:v0.18.0"}], "inference-vllm 8000/metrics main"),
    "vllm-ports": (
        [{"image": VLLM, "port": each} for each in (("http", 8000), ("zmq", 55555), ("ucx", 9999))],
        "inference-vllm 8000/metrics main",
    ),
    "vllm-port": (
        [{"image": VLLM, "annotations": {"gpu-metrics-adapter/port": "8080"}}],
        "inference-vllm 8080/metrics main",
    ),
    "own-image": (
        [
            {
                "name": each,
                "annotations": {
                    "gpu-metrics-adapter/scrape": "inference-nim",
                    "gpu-metrics-adapter/port": "9000",
                    "gpu-metrics-adapter/path": "/v1/metrics",
                },
            }
            for each in ("server", "sidecar")
        ],
        "inference-nim 9000/v1/metrics ",
    ),
    "production-stack": (
        [
            {
                "image": "mirror/engine",
                "name": "vllm",
                "port": ("container-port", 8000),
                "labels": {"app.kubernetes.io/component": "serving-engine"},
            }
        ],
        "inference-vllm 8000/metrics vllm",
    ),
    "llm-d-decode": (
        [
            {
                "image": LLMD,
                "name": "modelserver",
                "port": ("modelserver", 8200),
                "labels": {"llm-d.ai/role": "decode"},
            },
            {
                "image": SIDECAR,
                "name": "routing-proxy",
                "port": ("sidecar", 8000),
                "labels": {"llm-d.ai/role": "decode"},
                "init": True,
            },
        ],
        "inference-vllm 8200/metrics modelserver",
    ),
    "modelservice-decode": (
        [
            {
                "image": LLMD,
                "name": "vllm",
                "port": ("", 8200),
                "labels": {"llm-d.ai/role": "decode"},
            },
            {
                "image": SIDECAR,
                "name": "routing-proxy",
                "port": ("", 8000),
                "labels": {"llm-d.ai/role": "decode"},
                "init": True,
            },
        ],
        "inference-vllm 8200/metrics vllm",
    ),
    "kserve": (
        [{"image": "kserve/huggingfaceserver:v0.16", "name": "kserve-container"}],
        "inference-vllm 8080/metrics kserve-container",
    ),
    "aibrix": (
        [
            {
                "image": "mirror/engine",
                "name": "engine",
                "port": ("", 8000),
                "labels": {"model.aibrix.ai/name": "m"},
            },
            {
                "image": "aibrix/runtime:v0.4",
                "name": "aibrix-runtime",
                "port": ("metrics", 8080),
                "labels": {"model.aibrix.ai/name": "m"},
            },
        ],
        "inference-vllm 8000/metrics engine",
    ),
    "ray": (
        [
            {
                "image": "rayproject/ray-llm:2.60",
                "name": "ray-head",
                "port": each,
                "labels": {"ray.io/is-ray-node": "yes"},
            }
            for each in (("serve", 8000), ("metrics", 8080))
        ],
        "inference-ray 8080/metrics ray-head",
    ),
    "dynamo": (
        [
            {
                "image": "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.5",
                "port": each,
                "labels": {"nvidia.com/dynamo-component-type": "decode"},
            }
            for each in (("system", 9090), ("nixl", 19090))
        ],
        "inference-dynamo 9090/metrics main",
    ),
    "dynamo-frontend": (
        [{"port": ("http", 8000), "labels": {"nvidia.com/dynamo-component-type": "frontend"}}],
        "gateway-dynamo 8000/metrics main",
    ),
    "nim": (
        [{"image": "nvcr.io/nim/meta/llama-3.1-8b-instruct:1.8"}],
        "inference-nim 8000/v1/metrics main",
    ),
    "ipv6": ([{"image": VLLM, "ip": "fd00::7"}], "inference-vllm 8000/metrics main"),
    "other": ([{"image": "prom/prometheus:v3", "port": ("metrics", 9090)}], ""),
    "cache-server": ([{"image": "lmcache/lmcache:1", "port": ("http", 8000)}], ""),
}
"""Pod -> its containers, and the preset, port, path and container of its one target, if any."""


def test_a_pod_is_one_target_with_the_labels_of_its_pod(tmp_path: Path) -> None:
    ips = {pod: f"10.0.1.{number}" for number, pod in enumerate(PODS)}
    pods = [
        container("team-a", pod, **{"ip": ips[pod]} | each)
        for pod, (containers, _) in PODS.items()
        for each in containers
    ]

    with scraping(tmp_path, {"all": jobs.of_presets()}, pods, {}) as (server, _):
        found = targets(server)

    pages: dict[str, list[str]] = {}
    for each in found:
        labels = each["labels"]
        page = unquote(each["scrapeUrl"]).split("/", 3)[3]
        assert page.startswith(labels["instance"])
        assert (labels["namespace"], labels["node"]) == ("team-a", "node-1")
        host, _, port = page.rpartition(":")
        assert host == ("[fd00::7]" if labels["pod"] == "ipv6" else ips[labels["pod"]])
        told = f"{labels['job']} {port} {labels.get('container', '')}"
        pages.setdefault(labels["pod"], []).append(told)
    assert pages == {pod: [target] for pod, (_, target) in PODS.items() if target}


def test_no_page_decides_about_the_pods_of_others_or_gets_their_token(tmp_path: Path) -> None:
    """What is trusted in one namespace is not in another, whatever its pod claims to be."""
    forged = (
        'DCGM_FI_DEV_GPU_UTIL{UUID="x",Hostname="node-2",namespace="team-a",pod="llm-0"} 9\n'
        'vllm:num_requests_running{model_name="m",namespace="team-a",pod="llm-0",job="j"} 9\n'
    )
    exporter = {"image": "nvcr.io/nvidia/k8s/dcgm-exporter:4.8.2"}
    picker = {"labels": {"inferencepool": "pool-epp"}, "port": ("metrics", 9090)}
    annotations = {"gpu-metrics-adapter/scrape": "gpu-dcgm", "gpu-metrics-adapter/port": "9400"}
    pods = [
        container("gpu-operator", "dcgm", ip="10.0.0.1", **exporter),
        container("pools", "epp", ip="10.0.0.2", **picker),
        container("mallory", "dcgm", ip="10.0.0.3", **exporter),
        container("mallory", "epp", ip="10.0.0.4", **picker),
        container("mallory", "vllm", ip="10.0.0.5", image=VLLM),
        container("mallory", "annotated", ip="10.0.0.6", annotations=annotations),
        container("gpu-operator", "epp", ip="10.0.0.7", **picker),
    ]
    ports = (9400, 9090, 9400, 9090, 8000, 9400, 9090)
    pages = {f"10.0.0.{n}:{port}/metrics": forged for n, port in enumerate(ports, 1)}
    chosen = {
        f"{minimal}": jobs.of_presets(trusted=["gpu-operator"], tokens=["pools"], minimal=minimal)
        for minimal in (False, True)
    }

    with scraping(tmp_path, chosen, pods, pages) as (server, tokens):
        found = targets(server)
        names = "DCGM_FI_DEV_GPU_UTIL|vllm:num_requests_running"
        # Also the series of a page whose last scrape came late.
        series = server.query(f'last_over_time({{__name__=~"{names}"}}[5m])')

    pools = {(each["scrapePool"].rpartition("-")[2], each["labels"]["instance"]) for each in found}
    assert {("servers" if kind.isdigit() else kind, instance) for kind, instance in pools} == {
        ("devices", "10.0.0.1:9400"),
        ("token", "10.0.0.2:9090"),
        ("servers", "10.0.0.4:9090"),
        ("servers", "10.0.0.5:8000"),
        ("servers", "10.0.0.7:9090"),
    }
    assert {page for page, token in tokens.items() if token} == {"10.0.0.2:9090/metrics"}
    assert set(tokens.values()) == {"", TOKEN}
    of = {
        (each["metric"]["__name__"], each["metric"]["instance"]): each["metric"] for each in series
    }
    for (name, instance), labels in of.items():
        if instance == "10.0.0.1:9400":
            # In the trusted namespace, the exporter says whose device it is.
            assert (labels["namespace"], labels["pod"]) == ("team-a", "llm-0")
            assert (labels["node"], labels["exporter_pod"]) == ("node-1", "dcgm")
        else:
            assert name == "vllm:num_requests_running"
            of_gateway = {"10.0.0.2:9090": "pools", "10.0.0.7:9090": "gpu-operator"}
            assert labels["namespace"] == of_gateway.get(instance, "mallory")
            assert labels["job"] in {"gateway-inference-pool", "inference-vllm"}
    assert len({instance for _, instance in of}) == 5


def test_a_gateway_has_the_name_of_its_service(tmp_path: Path) -> None:
    labels = {"llm-d-router-gateway": "pool-epp"}
    pods = [container("pools", "epp-0", port=("metrics", 9090), labels=labels)]

    with scraping(tmp_path, {"all": jobs.of_presets()}, pods, {}) as (server, _):
        (found,) = targets(server)

    assert found["labels"]["service"] == "pool-epp"


async def test_presets_have_their_values_of_the_series_that_minimal_keeps(tmp_path: Path) -> None:
    """Recorded pages, the presets that the adapter detects itself, and the values of now."""
    one_of_nvidia = {*EVERY_VARIANT} - {"c4-4.8.2-helm"}
    chosen = [each for each in EXPOSITIONS if each.name.partition("/")[0] not in one_of_nvidia]
    discovered, pages = [], {}
    for each, pod in [(exposition, pod) for exposition in chosen for pod in exposition.files]:
        ip = f"10.0.2.{len(pages)}"
        labels = container(
            each.namespace,
            pod,
            image=each.pod.image,
            name=each.pod.container,
            port=each.pod.port,
            labels=each.pod.labels,
            ip=ip,
        )
        discovered.append({**labels, "__meta_kubernetes_pod_node_name": f"node-of-{pod}"})
        pages[ip] = each.files[pod].read_text()
    scraped = {"all": jobs.of_presets(minimal=True, trusted=["gpu-operator"])}
    pods = {pod: values for each in chosen for pod, values in each.pods.items()}
    nodes = {f"node-of-{pod}": of for each in chosen for pod, of in each.nodes.items()}
    objects = api.manifests(pods, nodes)

    # A scrape that takes nine tenths of the interval ends series.
    with scraping(tmp_path, scraped, discovered, pages, interval=10) as (server, _):
        worlds.wait_until_scraped(server, len(discovered))
        names_kept = server.get("/api/v1/label/__name__/values")
        async with api.serving(tmp_path, server.url, objects, ["--preset=auto"]) as served:
            found = {
                name: {metric: await value(served, name, metric) for metric in of}
                for name, of in {**pods, **nodes}.items()
            }

    assert found == {**pods, **nodes}
    assert not [each for each in names_kept if each.endswith("_created")]


async def value(served: api.Api, name: str, metric: str) -> Fraction | None:
    """Return the value of a node, or of a pod with its namespace."""
    namespace, _, pod = name.rpartition("/")
    of = await served.pods(namespace, metric) if namespace else await served.nodes(metric)
    return of.get(pod)
