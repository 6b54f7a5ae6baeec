from __future__ import annotations

from pathlib import Path

import pytest

from tools.backends import programs


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty cache, without a variable that names a program."""
    monkeypatch.setenv("GPU_METRICS_ADAPTER_CACHE", str(tmp_path))
    for each in programs.PROGRAMS:
        monkeypatch.delenv(each.variable, raising=False)
    return tmp_path


def test_programs_that_are_here_are_printed(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [programs.find(each) for each in programs.PROGRAMS] == [None] * len(programs.PROGRAMS)
    thanos = cache / "thanos-v0.42.4/thanos"
    thanos.parent.mkdir()
    thanos.touch()
    monkeypatch.setenv("CORTEX", "/programs/cortex")

    # A folder that nobody named is no failure: no command can build it.
    assert programs.main(["thanos", "CORTEX", "cluster"]) == 0

    output = capsys.readouterr()
    assert [line.split()[-1] for line in output.out.splitlines()] == [
        str(thanos),
        "/programs/cortex",
    ]
    assert "set $VICTORIA_METRICS_CLUSTER to a folder with vminsert" in output.err


def test_an_unknown_title_is_refused(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert programs.main(["mimir"]) == 2
    assert "no backend has 'mimir' in its title; there are Victoria" in capsys.readouterr().err
