"""`check --prometheus-url` of `resourceRules`, with a real Prometheus."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from adapter.cli import program
from tools.real.prometheus import Prometheus

QUERY = "sum({}{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)"
Check = Callable[..., tuple[list[str], list[str]]]


@pytest.fixture(scope="module")
def server(empty_prometheus: Prometheus) -> Prometheus:
    empty_prometheus.put(
        *(
            f'used{{ns="{namespace}",pod="{pod}",container="{container}",cpu="{cpu}"}} 1'
            for namespace, pod in (("a", "x"), ("a", "y"), ("b", "x"))
            for container in ("main", "side")
            for cpu in (0, 1)
        ),
        'used{node="n1"} 7',
    )
    return empty_prometheus


@pytest.fixture
def check(
    server: Prometheus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Check:
    """Check `resourceRules` with a changed rule for CPU; return the lines and the warnings."""
    monkeypatch.chdir(tmp_path)

    def run(container: str = QUERY.format("used"), node: str = QUERY.format("used")) -> object:
        labels = (
            "{overrides: {ns: {resource: namespace}, pod: {resource: pod}, node: {resource: node}}}"
        )
        rest = f"resources: {labels}, containerLabel: container"
        usual = QUERY.format("used")
        Path("f.yaml").write_text(
            "resourceRules:\n"
            f"  cpu: {{containerQuery: '{container}', nodeQuery: '{node}', {rest}}}\n"
            f"  memory: {{containerQuery: '{usual}', nodeQuery: '{usual}', {rest}}}\n"
            "  window: 1m\n"
        )
        program.main(["check", "f.yaml", f"--prometheus-url={server.url}"])
        lines = capsys.readouterr().out.splitlines()
        return (
            [re.sub(r"\d+ ms$", "T ms", line) for line in lines if line.endswith(" ms")],
            [line for line in lines if ": warning: " in line],
        )

    return run


def test_each_query_tells_how_many_objects_it_returns(check: Check) -> None:
    assert check() == (
        [
            f"resourceRules.{resource}.{key} (f.yaml:{line}): {counts}, T ms"
            for line, resource in ((2, "cpu"), (3, "memory"))
            for key, counts in (
                ("containerQuery", "6 containers of 3 pods"),
                ("nodeQuery", "1 node"),
            )
        ],
        [],
    )


@pytest.mark.parametrize(
    ("query", "warning"),
    [
        (QUERY.format("none"), "returns nothing: Prometheus has no such series"),
        ("used{<<.LabelMatchers>>}", "returns up to 2 samples for one container, whose average"),
        ("sum(used{<<.LabelMatchers>>}) by (ns)", "returns 2 samples, none of which has the label"),
        (QUERY.format("nofunction(used") + ")", "fails: "),
    ],
)
def test_a_query_that_cannot_answer_is_a_warning(check: Check, query: str, warning: str) -> None:
    _, warnings = check(container=query)

    assert any(
        ": warning: resourceRules.cpu.containerQuery: " + warning in each for each in warnings
    )
