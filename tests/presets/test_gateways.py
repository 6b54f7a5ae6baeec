"""Values of the presets for gateways, by a real Prometheus; also when nothing waits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from adapter.cli import program
from rules import presets, ruleset

PRESETS = tuple(each for each in presets.names() if each.startswith("gateway-"))
WAITING = "inference_pool_requests_waiting_current"
QUEUE = "inference_pool_requests_waiting_average_current"
KV_CACHE = "inference_pool_kv_cache_utilization_average_current"
ACTIVE, LITELLM_RATE = "litellm_requests_active_current", "litellm_requests_per_second_over_time"
ROUTER_RATE = "vllm_router_requests_per_second_over_time"

FLOW = 'fairness_id="a",priority="0",inference_pool="llama",model_name="llama"'
ROUTED = "vllm:num_incoming_requests_total"
REQUESTS = "litellm_proxy_total_requests_metric_total"

Series = Mapping[str, str]
Expected = Mapping[str, float]


def epp(name: str, labels: str = "", *, pod: str = "epp-0", service: str = "epp") -> str:
    """Return a series of an endpoint picker."""
    return f'{name}{{namespace="default",pod="{pod}",service="{service}",{labels}}}'


def both(name: str, labels: str, values: str) -> Series:
    """Return a series of llm-d's router under its new and its old name."""
    new = name.removeprefix("inference_extension_").removeprefix("inference_pool_")
    return {epp(f"llm_d_router_epp_{new}", labels): values, epp(name, labels): values}


INFO = both("inference_extension_info", 'commit="1"', "1x40")
POOL = {
    **both("inference_pool_average_queue_size", 'name="llama"', "2.5x40"),
    **both("inference_pool_average_kv_cache_utilization", 'name="llama"', "0.625x40"),
}
READY = epp("llm_d_router_epp_ready_endpoints", 'name="llama"')

CASES: Mapping[str, tuple[Series, str, str, Expected]] = {
    "nothing has waited yet": (INFO, WAITING, "", {'{service="epp"}': 0}),
    "requests wait; the old names report the same ones": (
        {**INFO, **both("inference_extension_flow_control_queue_size", FLOW, "7x40")},
        WAITING,
        "",
        {'{service="epp"}': 7},
    ),
    "the first request waits": (
        {**INFO, **both("inference_extension_flow_control_queue_size", FLOW, "_x39 1")},
        WAITING,
        "",
        {'{service="epp"}': 1},
    ),
    "one of two pools, whose picker has two replicas": (
        {
            epp("inference_extension_info", service=service): "1x40"
            for service in ("epp", "epp-other")
        }
        | {epp("inference_extension_flow_control_queue_size", FLOW, pod=p): "3x40" for p in "ab"}
        | {epp("inference_extension_flow_control_queue_size", FLOW, service="epp-other"): "100x40"},
        WAITING,
        "service=epp",
        {'{service="epp"}': 6},
    ),
    "the picker is gone": (dict.fromkeys(INFO, "1x30 stale"), WAITING, "", {}),
    "mean queue of a pool": ({**POOL, READY: "2x40"}, QUEUE, "name=llama", {'{name="llama"}': 2.5}),
    "mean KV cache of a pool": ({**POOL, READY: "2x40"}, KV_CACHE, "", {'{name="llama"}': 62.5}),
    "a pool without a pod has no mean": ({**POOL, READY: "2x20 0x20"}, QUEUE, "", {}),
    "a pool without a pod has no mean KV cache": ({**POOL, READY: "2x20 0x20"}, KV_CACHE, "", {}),
    "only the scrapes are in flight": (
        {f'litellm_in_flight_requests{{namespace="default",pod="{p}"}}': "1x40" for p in "ab"},
        ACTIVE,
        "",
        {"{}": 0},
    ),
    "requests are in flight in one of two proxies": (
        {
            'litellm_in_flight_requests{namespace="default",pod="a"}': "1x40",
            'litellm_in_flight_requests{namespace="default",pod="b"}': "5x40",
            'litellm_in_flight_requests{namespace="other",pod="c"}': "9x40",
        },
        ACTIVE,
        "",
        {"{}": 4},
    ),
    "proxies that are gone": (
        {'litellm_in_flight_requests{namespace="default",pod="a"}': "1x30 stale"},
        ACTIVE,
        "",
        {},
    ),
    "requests of one model": (
        {
            f'{REQUESTS}{{namespace="default",pod="{p}",requested_model="{m}",team="{t}"}}': values
            for p, m, t, values in (
                ("a", "llama", "x", "0+30x40"),
                ("a", "llama", "y", "0+30x40"),
                ("b", "llama", "x", "1000+60x40"),
                ("b", "other", "x", "0+600x40"),
            )
        },
        LITELLM_RATE,
        "requested_model=llama",
        {'{requested_model="llama"}': 8},
    ),
    "the first request of a model counts": (
        {f'{ROUTED}{{namespace="default",model="llama"}}': "_x38 1x2"},
        ROUTER_RATE,
        "",
        {'{model="llama"}': 0.008},
    ),
    "no request for two minutes": (
        {f'{ROUTED}{{namespace="default",model="llama"}}': "0+60x20 1200x20"},
        ROUTER_RATE,
        "model=llama",
        {'{model="llama"}': 0},
    ),
    "a router is replaced by another one": (
        {
            f'{ROUTED}{{namespace="default",model="llama",pod="old"}}': "9000+60x32 stale",
            f'{ROUTED}{{namespace="default",model="llama",pod="new"}}': "_x32 0+60x8",
        },
        ROUTER_RATE,
        "",
        {'{model="llama"}': 4},
    ),
    "the router is gone": (
        {f'{ROUTED}{{namespace="default",model="llama"}}': "0+60x30 stale"},
        ROUTER_RATE,
        "",
        {},
    ),
}
"""Series every 15 s -> metric, selector and the values by labels after ten minutes."""


@pytest.mark.usefixtures("real_servers")
def test_a_gateway_has_the_values_of_its_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tests.yaml"
    tests = [case(name, *each) for name, each in CASES.items()]
    file.write_text(json.dumps({"presets": PRESETS, "tests": tests}))

    code = program.main(["test", str(file)])

    assert code == 0, capsys.readouterr().out


def case(name: str, series: Series, metric: str, selector: str, expected: Expected) -> object:
    return {
        "name": name,
        "interval": "15s",
        "input_series": [{"series": each, "values": values} for each, values in series.items()],
        "external_metric_test": [
            {
                "eval_time": "600s",
                "metric": metric,
                "selector": selector,
                "exp_samples": [
                    {"labels": labels, "value": value} for labels, value in expected.items()
                ],
            }
        ],
    }


def test_every_metric_of_a_gateway_has_a_case() -> None:
    loaded = ruleset.load([(name, presets.text(name)) for name in PRESETS])
    every = [rule.config.name.as_ for rule in loaded.external]

    assert set(every) == {metric for _, metric, _, _ in CASES.values()}
    assert len(set(every)) == len(every)  # external rules do not merge
