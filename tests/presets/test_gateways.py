"""Values of the presets for gateways, by a real Prometheus; also when nothing waits."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from adapter.cli import program
from rules import presets, ruleset

PRESETS = tuple(each for each in presets.names() if each.startswith("gateway-"))
WAITING = "inference_pool_requests_waiting_current"
QUEUE = "inference_pool_requests_waiting_average_current"
KV_CACHE = "inference_pool_kv_cache_utilization_average_current"
RUNNING, SATURATION = "inference_pool_requests_running_current", "inference_pool_saturation_current"
ACTIVE, LITELLM_RATE = "litellm_requests_active_current", "litellm_requests_per_second_over_time"
ROUTER_RATE = "vllm_router_requests_per_second_over_time"

MODEL = 'model_name="llama",target_model_name="llama"'
DYNAMO_WAITING, DYNAMO_ACTIVE = "dynamo_requests_waiting_current", "dynamo_requests_active_current"
RAY_WAITING, RAY_RUNNING = (f"ray_serve_requests_{each}_current" for each in ("waiting", "running"))
AIBRIX_ACTIVE = "aibrix_requests_active_current"
FLOW = f'fairness_id="a",priority="0",inference_pool="llama",{MODEL}'
ROUTED = "vllm:num_incoming_requests_total"
REQUESTS = "litellm_proxy_total_requests_metric_total"

Series = Mapping[str, str]
Expected = Mapping[str, float]


def epp(name: str, labels: str = "", *, pod: str = "epp-0", service: str = "epp") -> str:
    """Return a series of an endpoint picker."""
    target = f'namespace="default",pod="{pod}",instance="{pod}:9090",service="{service}"'
    return f"{name}{{{target},{labels}}}"


def both(name: str, labels: str, values: str) -> Series:
    """Return a series of llm-d's router under its new and its old name."""
    new = name.removeprefix("inference_extension_").removeprefix("inference_pool_")
    return {epp(f"llm_d_epp_{new}", labels): values, epp(name, labels): values}


def running(labels: str, values: str, **target: str) -> Series:
    """Return the running requests of a model, with the labels that only the new name has."""
    return {epp("llm_d_epp_request_running", f"{MODEL},{labels}", **target): values}


def saturation(stage: str, values: str) -> Series:
    return {epp("llm_d_epp_flow_control_pool_saturation", f'inference_pool="llama"{stage}'): values}


def dynamo(name: str, labels: str, values: str, *, instance: str = "a") -> Series:
    """Return a series of Dynamo's front end."""
    target = f'namespace="default",instance="{instance}"'
    return {f"dynamo_frontend_{name}{{{target},{labels}}}": values}


def ray(name: str, labels: str, instance: str) -> str:
    """Return the name of a series of Ray Serve."""
    target = f'namespace="default",instance="{instance}",application="llm"'
    return f"ray_serve_{name}{{{target},{labels}}}"


INFO = both("inference_extension_info", 'commit="1"', "1x40")
POOL = {
    **both("inference_pool_average_queue_size", 'name="llama"', "2.5x40"),
    **both("inference_pool_average_kv_cache_utilization", 'name="llama"', "0.625x40"),
}
READY = epp("llm_d_epp_ready_endpoints", 'name="llama"')
STALE_ENDPOINTS = epp("llm_d_epp_flow_control_stale_endpoints", 'detector="utilization-detector"')
FULL = saturation(',stage="effective"', "0.8x40")

