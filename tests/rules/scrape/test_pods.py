"""Pods that serve a page and are not scraped; their documents are as Kubernetes has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from rules.scrape import pods

VLLM = "vllm/vllm-openai:v0.18.0"
DCGM = "nvcr.io/nvidia/k8s/dcgm-exporter:4.8.2"


def pod(name: str, *containers: dict[str, Any], namespace: str = "a", **metadata: Any) -> Any:
    return {
        "metadata": {"namespace": namespace, "name": name, **metadata},
        "spec": {"containers": [{"name": "main", "image": "other", **each} for each in containers]},
    }


def found(document: Any) -> list[str]:
    return [each.generation.name for each in pods.serving(document)]


def port(name: str, number: int) -> dict[str, Any]:
    return {"ports": [{"name": name, "containerPort": number}, {"containerPort": 1}]}


@pytest.mark.parametrize(
    ("document", "pages"),
    [
        (pod("vllm", {"image": VLLM}), ["vllm"]),
        (pod("twice", {"image": VLLM}, {"image": VLLM}), ["vllm"]),
        (pod("other", {}), []),
        (pod("epp", port("metrics", 9090), labels={"inferencepool": "x"}), ["inference-pool"]),
        (pod("epp", port("grpc", 9090), labels={"inferencepool": "x"}), []),
        (pod("aibrix", port("", 8000), labels={"model.aibrix.ai/name": "m"}), ["vllm"]),
        (pod("aibrix", port("", 8080), labels={"model.aibrix.ai/name": "m"}), []),
        (pod("own", {}, annotations={"gpu-metrics-adapter/scrape": "inference-tgi"}), ["tgi"]),
        (
            pod(
                "ray",
                {"image": VLLM, **port("metrics", 8080)},
                labels={"ray.io/is-ray-node": "yes"},
            ),
            ["ray-vllm"],
        ),
    ],
)
def test_a_pod_serves_the_pages_by_which_jobs_find_it(document: Any, pages: list[str]) -> None:
    assert found(document) == pages


READY = {"conditions": [{"type": "Ready", "status": "True"}]}
SERVERS = [
    *pods.serving(pod("llm-0", {"image": VLLM}) | {"status": READY}),
    *pods.serving(pod("llm-1", {"image": VLLM})),
]
EXPORTERS = [*pods.serving(pod("dcgm", {"image": DCGM}, namespace="kube-system"))]
TRUSTED = [*pods.serving(pod("dcgm", {"image": DCGM}, namespace="gpu-operator"))]
EPP = pod("epp", port("metrics", 9090), labels={"inferencepool": "x"})
PICKER = [*pods.serving(EPP | {"status": READY})]
KEY = [*pods.serving(pod("llm-0", {"image": "llama.cpp"}) | {"status": READY})]


@pytest.mark.parametrize(
    ("serving", "up", "detected", "words"),
    [
        (SERVERS, {}, [], "2 pods in 1 namespace (a/llm-0), not scraped by Prometheus"),
        (
            SERVERS,
            {"a/llm-0": True},
            ["vllm"],
            "vLLM (vllm:*): 1 pod in 1 namespace (a/llm-1), not",
        ),
        (SERVERS, {"a/llm-0": True, "a/llm-1": True}, [], ""),
        # A pod that is not ready loads its model.
        (SERVERS, {"a/llm-0": True, "a/llm-1": False}, [], ""),
        (
            SERVERS,
            {"a/llm-0": False, "a/llm-1": True},
            [],
            "(a/llm-0), whose scrapes fail. /targets",
        ),
        (
            KEY,
            {"a/llm-0": False},
            [],
            "scrapes fail: llama.cpp needs --metrics and no --api-key. /t",
        ),
        (PICKER, {"a/epp": False}, [], "a token: set `prometheus.embedded.tokenNamespaces`"),
        # Scraped without the labels of the pod, which another finding says.
        (SERVERS, {}, ["vllm"], ""),
        (EXPORTERS, {}, [], "presets scrape gpu-dcgm --trusted-namespaces=kube-system` prints"),
        (EXPORTERS, {}, [], "scrape them: do so if all who can create pods there may set"),
        (TRUSTED, {}, [], "`gpu-metrics-adapter presets scrape gpu-dcgm` prints what makes"),
        # The newest exporter has the page of all its releases.
        (EXPORTERS, {}, ["dcgm49"], ""),
    ],
)
def test_what_is_not_scraped_is_named_with_what_helps(
    serving: list[pods.ServingPod],
    up: Mapping[str, bool],
    detected: Collection[str],
    words: str,
) -> None:
    of = {
        (namespace, name): value
        for key, value in up.items()
        for namespace, name in [key.split("/")]
    }
    found = [each.sentence for each in pods.findings(serving, of, detected, {})]

    assert len(found) == bool(words)
    assert all(words in each for each in found), found


def test_a_page_that_is_read_but_refused_is_named_with_its_samples() -> None:
    (one,) = pods.findings(
        SERVERS, {("a", "llm-0"): 0, ("a", "llm-1"): 1}, [], {("a", "llm-0"): 1632}
    )

    assert "(a/llm-0), whose scrapes fail after 1632 samples. If that is more" in one.sentence
