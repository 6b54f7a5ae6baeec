"""Errors of `check` about HPAs: a real API server refuses these, and accepts all others."""

from __future__ import annotations

import pytest

from rules.document import manifests
from rules.findings import State
from rules.lint import check_hpas

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
    "tolerance is -0.1": f'{_HPA}  behavior: {{scaleDown: {{tolerance: "-0.1"}}}}\n',
    "Seconds 3601": f"{_HPA}  behavior: {{scaleDown: {{stabilizationWindowSeconds: 3601}}}}\n",
    "periodSeconds 1801": f"{_HPA}  behavior: {{scaleUp: {{policies: [{_POLICY % 1801}]}}}}\n",
    "periodSeconds 0": f"{_HPA}  behavior: {{scaleUp: {{policies: [{_POLICY % 0}]}}}}\n",
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


def test_the_api_server_refuses_and_accepts_what_check_says(control_plane) -> None:
    command = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")

    for text in ACCEPTED.values():
        control_plane.kubectl(*command, text=text)
    for text in REFUSED.values():
        with pytest.raises(RuntimeError, match=r"invalid|no matches for kind|BadRequest"):
            control_plane.kubectl(*command, text=text)
