"""What the API server refuses in `spec.behavior`; a real one refuses that of `REFUSED`."""

from __future__ import annotations

import pytest

from rules.document import behavior
from rules.document import yaml as documents

_POLICY = "{policies: [{type: Pods, value: 1, periodSeconds: 1}]}"
REFUSED = {
    "[]": " must be a mapping",
    "{scaleUpp: {}}": ".scaleUpp is none of scaleUp, scaleDown",
    "{scaleUp: 7}": ".scaleUp must be a mapping",
    "{scaleDown: {stabilisationWindowSeconds: 0}}": ".scaleDown.stabilisationWindowSeconds is none",
    **{
        f"{{scaleDown: {{stabilizationWindowSeconds: {value}}}}}": (
            ".scaleDown.stabilizationWindowSeconds must be an integer from 0 to 3600"
        )
        for value in ("-1", "3601", "1.5", "true", "a", '"1"', "[1]")
    },
    "{scaleUp: {selectPolicy: min}}": ".scaleUp.selectPolicy must be Max, Min or Disabled",
    "{scaleUp: {policies: []}}": ".scaleUp.policies must be a list, and must not be empty",
    "{scaleUp: {policies: {}}}": ".scaleUp.policies must be a list",
    "{scaleUp: {policies: [1]}}": ".scaleUp.policies.0 must be a mapping",
    **{
        f"{{scaleUp: {_POLICY.replace(*change)}}}": f".scaleUp.policies.0{problem}"
        for change, problem in {
            ("type: Pods, ", ""): " type is missing",
            ("value: 1, ", ""): " value is missing",
            (", periodSeconds: 1", ""): " periodSeconds is missing",
            ("type: Pods", "type: Pod"): ".type must be Pods or Percent",
            ("value: 1", "value: 0"): ".value must be an integer from 1 to 2147483647",
            ("value: 1", "value: 2.5"): ".value must be an integer",
            ("Seconds: 1", "Seconds: 0"): ".periodSeconds must be an integer from 1 to 1800",
            ("Seconds: 1", "Seconds: 1801"): ".periodSeconds must be an integer",
            ("value: 1", "value: 1, unit: 1"): ".unit is none of type, value, periodSeconds",
        }.items()
    },
    **{
        f"{{scaleUp: {{tolerance: {value}}}}}": ".scaleUp.tolerance must be a quantity of 0 or more"
        for value in ("-1", "10%", "true", "[1]")
    },
}
"""Text -> path, and the beginning of the message."""
ACCEPTED = (
    "{}",
    "{scaleUp: null, scaleDown: {}}",
    "{scaleUp: {stabilizationWindowSeconds: 3600, selectPolicy: Disabled, tolerance: 50m}}",
    "{scaleDown: {stabilizationWindowSeconds: null, policies: null, tolerance: 0.1}}",
    f"{{scaleUp: {_POLICY}}}",
)


def _problems(text: str) -> list[str]:
    node, problems = documents.load(text, file="b.yaml")
    assert node is not None
    assert not problems
    return list(map(str, behavior.problems(node)))


@pytest.mark.parametrize("text", REFUSED)
def test_what_the_api_server_refuses_is_a_problem(text: str) -> None:
    (found,) = _problems(text)

    assert found.startswith(f"behavior{REFUSED[text]}")


@pytest.mark.parametrize("text", ACCEPTED)
def test_what_the_api_server_accepts_is_none(text: str) -> None:
    assert _problems(text) == []
