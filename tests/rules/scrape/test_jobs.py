"""Jobs of presets: whose pages are scraped where, and which of their series are kept."""

from __future__ import annotations

import re

import pytest

from rules import presets
from rules.errors import ConfigError
from rules.exporters.generations import GENERATIONS
from rules.scrape import jobs
from rules.scrape.jobs import Job

WITHOUT_PAGE = {"prometheus-adapter", "resource-metrics"}


def kept(job: Job, series: str) -> bool:
    (rule,) = job.metric_relabel
    return bool(re.fullmatch(rule.regex, series)) is (rule.action == "keep")


def test_each_preset_for_exporters_servers_and_gateways_has_a_page() -> None:
    for name in presets.names():
        if name in WITHOUT_PAGE:
            with pytest.raises(ConfigError, match=name):
                jobs.of_presets([name])
        else:
            assert jobs.of_presets([name], trusted=["gpu-operator"]), name


def test_an_unknown_preset_is_an_error() -> None:
    with pytest.raises(ConfigError, match="there is no preset called 'inference-vlm'"):
        jobs.of_presets(["inference-vlm"])


def test_each_reference_to_a_page_is_one_to_a_page_with_pods() -> None:
    known = {each.name: each.scrape for each in GENERATIONS}

    for each in GENERATIONS:
        if other := each.scrape.same_as:
            assert known[other].pods
        if each.scrape.pods:
            assert each.scrape.port


def test_what_finds_a_server_is_true_of_one_container_of_a_pod() -> None:
    """The label of a pod alone would find each container, and count the engine for each."""
    for each in GENERATIONS:
        for containers in each.scrape.pods:
            one = containers.image or containers.container or containers.port_name
            assert one or containers.port_number or not each.server, each.name


def test_a_container_with_ten_thousand_ports_is_a_few_targets() -> None:
    """Those who declare ports choose their names; a job has a limit of targets for all."""
    for each in GENERATIONS:
        for containers in each.scrape.pods:
            matched = [n for n in range(10_000) if containers.match_port(f"system-{n}", n)]
            assert len(matched) <= 2 or not (containers.port_name or containers.port_number)
            assert not re.search(r"[*+]|\\\w", containers.port_name)


def test_without_trusted_namespaces_only_pages_are_scraped_that_speak_of_their_own_pod() -> None:
    found = jobs.of_presets()
    job = found[0]

    assert {each.kind for each in found} == {"servers"}
    assert job.namespaces == ()
    assert "gateway-inference-pool" in job.presets
    assert not any(name.startswith(("gpu-", "accelerator-")) for name in job.presets)


def test_exporters_and_pages_with_a_token_are_those_of_chosen_namespaces() -> None:
    chosen = {"devices": ("gpu-operator", "gpus"), "token": ("pools", "others")}
    jobs_of = jobs.of_presets(trusted=chosen["devices"], tokens=chosen["token"])
    found = {each.kind: each for each in jobs_of}

    assert found["token"].presets == ("gateway-inference-pool",)
    for kind, namespaces in chosen.items():
        first = found[kind].relabel[0]
        assert (first.action, first.regex) == ("keep", "|".join(namespaces))
        assert found[kind].namespaces == namespaces


def test_a_trusted_namespace_gets_no_token() -> None:
    assert {each.kind for each in jobs.of_presets(trusted=["a"])} == {"devices", "servers"}


@pytest.mark.parametrize("minimal", [False, True])
def test_no_series_of_an_exporter_is_taken_from_a_server(minimal: bool) -> None:
    job, *_ = jobs.of_presets(minimal=minimal)

    devices = {name for each in GENERATIONS if not each.server for name in each.series}
    assert not any(kept(job, name) for name in devices)
    servers = {name for each in GENERATIONS if each.server and each.preset for name in each.series}
    assert all(kept(job, name) for name in servers)
    assert kept(job, "vllm:cache_config_info") is not minimal
    assert not kept(job, "vllm:request_success_created")


def test_minimal_keeps_what_the_rules_and_the_detection_read() -> None:
    job, *_ = jobs.of_presets(["inference-vllm"], minimal=True)

    for name in (
        *("vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc"),
        *("vllm:time_to_first_token_seconds_bucket", "vllm:time_to_first_token_seconds_count"),
        *("vllm:request_queue_time_seconds_sum", "vllm:gpu_cache_usage_perc"),
    ):
        assert kept(job, name)
    assert not kept(job, "vllm:time_to_first_token_seconds_sum")
    assert not kept(job, "sglang:num_queue_reqs")


@pytest.mark.parametrize("preset", ["gateway-litellm", "gateway-vllm-router"])
def test_minimal_keeps_no_series_of_pages_that_prometheus_writes_itself(preset: str) -> None:
    job, *_ = jobs.of_presets([preset], minimal=True)

    assert not kept(job, "up")


@pytest.mark.parametrize(
    ("preset", "page"),
    [
        ("gpu-dcgm49", "gpu-dcgm"),
        ("gpu-dcgm-mig", "gpu-dcgm"),
        ("gpu-dcgm-prof", "gpu-dcgm"),
        ("gpu-dcgm1x", "gpu-dcgm"),
        ("gateway-ray-serve", "inference-ray"),
    ],
)
def test_presets_may_read_the_page_of_another(preset: str, page: str) -> None:
    job, *_ = jobs.of_presets([preset], trusted=["gpu-operator"])

    assert job.presets == (page,)
