"""The formats of reports: JSON, YAML and annotations of GitHub."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from adapter.cli import output, program
from rules.findings import Finding, Place, State

RULES = """\
rules:
- seriesQuery: DCGM_FI_DEV_GPU_UTIL
  name: {as: duty_cycle}
  resources: {overrides: {pod: {resource: pod}, namespace: {resource: namespace}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
  agregate: avg
"""
KEYS = {"state", "reason", "subject", "fact", "cause", "cure", "where"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text(RULES)
    return tmp_path


@pytest.mark.parametrize(("form", "parse"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_check_prints_its_findings_as_a_document(form, parse, capsys) -> None:
    assert program.main(["check", "bad.yaml", "-o", form]) == 1

    report = parse(capsys.readouterr().out)
    first = report["findings"][0]
    assert (report["errors"], report["warnings"]) == (1, 0)
    assert first.keys() == KEYS
    assert (first["state"], first["where"]["file"], first["where"]["line"]) == (
        "failure",
        "bad.yaml",
        6,
    )
    assert "agregate" in first["fact"]


def test_check_annotates_the_lines_of_a_pull_request(capsys) -> None:
    assert program.main(["check", "bad.yaml", "--output=github"]) == 1

    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("::error file=bad.yaml,line=6,col=3::rules[0]")
    assert last == "1 error, 0 warnings"


def test_annotations_escape_what_would_end_them() -> None:
    where = Place(file="a,b:c.yaml", line=7)
    found = [
        Finding(state=State.WARNING, fact="100%\nof it", cure="scrape it", where=where),
        Finding(state=State.NOTE, subject="rule", fact="is shared"),
    ]

    assert list(output.github_annotations(found)) == [
        "::warning file=a%2Cb%3Ac.yaml,line=7::100%25%0Aof it: scrape it",
        "::notice ::rule: is shared",
    ]


def test_check_reads_standard_input(capsys) -> None:
    before = os.dup(0)
    with Path("bad.yaml").open("rb") as file:
        os.dup2(file.fileno(), 0)
    try:
        assert program.main(["check", "-"]) == 1
    finally:
        os.dup2(before, 0)
        os.close(before)

    assert capsys.readouterr().out.startswith("stdin:6:3: error: rules[0]")


def test_check_reads_folders_with_those_below(folder, capsys) -> None:
    """Only rules and manifests below: a repository has other YAML, too."""
    below = folder / "clusters" / "one"
    below.mkdir(parents=True)
    (folder / "bad.yaml").rename(below / "bad.yaml")
    (below / "workflow.yml").write_text("on: {push: {}}\n")
    (folder / ".git").mkdir()
    (folder / ".git" / "hidden.yaml").write_text(RULES)

    assert program.main(["check", "."]) == 1

    skipped, found, number = capsys.readouterr().out.splitlines()
    assert skipped == "skipped 1 file without rules in folders"
    assert found.startswith("clusters/one/bad.yaml:6:3: error: ")
    assert number == "1 error, 0 warnings"


def test_a_file_that_the_server_would_read_must_have_rules(folder, capsys) -> None:
    (folder / "bad.yaml").write_text("rule: []\n")

    assert program.main(["check", str(folder)]) == 1

    assert "bad.yaml:1:1: error: rule" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["list"]])
def test_presets_are_listed_in_each_format(arguments, capsys) -> None:
    program.main(["presets", *arguments])
    lines = capsys.readouterr().out.splitlines()
    program.main(["presets", *arguments, "-o", "json"])
    listed = json.loads(capsys.readouterr().out)["presets"]

    assert [each.split()[0] for each in lines] == [each["name"] for each in listed]
    assert all(line.endswith(each["description"]) for line, each in zip(lines, listed, strict=True))


def test_the_rules_of_a_preset_are_printed_as_json(capsys) -> None:
    assert program.main(["presets", "gpu-dcgm"]) == 0
    text = capsys.readouterr().out
    assert program.main(["presets", "gpu-dcgm", "-o", "json"]) == 0

    assert json.loads(capsys.readouterr().out) == yaml.safe_load(text)
