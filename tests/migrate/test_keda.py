"""Each case of a ScaledObject: what is written, what is said, and whether the command fails."""

from __future__ import annotations

import pytest

from tests.migrate import keda


@pytest.mark.parametrize("name", keda.CASES)
def test_a_case_is_converted_as_keda_would(name):
    case = keda.CASES[name]

    assert keda.problems(case, keda.migrated(case)) == []
