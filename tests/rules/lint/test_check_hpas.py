"""Errors of `check` about HPAs: a real API server refuses these, and accepts all others."""

from __future__ import annotations

import pytest

from rules.document import manifests
from rules.findings import State
from rules.lint import check_hpas
from tests.rules.document import test_behavior

_HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: x, namespace: default}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: srv}
  minReplicas: 1
  maxReplicas: 3
  metrics:
  - type: Pods
    pods: {metric: {name: queue}, target: {type: AverageValue, averageValue: "5"}}
"""
_TARGET = '{type: AverageValue, averageValue: "5"}'
_POLICY = "{type: Pods, value: 1, periodSeconds: %s}"

REFUSED = {
    "autoscaling/v2beta1": _HPA.replace("autoscaling/v2", "autoscaling/v2beta1"),
    "autoscaling/v2beta2": _HPA.replace("autoscaling/v2", "autoscaling/v2beta2"),
    "minReplicas 4": _HPA.replace("minReplicas: 1", "minReplicas: 4"),
    "metrics[0]: type Pod ": _HPA.replace("type: Pods", "type: Pod"),
    "needs the key object": _HPA.replace("type: Pods", "type: Object"),
    "needs averageValue": _HPA.replace(_TARGET, '{type: Value, value: "50"}'),
    "selector is the text": _HPA.replace("{name: queue}", "{name: queue, selector: a=b}"),
    "minReplicas 0 needs a metric": _HPA.replace("minReplicas: 1", "minReplicas: 0"),
    "minReplicas -1 is less than 0": _HPA.replace("minReplicas: 1", "minReplicas: -1"),
    "maxReplicas is missing": _HPA.replace("  maxReplicas: 3\n", ""),
    "maxReplicas 0 is less than 1": _HPA.replace("maxReplicas: 3", "maxReplicas: 0"),
    "averageValue 0 must be above 0": _HPA.replace('"5"', '"0"'),
    "averageValue -1 must be above 0": _HPA.replace('"5"', '"-1"'),
    "scaleDown.tolerance must be": f'{_HPA}  behavior: {{scaleDown: {{tolerance: "-0.1"}}}}\n',
    "policies.0.period": f"{_HPA}  behavior: {{scaleUp: {{policies: [{_POLICY % 1801}]}}}}\n",
    "selectPolicy must be": f"{_HPA}  behavior: {{scaleUp: {{selectPolicy: min}}}}\n",
}
"""Words of the error -> an HPA."""
ACCEPTED = {
    "": _HPA,
    "scaleTargetRef: Deployment is in apps/v1": _HPA.replace("apps/v1", "extensions/v1beta1"),
    " ": f"{_HPA}  behavior: {{scaleDown: {{stabilizationWindowSeconds: 3600, tolerance: 50m}}}}\n",
    "  ": f"{_HPA}  behavior: {{scaleUp: {{policies: [{_POLICY % 1800}]}}}}\n",
}
"""Words of the warning, or blanks if there is none -> an HPA."""


def _problems(text: str) -> list[tuple[str, str]]:
    found = manifests.find(text.encode(), file="h.yaml")
    return [(each.state, each.fact) for one in found.manifests for each in check_hpas.shape(one)]


@pytest.mark.parametrize("words", REFUSED)
def test_what_the_api_server_refuses_is_an_error(words: str) -> None:
    ((severity, message),) = _problems(REFUSED[words])

    assert severity == State.FAILURE
    assert words.strip() in message


@pytest.mark.parametrize("words", ACCEPTED)
def test_what_the_api_server_accepts_is_a_warning_at_most(words: str) -> None:
    problems = _problems(ACCEPTED[words])

    assert [severity for severity, _ in problems] == ["warning"] * bool(words.strip())
    assert all(words in message for _, message in problems)


def test_a_patch_of_an_hpa_may_lack_what_another_file_has() -> None:
    patch = _HPA.partition("  scaleTargetRef")[0] + "  minReplicas: 0\n"

    assert _problems(patch) == []


def test_the_api_server_refuses_and_accepts_what_check_says(control_plane) -> None:
    command = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")

    for text in ACCEPTED.values():
        control_plane.kubectl(*command, text=text)
    for text in REFUSED.values():
        with pytest.raises(RuntimeError, match=r"invalid|no matches for kind|BadRequest"):
            control_plane.kubectl(*command, text=text)


def test_the_api_server_refuses_and_accepts_the_same_behavior(control_plane) -> None:
    command = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")

    for text in test_behavior.ACCEPTED:
        control_plane.kubectl(*command, text=f"{_HPA}  behavior: {text}\n")
    for text in test_behavior.REFUSED:
        with pytest.raises(RuntimeError, match=r"invalid|BadRequest|unknown field|unmarshal"):
            control_plane.kubectl(*command, text=f"{_HPA}  behavior: {text}\n")
