from __future__ import annotations

from functools import partial

import pytest

from tools.backends import programs as backends
from tools.bench import react
from tools.bench.workload import Size


@pytest.mark.usefixtures("real_servers")
@pytest.mark.parametrize("scraped", [False, True])
def test_step_of_load_is_measured(programs, *, scraped: bool) -> None:
    source = react.written
    if scraped:
        program = backends.find(backends.PROMETHEUS_3)
        if program is None:
            pytest.skip(backends.missing(backends.PROMETHEUS_3))
        source = partial(react.scraped, program=program, interval=1.0, usual=2.0)

    size = Size(autoscalers=3, pods=6, namespaces=2)
    results = react.measure(size, programs, source, sync=1.0)

    assert len(results) == 1 + scraped
    for result in results:
        assert result.autoscalers == 3
        assert 0 < result.half <= result.most <= result.all
        assert result.one_pass > 0
        assert result.reconciliation > 0
