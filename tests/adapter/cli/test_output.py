"""The formats of reports: JSON, YAML and annotations of GitHub."""

from __future__ import annotations

import json
import os

import pytest
import yaml

from adapter.cli import output
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
def bad(tmp_path):
    """A file in the folder of the program."""
    path = tmp_path / "bad.yaml"
    path.write_text(RULES)
    return path


@pytest.mark.parametrize(("form", "parse"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_check_prints_its_findings_as_a_document(form, parse, cli):
    code, output, _ = cli("check", "bad.yaml", "-o", form)

    report = parse(output)
    first = report["findings"][0]
    assert (code, report["errors"], report["warnings"]) == (1, 1, 0)
    assert first.keys() == KEYS
    assert (first["state"], first["where"]["file"], first["where"]["line"]) == (
        "failure",
        "bad.yaml",
        6,
    )
    assert "agregate" in first["fact"]


def test_check_annotates_the_lines_of_a_pull_request(cli):
    ended = cli("check", "bad.yaml", "--output=github")

    first, *_, last = ended.lines
    assert ended.code == 1
    assert first.startswith("::error file=bad.yaml,line=6,col=3::rules[0]")
    assert last == "1 error, 0 warnings"


def test_annotations_escape_what_would_end_them():
    where = Place(file="a,b:c.yaml", line=7)
    found = [
        Finding(state=State.WARNING, fact="100%\nof it", cure="scrape it", where=where),
        Finding(state=State.NOTE, subject="rule", fact="is shared"),
    ]

    assert list(output.github_annotations(found)) == [
        "::warning file=a%2Cb%3Ac.yaml,line=7::100%25%0Aof it: scrape it",
        "::notice ::rule: is shared",
    ]


def test_check_reads_standard_input(bad, cli):
    before = os.dup(0)
    with bad.open("rb") as file:
        os.dup2(file.fileno(), 0)
    try:
        ended = cli("check", "-")
    finally:
        os.dup2(before, 0)
        os.close(before)

    assert ended.code == 1
    assert ended.out.startswith("stdin:6:3: error: rules[0]")


def test_check_reads_folders_with_those_below(bad, tmp_path, cli):
    """Only rules and manifests below: a repository has other YAML, too."""
    below = tmp_path / "clusters" / "one"
    below.mkdir(parents=True)
    bad.rename(below / "bad.yaml")
    (below / "workflow.yml").write_text("on: {push: {}}\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "hidden.yaml").write_text(RULES)

    ended = cli("check", ".")

    skipped, found, number = ended.lines
    assert ended.code == 1
    assert skipped == "skipped 1 file without rules in folders"
    assert found.startswith("clusters/one/bad.yaml:6:3: error: ")
    assert number == "1 error, 0 warnings"


def test_a_file_that_the_server_would_read_must_have_rules(bad, cli):
    bad.write_text("rule: []\n")

    code, output, _ = cli("check", ".")

    assert (code, "bad.yaml:1:1: error: rule" in output) == (1, True)


@pytest.mark.parametrize("arguments", [[], ["list"]])
def test_presets_are_listed_in_each_format(arguments, cli):
    lines = cli("presets", *arguments).lines
    listed = json.loads(cli("presets", *arguments, "-o", "json").out)["presets"]

    assert [each.split()[0] for each in lines] == [each["name"] for each in listed]
    assert all(line.endswith(each["description"]) for line, each in zip(lines, listed, strict=True))


def test_the_rules_of_a_preset_are_printed_as_json(cli):
    code, text, _ = cli("presets", "gpu-dcgm")

    assert code == 0
    assert json.loads(cli("presets", "gpu-dcgm", "-o", "json").out) == yaml.safe_load(text)
