"""Values of the presets for model servers: a real Prometheus, and the HTTPS API.

The counters of an exposition in tests/fixtures/servers are those after five minutes of even load;
all servers in `SERVERS` report the same load, so each metric has the same value for all of them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from adapter.cli import program
from adapter.cli.local_prometheus.remote_write import STALE, Labels
from rules import presets, ruleset
from rules.exporters import detect
from rules.exporters.generations import GENERATIONS
from tools.presets import api
from tools.presets.table import FIXTURES, SERVER_METRICS, SERVERS
from tools.real import prometheus

FOLDER = FIXTURES / "servers"
GOLDEN = json.loads((FIXTURES / "servers.json").read_text())
STATE: Mapping[str, float] = GOLDEN["state"]["values"]
NAMESPACE = "serving"
PRESETS = tuple(each for each in presets.names() if each.startswith("inference-"))
_MINUTES, _STEP, _RESTART = 300, 15, 285
"""Seconds of load in an exposition, between scrapes, and from the first scrape to a restart."""

Grown = Callable[[float, float], float]


def steady(value: float, elapsed: float) -> float:
    """Return a counter `elapsed` seconds after the first scrape."""
    return value * elapsed / _MINUTES


def restarted(value: float, elapsed: float) -> float:
    """Return a counter that begins again at 0 right after a scrape."""
    return steady(value, elapsed - _RESTART if elapsed > _RESTART else elapsed)


def idle(value: float, _: float) -> float:
    """Return the counter of a server that no longer has requests."""
    return value


PODS: Mapping[str, tuple[str, Grown, Mapping[str, float]]] = {
    **{
        name: (name, steady, {metric: STATE[metric] for metric in each.metrics})
        for name, each in SERVERS.items()
    },
    **{name: (name, steady, case["values"]) for name, case in GOLDEN["cases"].items()},
    "sglang-underscore": ("sglang", steady, STATE),
    "vllm-restarted": ("vllm", restarted, STATE),
    "vllm-idle": ("vllm", idle, dict.fromkeys(STATE, 0)),
    "sglang-idle": ("sglang", idle, dict.fromkeys(STATE, 0)),
}
"""Pod -> its exposition, how its counters grow, and its values by metric."""


def series(pod: str, file: str, grown: Grown) -> Iterator[tuple[dict[str, str], float, bool]]:
    """Yield labels, value and whether it grows of each series, as Prometheus stores them."""
    text = (FOLDER / f"{file}.prom").read_text()
    types = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE))
    target = {"namespace": NAMESPACE, "pod": pod, "service": file, "job": file, "instance": pod}
    for named, value in prometheus.samples(re.findall(r"^[^#].*", text, re.MULTILINE)):
        labels = dict(named)
        name = labels.pop("__name__")
        bases = (name.removesuffix(suffix) for suffix in ("", "_bucket", "_count", "_sum"))
        counts = any(types.get(base) in {"counter", "histogram"} for base in bases)
        stored = {f"exported_{key}" if key in target else key: v for key, v in labels.items()}
        name = name.replace(":", "_") if pod.endswith("-underscore") else name
        gauge = 0.0 if grown is idle else value
        yield {"__name__": name, **stored, **target}, value if counts else gauge, counts


@pytest.fixture(scope="module")
def server(real_servers, tmp_path_factory):
    """Yield a Prometheus with six minutes of samples and four more, so that none becomes stale."""
    every = [
        (grown, each) for pod, (file, grown, _) in PODS.items() for each in series(pod, file, grown)
    ]
    with prometheus.run(tmp_path_factory.mktemp("prometheus")) as running:
        first = time.time() - 345
        for elapsed in range(0, 600, _STEP):
            samples = (
                (labels, grown(value, elapsed) if counts else value)
                for grown, (labels, value, counts) in every
            )
            running.write(samples, at=first + elapsed)
        yield running


def manifests() -> str:
    return api.manifests(f"{NAMESPACE}/{pod}" for pod in (*PODS, "new"))


@pytest.fixture(scope="module")
def scraped(real_servers, tmp_path_factory):
    with prometheus.run(tmp_path_factory.mktemp("scraped")) as running:
        yield running


async def answers(folder: Path, server: prometheus.Prometheus, names: tuple[str, ...]) -> Any:
    """Return pod -> metric -> value, with these presets."""
    flags = [f"--preset={name}" for name in names]
    found: dict[str, dict[str, Fraction]] = {}
    async with api.serving(folder, server.url, manifests(), flags) as served:
        for metric in SERVER_METRICS:
            for pod, value in (await served.pods(NAMESPACE, metric)).items():
                found.setdefault(pod, {})[metric] = value
    return found


async def test_every_server_has_the_values_of_its_load(server, tmp_path):
    """Servers of all kinds answer one request for one metric, in its unit."""
    found = await answers(tmp_path, server, PRESETS)

    assert found == {pod: values for pod, (_, _, values) in PODS.items() if values}


def test_every_metric_of_a_model_server_has_its_unit_in_its_name_or_counts_requests() -> None:
    units = {"%": "utilization", "tokens/s": "tokens_per_second", "ms": "milliseconds"}
    for name, (unit, _) in SERVER_METRICS.items():
        assert units.get(unit, "requests") in name


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_for_model_servers_has_metrics_of_the_table_and_merges_them(preset: str) -> None:
    rules = [rule.config for rule in ruleset.load([(preset, presets.text(preset))]).rules]

    reported = {
        metric for each in SERVERS.values() if each.presets == (preset,) for metric in each.metrics
    }
    assert {rule.name.as_ for rule in rules} == reported
    assert all(rule.merge for rule in rules)
    assert {rule.on_nan for rule in rules if "_milliseconds_" in rule.name.as_} <= {"zero"}
    assert all(rule.on_missing.value is None for rule in rules)  # a lost server is not idle
    assert "_created" not in presets.text(preset)


@pytest.mark.usefixtures("real_servers")
def test_a_service_has_the_sum_of_its_servers_or_the_fullest_of_them(tmp_path, capsys):
    """Ranks of one engine report the same requests; servers of a Service may differ in size."""
    ranks = [
        (f'sglang:num_{state}_reqs{{{target(pod)},model_name="m",dp_rank="0",tp_rank="{rank}"}}', n)
        for state, n in (("queue", 10), ("running", 3))
        for pod in "ab"
        for rank in "01"
    ]
    budgets = [
        (f"tgi_batch_{name}{{{target(pod)}}}", tokens)
        for pod, current, budget in (("a", 900, 1_000), ("b", 1_000, 100_000))
        for name, tokens in (("current_max_tokens", current), ("max_total_tokens", budget))
    ]
    case = {
        "name": "two servers behind one Service",
        "input_series": [{"series": each, "values": f"{n}x2"} for each, n in (*ranks, *budgets)],
        "custom_metric_test": [
            {
                "eval_time": "2m",
                "metric": metric,
                "resource": "services",
                "namespace": NAMESPACE,
                "exp_values": {"llm": value},
            }
            for metric, value in (
                ("requests_waiting_current", 20),
                ("requests_running_current", 6),
                ("requests_active_current", 26),
                ("kv_cache_utilization_current", 90),
            )
        ],
    }
    file = tmp_path / "tests.yaml"
    chosen = ["inference-sglang", "inference-tgi"]
    file.write_text(json.dumps({"presets": chosen, "tests": [case]}))

    code = program.main(["test", str(file)])

    assert code == 0, capsys.readouterr().out


def target(pod: str) -> str:
    """Return the labels of a scraped server."""
    return f'namespace="{NAMESPACE}",service="llm",pod="{pod}",instance="{pod}:8000"'


def test_every_exposition_is_used() -> None:
    assert {each.stem for each in FOLDER.iterdir()} == {file for file, _, _ in PODS.values()}


FINDINGS: Mapping[str, Mapping[str, set[str]]] = {
    **{
        name: {next(g.name for g in GENERATIONS if (g.preset,) == each.presets): set()}
        for name, each in SERVERS.items()
    },
    "vllm-ranks": {"vllm": {"missing"}},
    "vllm-router": {"vllm-router": {"router"}},
    "sglang-underscore": {"sglang": set()},
    "sglang-ranks": {"sglang": {"no-requests"}},
    "sglang-prefill": {"sglang": {"no-requests"}},
    "sglang-decode": {"sglang": {"no-requests"}},
    "sglang-router": {"sglang": {"no-requests"}, "sglang-router": {"router"}},
    "triton-trtllm": {"triton": {"missing"}, "triton-trtllm": set()},
    "triton-vllm": {"triton": {"missing"}},
    "triton-models": {"triton": {"missing"}},
    "lmdeploy-0.9.2": {"lmdeploy": {"missing"}},
    "inference-pool": {"inference-pool": set()},
    "inference-pool-1.5": {"inference-pool": {"missing"}},
    "dynamo-frontend": {"dynamo-frontend": set()},
    "ray-serve": {"ray-serve": set()},
    "aibrix-gateway": {"aibrix-gateway": {"router"}},
    "litellm": {"litellm": set()},
    "litellm-new": {"litellm": {"no-requests"}},
}
"""Exposition -> the names of what is detected, each with the codes of its findings."""
GATEWAYS = {
    "vllm-router": "gateway-vllm-router",
    "inference-pool": "gateway-inference-pool",
    "inference-pool-1.5": "gateway-inference-pool",
    "dynamo-frontend": "gateway-dynamo",
    "ray-serve": "gateway-ray-serve",
    "aibrix-gateway": "gateway-aibrix",
    "litellm": "gateway-litellm",
    "litellm-new": "gateway-litellm",
}
"""Exposition of a gateway -> its preset."""


async def detected(server: prometheus.Prometheus, *samples: Labels) -> detect.Detection:
    """Return the report on these series, whose targets are up, and end them."""
    targets = {
        tuple((key, each[key]) for key in ("job", "instance", "namespace", "pod") if key in each)
        for each in samples
        if each.get("namespace") == NAMESPACE
    }
    every = [*samples, *({"__name__": "up", **dict(each)} for each in targets)]
    server.write((each, 1.0) for each in every)
    try:
        return await api.detected(server.url)
    finally:
        server.write((each, STALE) for each in every)


def labels_of(pod: str) -> list[dict[str, str]]:
    return [labels for labels, _, _ in series(pod, PODS[pod][0], steady)]


def codes(report: detect.Detection) -> dict[str, set[str]]:
    return {
        each.generation.name: {finding.reason for finding in each.findings}
        for each in report.exporters
    }


@pytest.mark.parametrize("pod", FINDINGS)
async def test_a_server_is_detected(pod: str, scraped: prometheus.Prometheus) -> None:
    report = await detected(scraped, *labels_of(pod))

    assert codes(report) == FINDINGS[pod]
    assert all(
        each.schemes == (() if each.generation.external else ("scraped",))
        for each in report.exporters
    )
    file = PODS[pod][0]
    if file in SERVERS:
        assert report.presets == SERVERS[file].presets
    if file in GATEWAYS:
        assert report.presets == (GATEWAYS[file],)


async def test_a_recorded_vllm_is_detected_and_has_its_values(scraped, tmp_path):
    """Beside each counter it has a gauge with the time of its creation, which no rule takes."""
    text = (FIXTURES / "recorded/vllm-0.18-loaded.prom").read_text()
    target = {"namespace": NAMESPACE, "pod": "new", "job": "vllm", "instance": "new"}
    every = [
        ({**labels, **target}, value)
        for labels, value in prometheus.samples(re.findall(r"^vllm:.*", text, re.MULTILINE))
    ]

    report = await detected(scraped, *(labels for labels, _ in every))
    scraped.write(every)
    found = await answers(tmp_path, scraped, ("inference-vllm",))
    scraped.write((labels, STALE) for labels, _ in every)

    assert codes(report) == {"vllm": set()}
    assert any(labels["__name__"].endswith("_created") for labels, _ in every)
    (values,) = found.values()
    assert values["requests_waiting_current"] == 12
    assert values["requests_running_current"] == 4
    assert values["requests_active_current"] == 16
    assert values["kv_cache_utilization_current"] in {Fraction("26.667"), Fraction("53.333")}


async def test_servers_and_their_router_are_detected_at_once(scraped):
    pods = ("vllm", "vllm-router", "sglang", "tei")

    report = await detected(scraped, *(each for pod in pods for each in labels_of(pod)))

    found = {"vllm": set(), "vllm-router": {"router"}, "sglang": set(), "tei": set()}
    assert codes(report) == found
    servers = ("inference-vllm", "inference-sglang", "inference-tei")
    assert report.presets == (*servers, "gateway-vllm-router")


async def test_a_scrape_without_a_pod_label_is_reported(scraped: prometheus.Prometheus) -> None:
    lacking = ({k: v for k, v in each.items() if k != "pod"} for each in labels_of("llamacpp"))

    report = await detected(scraped, *lacking)

    assert codes(report) == {"llamacpp": {"no-pods"}}


async def test_a_gateway_needs_a_namespace_and_no_pod(scraped: prometheus.Prometheus) -> None:
    lacking = [{k: v for k, v in each.items() if k != "pod"} for each in labels_of("litellm")]

    assert codes(await detected(scraped, *lacking)) == {"litellm": set()}

    nowhere = ({k: v for k, v in each.items() if k != "namespace"} for each in lacking)
    assert codes(await detected(scraped, *nowhere)) == {"litellm": {"no-namespace"}}


async def test_honor_labels_that_replace_the_namespace_of_the_pod_are_reported(scraped):
    every = labels_of("triton-models")
    other = {**every[0], "__name__": "other"}
    replaced = ({**each, "namespace": each["exported_namespace"]} for each in every)

    report = await detected(scraped, other, *replaced)

    assert codes(report) == {"triton": {"honor-labels", "missing"}}


def test_every_exposition_is_detected() -> None:
    assert FINDINGS.keys() == PODS.keys() - {"vllm-restarted", "vllm-idle", "sglang-idle"}
