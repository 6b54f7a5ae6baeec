from __future__ import annotations

import yaml

from tests.playground import objects


def test_the_hpa_is_the_example_but_for_its_behavior() -> None:
    ours = yaml.safe_load(objects.hpa())
    example = yaml.safe_load(objects.EXAMPLE.read_text())

    assert ours["spec"].pop("behavior") == objects.PATIENCE
    assert ours == example
    assert ours["spec"]["scaleTargetRef"]["name"] == objects.BERT


def test_each_pod_of_bert_has_a_gpu_and_the_load_has_none() -> None:
    bert, load = yaml.safe_load(objects.bert()), yaml.safe_load(objects.load(7))
    (serving,) = bert["spec"]["template"]["spec"]["containers"]
    (asking,) = load["spec"]["template"]["spec"]["containers"]

    assert serving["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert "resources" not in asking
    assert load["spec"]["replicas"] == 7
