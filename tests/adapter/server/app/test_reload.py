"""Rules files that change while a real server runs with a real Prometheus."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from adapter import settings
from adapter.settings import rule_files
from rules.lint import check
from tools.presets import api
from tools.presets.api import Api
from tools.real.prometheus import Prometheus
from tools.waiting import until

RULE = """
- seriesQuery: gpu_util
  name: {{as: {name}}}
  resources: {{overrides: {{ns: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: '{factor} * avg by (<<.GroupBy>>) (<<.Series>>{{<<.LabelMatchers>>}})'
"""
VALUE = {"a": 20}


def rules(*names: str, factor: int = 1) -> str:
    return "rules:" + "".join(RULE.format(name=name, factor=factor) for name in names)


@pytest.fixture(scope="module")
def scraped(empty_prometheus: Prometheus) -> Prometheus:
    now = time.time()
    for at in (now - 30, now, now + 300):
        empty_prometheus.put('gpu_util{ns="default",pod="a"} 20', at=at)
    return empty_prometheus


class Files:
    """A folder of rules files as the kubelet mounts a ConfigMap: replaced by one link."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "config"
        self.folder.mkdir()
        self._versions = 0

    def write(self, **files: str) -> None:
        """Replace all files at once."""
        self._versions += 1
        version = self.folder / f"..{self._versions}"
        version.mkdir()
        for name, text in files.items():
            (version / f"{name}.yaml").write_text(text)
        new = self.folder / "..new"
        new.symlink_to(version.name)
        new.rename(self.folder / "..data")
        for name in files:
            file = self.folder / f"{name}.yaml"
            if not file.is_symlink():
                file.symlink_to(f"..data/{name}.yaml")
        for file in self.folder.glob("*.yaml"):
            if file.stem not in files:
                file.unlink()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    files = Files(tmp_path)
    files.write(first=rules("kept", "removed"))
    return files


@pytest.fixture
async def served(scraped: Prometheus, tmp_path: Path, files: Files) -> AsyncIterator[Api]:
    flags = [f"--config={files.folder}"]
    async with api.serving(tmp_path, scraped.url, api.manifests(["default/a"]), flags) as running:
        yield running


async def reloaded(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask the server in this process to look at its files, and wait for the condition."""
    os.kill(os.getpid(), signal.SIGHUP)
    await until(condition)


async def checks(served: Api) -> str:
    async with served.session.get(f"{served.url}/readyz?verbose", ssl=False) as response:
        return await response.text()


async def test_the_signal_does_not_end_a_server_that_stops(
    scraped: Prometheus, tmp_path: Path, files: Files
) -> None:
    flags = [f"--config={files.folder}"]
    async with api.serving(tmp_path, scraped.url, api.manifests(["default/a"]), flags):
        assert signal.getsignal(signal.SIGHUP) != signal.SIG_DFL

    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


async def test_changed_files_replace_the_rules_whole(served: Api, files: Files) -> None:
    assert await served.pods("default", "removed") == VALUE
    assert "[+]reload ok: the files are unchanged since they were loaded" in await checks(served)

    files.write(first=rules("kept"), second=rules("added", factor=2))

    async def has_new() -> bool:
        return await served.pods("default", "added") != {}

    await reloaded(has_new)
    assert await served.pods("default", "added") == {"a": 40}
    assert await served.pods("default", "kept") == VALUE
    assert await served.pods("default", "removed") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules: [{metricQuery: y}]", "unknown key 'metricQuery'"),
        ("rules: [{seriesQuery: x, metricsQuery: '<<'}]", "rules[0].metricsQuery"),
        ("rules: [", "first.yaml:2:1: error: invalid YAML"),
        (
            "sources: {other: {url: http://127.0.0.1:1}}\n" + rules("kept", "removed"),
            "sources: a change takes effect after a restart of the adapter",
        ),
        (
            rules("kept", "removed") + "resourceRules: {}",
            "resourceRules",
        ),
    ],
    ids=["key", "template", "yaml", "sources", "resources"],
)
async def test_files_with_errors_change_nothing_and_are_reported(
    served: Api, files: Files, text: str, message: str
) -> None:
    files.write(first=text)

    async def is_reported() -> bool:
        (line,) = (each for each in (await checks(served)).splitlines() if "]reload" in each)
        return message in line and "the previous rules stay in use" in line

    await reloaded(is_reported)
    assert await served.pods("default", "removed") == VALUE

    files.write(first=rules("kept"))

    async def is_mended() -> bool:
        return "[+]reload ok: the files are unchanged since they were loaded" in await checks(
            served
        )

    await reloaded(is_mended)
    assert await served.pods("default", "removed") == {}


async def test_sources_may_move_in_their_file(
    scraped: Prometheus, tmp_path: Path, files: Files
) -> None:
    sources = f"sources: {{other: {{url: {scraped.url}}}}}\n"
    files.write(first=rules("kept") + sources)
    flags = [f"--config={files.folder}"]
    pods = api.manifests(["default/a"])
    async with api.serving(tmp_path, scraped.url, pods, flags) as running:
        files.write(first=rules("kept", "added") + sources)

        async def has_new() -> bool:
            return await running.pods("default", "added") == VALUE

        await reloaded(has_new)


async def test_warnings_about_changed_files_do_not_delay_requests(
    served: Api, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    monkeypatch.setattr(
        check, "warnings", lambda _: threads.append(threading.current_thread()) or ()
    )
    files.write(first=rules("kept"))

    async def is_checked() -> bool:
        return bool(threads)

    await reloaded(is_checked)
    assert threads != [threading.main_thread()]


async def test_detected_presets_are_in_use_where_the_command_line_has_auto(
    scraped: Prometheus, tmp_path: Path
) -> None:
    """A file may replace what a preset has."""
    names = ("duty_cycle_current", "memory_used_bytes_current")
    own = tmp_path / "own.yaml"
    own.write_text(rules(names[0]))
    flags = [
        "--preset=auto",
        f"--config={own}",
        "--metrics-relist-interval=1s",
        "--metrics-max-age=10m",
    ]
    pods = api.manifests(["default/a"])
    async with api.serving(tmp_path, scraped.url, pods, flags) as running:
        assert await running.pods("default", names[0]) == VALUE
        assert "[+]presets ok: gpu-dcgm (no exporter is detected" in await checks(running)

        scraped.put('DCGM_FI_DEV_FB_USED_BYTES{namespace="default",pod="a"} 7')

        async def is_detected() -> bool:
            return await running.pods("default", names[1]) == {"a": 7}

        await reloaded(is_detected)
        assert "[+]presets ok: gpu-dcgm49 (detected)" in await checks(running)
        assert "[+]reload ok: the files are unchanged since they were loaded" in await checks(
            running
        )
        assert await running.pods("default", names[0]) == VALUE


def test_presets_that_are_named_stay_and_are_not_loaded_twice() -> None:
    named = settings.parse(
        ["--preset=gpu-dcgm", "--preset=auto", "--preset=gpu-hami"]
    ).rules.sources

    loaded = rule_files.load(named, ("gpu-dcgm49", "gpu-dcgm"))

    files = dict.fromkeys(rule.config.where.file for rule in loaded.all)
    assert list(files) == ["preset gpu-dcgm", "preset gpu-dcgm49", "preset gpu-hami"]
