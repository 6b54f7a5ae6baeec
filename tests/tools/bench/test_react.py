from __future__ import annotations

import pytest

from tools.bench import react
from tools.bench.workload import Size


@pytest.mark.usefixtures("real_servers")
def test_step_of_load_is_measured(programs) -> None:
    result = react.measure(Size(autoscalers=3, pods=6, namespaces=2), programs, sync=1.0)

    assert result.autoscalers == 3
    assert 0 < result.half <= result.most <= result.all
    assert result.one_pass > 0
    assert result.reconciliation > 0
