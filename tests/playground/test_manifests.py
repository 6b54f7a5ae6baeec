from __future__ import annotations

import yaml

from tests.playground import manifests


def test_hpa_is_the_example_with_another_behavior() -> None:
    hpa = yaml.safe_load(manifests.hpa())
    example = yaml.safe_load(manifests.EXAMPLE.read_text())

    assert hpa["spec"].pop("behavior") == manifests.BEHAVIOR
    assert hpa == example
    assert hpa["spec"]["scaleTargetRef"]["name"] == manifests.BERT


def test_pods_of_bert_have_a_gpu_and_those_of_the_load_generator_none() -> None:
    bert, load = yaml.safe_load(manifests.bert()), yaml.safe_load(manifests.load(7))
    (server,) = bert["spec"]["template"]["spec"]["containers"]
    (generator,) = load["spec"]["template"]["spec"]["containers"]

    assert server["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert "resources" not in generator
    assert load["spec"]["replicas"] == 7