CASES: Mapping[str, tuple[Series, str, str, Expected]] = {
    "nothing has waited yet": (INFO, WAITING, "", {"{}": 0}),
    "nothing has waited yet in a pool that is selected": (
        {**INFO, **FULL},
        WAITING,
        "inference_pool=llama",
        {'{inference_pool="llama"}': 0},
    ),
    "requests wait; the old names report the same ones": (
        {**INFO, **FULL, **both("inference_extension_flow_control_queue_size", FLOW, "7x40")},
        WAITING,
        "inference_pool=llama,model_name=llama",
        {'{inference_pool="llama",model_name="llama"}': 7},
    ),
    "the first request waits": (
        {**INFO, **both("inference_extension_flow_control_queue_size", FLOW, "_x39 1")},
        WAITING,
        "",
        {'{inference_pool="llama",model_name="llama"}': 1},
    ),
    "the queue is gone with the last request, in one of two pools": (
        {
            **INFO,
            **FULL,
            **both("inference_extension_flow_control_queue_size", FLOW, "3x30 stale"),
            epp(
                "llm_d_epp_flow_control_queue_size",
                FLOW.replace('pool="llama"', 'pool="other"'),
                pod="b",
                service="epp-other",
            ): "5x40",
        },
        WAITING,
        "",
        {
            '{inference_pool="llama"}': 0,
            '{inference_pool="other",model_name="llama"}': 5,
        },
    ),
    "one of two pools, whose picker has two replicas": (
        {
            epp("inference_extension_info", service=service): "1x40"
            for service in ("epp", "epp-other")
        }
        | {epp("inference_extension_flow_control_queue_size", FLOW, pod=p): "3x40" for p in "ab"}
        | {
            epp(
                "inference_extension_flow_control_queue_size", FLOW, pod="c", service="epp-other"
            ): "100x40"
        },
        WAITING,
        "service=epp",
        {'{inference_pool="llama",model_name="llama"}': 6},
    ),
    "flow control before it had the names of pool and model": (
        {
            **INFO,
            epp("inference_extension_flow_control_queue_size", 'fairness_id="a"'): "4x40",
        },
        WAITING,
        "",
        {"{}": 4},
    ),
    "the picker is gone": (dict.fromkeys(INFO, "1x30 stale"), WAITING, "", {}),
    "no request has run yet": (INFO, RUNNING, "service=epp", {"{}": 0}),
    "running requests; the old name has fewer labels": (
        {
            **INFO,
            **running('fairness_id="a",priority="0"', "3x40"),
            **running('fairness_id="b",priority="0"', "2x40"),
            epp("inference_objective_running_requests", 'model_name="llama"'): "5x40",
        },
        RUNNING,
        "",
        {'{model_name="llama"}': 5},
    ),
    "running requests while the picker is upgraded from the old name to the new one": (
        {
            **INFO,
            **running('fairness_id="a",priority="0"', "3x40", pod="new"),
            epp("inference_objective_running_requests", 'model_name="llama"', pod="old"): "4x40",
        },
        RUNNING,
        "model_name=llama",
        {'{model_name="llama"}': 7},
    ),
    "saturation in percent; the stages are parts of it, the old name the same": (
        {
            **saturation(',stage="prefill"', "0.2x40"),
            **saturation(',stage="decode"', "0.8x40"),
            **FULL,
            epp(
                "inference_extension_flow_control_pool_saturation",
                'inference_pool="llama",stage="effective"',
            ): "0.8x40",
            READY: "4x40",
            STALE_ENDPOINTS: "0x40",
        },
        SATURATION,
        "inference_pool=llama",
        {'{inference_pool="llama"}': 80},
    ),
    "saturation above its limit, without stages and stale endpoints": (
        {**saturation("", "1.25x40"), READY: "4x40"},
        SATURATION,
        "service=epp",
        {'{inference_pool="llama"}': 125},
    ),
    "an empty pool reads 1 and is not full": (
        {**saturation(',stage="effective"', "1x40"), READY: "0x40", STALE_ENDPOINTS: "0x40"},
        SATURATION,
        "",
        {},
    ),
    "stale endpoints read 1 and are not full": (
        {**saturation(',stage="effective"', "1x40"), READY: "4x40", STALE_ENDPOINTS: "1x40"},
        SATURATION,
        "inference_pool=llama",
        {},
    ),
    "another pool that is empty or stale changes nothing": (
        {
            **FULL,
            READY: "4x40",
            epp("llm_d_epp_ready_endpoints", 'name="other"', pod="b"): "0x40",
            epp("llm_d_epp_flow_control_stale_endpoints", 'detector="d"', pod="b"): "2x40",
        },
        SATURATION,
        "",
        {'{inference_pool="llama"}': 80},
    ),
    "mean queue of a pool": ({**POOL, READY: "2x40"}, QUEUE, "name=llama", {'{name="llama"}': 2.5}),
    "mean KV cache of a pool": ({**POOL, READY: "2x40"}, KV_CACHE, "", {'{name="llama"}': 62.5}),
    "a pool without a pod has no mean": ({**POOL, READY: "2x20 0x20"}, QUEUE, "", {}),
    "a pool without a pod has no mean KV cache": ({**POOL, READY: "2x20 0x20"}, KV_CACHE, "", {}),
    "only the scrapes are in flight": (
        {f'litellm_in_flight_requests{{namespace="default",instance="{p}"}}': "1x40" for p in "ab"},
        ACTIVE,
        "",
        {"{}": 0},
    ),
    "requests are in flight in one of two proxies": (
        {
            'litellm_in_flight_requests{namespace="default",instance="a"}': "1x40",
            'litellm_in_flight_requests{namespace="default",instance="b"}': "5x40",
            'litellm_in_flight_requests{namespace="other",instance="c"}': "9x40",
        },
        ACTIVE,
        "",
        {"{}": 4},
    ),
    "proxies that are gone": (
        {'litellm_in_flight_requests{namespace="default",instance="a"}': "1x30 stale"},
        ACTIVE,
        "",
        {},
    ),
    "requests of one model": (
        {
            f'{REQUESTS}{{namespace="default",instance="{p}",requested_model="{m}",team="{t}"}}': n
            for p, m, t, n in (
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
        {
            f'{ROUTED}{{namespace="default",model="llama"}}': "_x38 1x2",
            'up{namespace="default"}': "1x40",
        },
        ROUTER_RATE,
        "",
        {'{model="llama"}': 0.008},
    ),
    **{
        f"an old {metric} after a gap in which {gap}": (
            {
                f'{series}{{namespace="default",instance="a",{label}="x"}}': "9000x9 _x28 9012x2",
                'up{namespace="default",instance="a"}': up,
                'up{namespace="default",instance="b"}': "1x40",
            },
            metric,
            "",
            {f'{{{label}="x"}}': 0},
        )
        for series, metric, label in (
            (ROUTED, ROUTER_RATE, "model"),
            (REQUESTS, LITELLM_RATE, "requested_model"),
        )
        for gap, up in (("Prometheus was down", "1x9 _x28 1x2"), ("scrapes failed", "1x9 0x27 1x2"))
    },
    "no request for two minutes": (
        {f'{ROUTED}{{namespace="default",model="llama"}}': "0+60x20 1200x20"},
        ROUTER_RATE,
        "model=llama",
        {'{model="llama"}': 0},
    ),
    "a router is replaced by another one": (
        {
            f'{ROUTED}{{namespace="default",model="llama",instance="old"}}': "9000+60x32 stale",
            f'{ROUTED}{{namespace="default",model="llama",instance="new"}}': "_x32 0+60x8",
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
    "no request has reached Dynamo's front end yet": (
        dynamo("disconnected_clients", "", "0x40"),
        DYNAMO_WAITING,
        "",
        {"{}": 0},
    ),
    "requests without a first token in two front ends; the new name reports the same ones": (
        {
            **dynamo("disconnected_clients", "", "0x40"),
            **dynamo("queued_requests", 'model="llama"', "7x40"),
            **dynamo("queued_requests", 'model="other"', "1x40"),
            **dynamo("stage_requests", 'stage="route",phase="decode"', "8x40"),
            **dynamo("queued_requests", 'model="llama"', "2x40", instance="b"),
        },
        DYNAMO_WAITING,
        "model=llama",
        {'{model="llama"}': 9},
    ),
    "requests without a first token under the new name alone": (
        {
            **dynamo("stage_requests", 'stage="preprocess",phase=""', "1x40"),
            **dynamo("stage_requests", 'stage="route",phase="prefill"', "4x40"),
            **dynamo("stage_requests", 'stage="dispatch",phase="decode"', "2x40"),
            **dynamo("stage_requests", 'stage="postprocess",phase=""', "9x40"),
            **dynamo("disconnected_clients", "", "3x40"),
        },
        DYNAMO_WAITING,
        "",
        {"{}": 7},
    ),
    "active requests under both names": (
        {
            **dynamo("disconnected_clients", "", "0x40"),
            **dynamo("active_requests", 'model="llama"', "10x40"),
            **dynamo("inflight_requests", 'model="llama"', "10x40"),
        },
        DYNAMO_ACTIVE,
        "",
        {'{model="llama"}': 10},
    ),
    "the front end is gone": (
        dynamo("disconnected_clients", "", "0x30 stale"),
        DYNAMO_ACTIVE,
        "",
        {},
    ),
    "requests wait for a deployment of Ray Serve in proxies of two nodes": (
        {
            ray("deployment_queued_queries", f'deployment="{d}",actor_id="{a}"', a): values
            for d, a, values in (("LLM", "a", "4x40"), ("LLM", "b", "3x40"), ("other", "a", "9x40"))
        },
        RAY_WAITING,
        "deployment=LLM",
        {'{application="llm",deployment="LLM"}': 7},
    ),
    "two replicas of a deployment on one node work": (
        {
            ray("replica_processing_queries", f'deployment="LLM",replica="{each}"', "a"): "3x40"
            for each in ("r1", "r2")
        },
        RAY_RUNNING,
        "",
        {'{application="llm",deployment="LLM"}': 6},
    ),
    "requests in flight of a model of AIBrix": (
        {
            f'gateway_model_in_flight_requests{{namespace="default",instance="{i}",'
            f'gateway_pod="{i}",model="{m}"}}': values
            for i, m, values in (("a", "llama", "5x40"), ("b", "llama", "2x40"), ("a", "x", "1x40"))
        }
        | {'gateway_in_flight_requests{namespace="default",instance="a",gateway_pod="a"}': "6x40"},
        AIBRIX_ACTIVE,
        "model=llama",
        {'{model="llama"}': 7},
    ),
    "AIBrix is idle, and another gateway is not": (
        {
            'gateway_in_flight_requests{namespace="default",instance="a",gateway_pod="a"}': "0x40",
            'gateway_in_flight_requests{namespace="default",instance="b"}': "6x40",
        },
        AIBRIX_ACTIVE,
        "",
        {"{}": 0},
    ),
}
"""Series every 15 s -> metric, selector and the values by labels after ten minutes."""


@pytest.mark.usefixtures("real_servers")
def test_a_gateway_has_the_values_of_its_load(tmp_path, capsys):
    file = tmp_path / "tests.yaml"
    tests = [
        case(f"{name}, scraped by {jobs}", jobs, *each)
        for name, each in CASES.items()
        for jobs in ("x", "xy")
    ]
    file.write_text(json.dumps({"presets": PRESETS, "tests": tests}))

    code = program.main(["test", str(file)])

    assert code == 0, capsys.readouterr().out


def case(
    name: str, jobs: str, series: Series, metric: str, selector: str, expected: Expected
) -> object:
    """Return a case whose series are scraped once for each letter of `jobs`."""
    return {
        "name": name,
        "interval": "15s",
        "input_series": [
            {"series": each.replace("{", f'{{job="{job}",', 1), "values": values}
            for each, values in series.items()
            for job in jobs
        ],
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
