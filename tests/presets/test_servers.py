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

import pytest

from rules import presets, ruleset
from tests.presets import api
from tests.presets.table import SERVER_METRICS, SERVERS
from tests.presets.worlds import FIXTURES
from tests.real import prometheus

FOLDER = FIXTURES / "servers"
GOLDEN = json.loads((FIXTURES / "servers.json").read_text())
STATE: Mapping[str, float] = GOLDEN["state"]["values"]
NAMESPACE = "serving"
LATE = ("inference-tgi", "inference-tei")
"""Presets with a constant for objects without series, which hides whether another has a value."""
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


def expected(lacking: frozenset[str] = frozenset()) -> Mapping[str, float]:
    return {metric: value for metric, value in STATE.items() if metric not in lacking}


PODS: Mapping[str, tuple[str, Grown, Mapping[str, float]]] = {
    **{name: (name, steady, expected(each.lacking)) for name, each in SERVERS.items()},
    **{name: (name, steady, case["values"]) for name, case in GOLDEN["cases"].items()},
    "sglang-underscore": ("sglang", steady, expected()),
    "vllm-restarted": ("vllm", restarted, expected()),
    "vllm-idle": ("vllm", idle, dict.fromkeys(STATE, 0)),
    "sglang-idle": ("sglang", idle, dict.fromkeys(STATE, 0)),
}
"""Pod -> its exposition, how its counters grow, and its values by metric."""


def series(pod: str, file: str, grown: Grown) -> Iterator[tuple[dict[str, str], float, bool]]:
    """Yield labels, value and whether it grows of each series, as Prometheus stores them."""
    text = (FOLDER / f"{file}.prom").read_text()
    types = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE))
    target = {"namespace": NAMESPACE, "pod": pod, "service": file, "job": file, "instance": pod}
    for labels, value in prometheus.samples(re.findall(r"^[^#].*", text, re.MULTILINE)):
        name = labels.pop("__name__")
        bases = (name.removesuffix(suffix) for suffix in ("", "_bucket", "_count", "_sum"))
        counts = any(types.get(base) in {"counter", "histogram"} for base in bases)
        stored = {f"exported_{key}" if key in target else key: v for key, v in labels.items()}
        name = name.replace(":", "_") if pod.endswith("-underscore") else name
        gauge = 0.0 if grown is idle else value
        yield {"__name__": name, **stored, **target}, value if counts else gauge, counts


@pytest.fixture(scope="module")
def server(
    real_servers: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[prometheus.Prometheus]:
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


async def answers(folder: Path, server: prometheus.Prometheus, names: tuple[str, ...]) -> object:
    """Return pod -> metric -> value, with these presets."""
    flags = [f"--preset={name}" for name in names]
    found: dict[str, dict[str, Fraction]] = {}
    async with api.serving(folder, server.url, manifests(), flags) as served:
        for metric in SERVER_METRICS:
            for pod, value in (await served.pods(NAMESPACE, metric)).items():
                found.setdefault(pod, {})[metric] = value
    return found


async def test_every_server_has_the_values_of_its_load(
    server: prometheus.Prometheus, tmp_path: Path
) -> None:
    """Servers of all kinds answer one request for one metric, in its unit."""
    names = tuple(each for each in PRESETS if each not in LATE)

    found = await answers(tmp_path, server, names)

    assert found == {
        pod: values
        for pod, (file, _, values) in PODS.items()
        if values and f"inference-{file}" not in LATE
    }


@pytest.mark.parametrize("preset", LATE)
async def test_a_server_without_series_before_its_first_request_counts_as_0(
    preset: str, server: prometheus.Prometheus, tmp_path: Path
) -> None:
    found = await answers(tmp_path, server, (preset,))

    values = PODS[preset.removeprefix("inference-")][2]
    assert found == {
        pod: values if f"inference-{pod}" == preset else dict.fromkeys(values, 0)
        for pod in (*PODS, "new")
    }


def test_every_metric_of_a_model_server_has_its_unit_in_its_name_or_counts_requests() -> None:
    units = {"%": "utilization", "tokens/s": "tokens_per_second", "ms": "milliseconds"}
    for name, (unit, _) in SERVER_METRICS.items():
        assert units.get(unit, "requests") in name


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_for_model_servers_has_metrics_of_the_table_and_merges_them(preset: str) -> None:
    rules = [rule.config for rule in ruleset.load([(preset, presets.text(preset))]).rules]

    reported = {
        metric
        for each in SERVERS.values()
        if each.preset == preset
        for metric in SERVER_METRICS.keys() - each.lacking
    }
    assert {rule.name.as_ for rule in rules} == reported
    assert all(rule.merge for rule in rules)
    assert {rule.on_nan for rule in rules if "_milliseconds_" in rule.name.as_} <= {"zero"}
    assert {rule.on_missing.value for rule in rules} == {0 if preset in LATE else None}
    assert "_created" not in presets.text(preset)


def test_every_exposition_is_used() -> None:
    assert {each.stem for each in FOLDER.iterdir()} == {file for file, _, _ in PODS.values()}
