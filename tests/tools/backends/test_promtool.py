"""Generated scrape configurations pass `promtool check config` of Prometheus 3."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from adapter.cli import program
from rules import presets
from rules.exporters.generations import GENERATIONS
from rules.scrape import jobs
from tools import embedded, helm
from tools.backends import programs

_FOUND = programs.find(programs.PROMTOOL_3)
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(_FOUND is None, reason=programs.missing(programs.PROMTOOL_3)),
]

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Folder of the token that pages get; promtool wants the file to exist."""
SCRAPED = sorted(
    {jobs.target(each).preset for each in GENERATIONS if jobs.target(each).scrape.pods}
)
COMMANDS = {
    "all": "",
    "minimal": "--minimal",
    "without-trust": "--trusted-namespaces=",
    "trusted": "--trusted-namespaces=gpu-operator,pools --token-namespaces=pools",
    "trusted-minimal": "--trusted-namespaces=a,b --token-namespaces=b,c --minimal",
    "limits": "--limit=scrape-body=1024 --limit=scrape-samples=10",
    **{name: name for name in SCRAPED},
    **{f"{name}-minimal": f"{name} --minimal" for name in SCRAPED},
}
"""Name of a configuration -> arguments of `presets scrape` that print it."""
WRONG: Mapping[str, tuple[str, str]] = {
    "an unknown key": ("sample_limit:", "samples_limit:"),
    "a pattern": ("regex: .+\n", "regex: (\n"),
    "a limit without its unit": ("body_size_limit: 4MB", "body_size_limit: 4MX"),
}
"""What is wrong -> a text of the component's configuration, and the one in its place."""


def check(folder: Path, configurations: Mapping[str, str]) -> str:
    """Return what promtool says about wrong configurations; nothing if all are right."""
    (folder / "token").touch()
    files = [folder / f"{name}.yaml" for name in configurations]
    for file, text in zip(files, configurations.values(), strict=True):
        file.write_text(text.replace(ACCOUNT, str(folder)))
    assert _FOUND is not None
    command = [_FOUND, "check", "config", "--lint=all", "--lint-fatal", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.count("Checking") == len(files)
    return done.stderr if done.returncode else ""


def test_presets_scrape_prints_configurations_that_promtool_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {*SCRAPED} < {*presets.names()}
    configurations = {}
    for name, arguments in COMMANDS.items():
        assert program.main(["presets", "scrape", *arguments.split()]) == 0, name
        configurations[name] = capsys.readouterr().out

    assert not check(tmp_path, configurations)


def test_promtool_accepts_the_configuration_of_the_component(tmp_path: Path) -> None:
    assert not check(tmp_path, {"prometheus": component()})


@pytest.mark.parametrize("wrong", WRONG)
def test_promtool_refuses_a_wrong_configuration(wrong: str, tmp_path: Path) -> None:
    right, other = WRONG[wrong]
    assert right in component()

    assert "FAILED" in check(tmp_path, {"prometheus": component().replace(right, other)})


@pytest.mark.usefixtures("real_servers")
def test_promtool_accepts_the_configurations_of_the_chart(tmp_path: Path) -> None:
    """Helm renders them, with one trusted namespace and with several."""
    values: Mapping[str, Mapping[str, object]] = {
        "defaults": {},
        "values": {
            "scrapeInterval": "30s",
            "trustedNamespaces": ["a", "b"],
            "tokenNamespaces": ["c", "d"],
        },
        "none": {"scrapeInterval": "1s", "trustedNamespaces": []},
    }
    configurations = {
        name: document["data"]["prometheus.yml"]
        for name, chosen in values.items()
        for document in helm.template({"prometheus": {"embedded": {"enabled": True, **chosen}}})
        if "prometheus.yml" in document.get("data", {})
    }

    assert configurations.keys() == values.keys()
    assert not check(tmp_path, configurations)


def component() -> str:
    """Return the configuration of kustomize's component."""
    (name,) = (each for each in embedded.FILES if "components" in each)
    return embedded.FILES[name]()
