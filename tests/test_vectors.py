"""Golden cases, and the command that runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.vectors import __main__ as command
from tests.vectors import harness


@pytest.mark.slow
@pytest.mark.parametrize("name", harness.CHECKS)
def test_cases_are_answered_as_by_the_original(name):
    report = harness.run_file(harness.DATA, f"{name}.json")

    assert report.outcomes
    if report.failed:
        pytest.fail("\n".join(command.lines(report, command.SHOWN)), pytrace=False)


def test_every_file_of_cases_has_a_check():
    files = {path.name for path in harness.DATA.glob("*.json")} - {"clusters.json"}

    assert files == {f"{name}.json" for name in harness.CHECKS}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("templates.json", "templates"),
        ("templates-2.json", "templates"),
        ("more/Naming.part1.json", "naming"),
        ("extra_queries.json", "queries"),
        ("clusters.json", None),
        ("notes.json", None),
    ],
)
def test_the_kind_of_a_file_is_a_word_of_its_name(path, kind):
    assert harness.kind(Path(path)) == kind


def _write(folder: Path, name: str, document: object) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(document), encoding="utf-8")


GOOD = {"name": "go-1", "kind": "go", "text": "1s", "ns": "1000000000", "string": "1s"}
BAD = {"name": "go-2", "kind": "go", "text": "1s", "ns": "2", "string": "2ns"}
EXOTIC = BAD | {"name": "go-3", "exotic": ["methods"]}


def test_the_command_counts_cases_and_succeeds_when_none_failed(tmp_path, capsys):
    _write(tmp_path, "more/durations-2.json", {"cases": [GOOD, EXOTIC, GOOD | {"exotic": ["x"]}]})

    status = command.main([str(tmp_path)])

    assert status == 0
    assert capsys.readouterr().out.splitlines() == [
        "more/durations-2.json  2 passed  0 failed  1 left out",
        "  left out for methods: 1 (go-3)",
        "2 passed, 0 failed, 1 left out",
    ]


def test_the_command_shows_the_expected_and_the_actual_answer(tmp_path, capsys):
    _write(tmp_path, "durations.json", {"cases": [GOOD, BAD]})

    status = command.main([str(tmp_path)])

    output = capsys.readouterr().out
    assert status == 1
    assert "failed go-2: ns\n    expected '2'\n    actual   '1000000000'\n" in output
    assert output.endswith("\n1 passed, 1 failed, 0 left out\n")


def test_the_command_shows_all_failed_cases_only_with_v(tmp_path, capsys):
    _write(tmp_path, "durations.json", {"cases": [BAD] * 25})

    command.main([str(tmp_path)])
    brief = capsys.readouterr().out
    command.main([str(tmp_path), "-v"])
    full = capsys.readouterr().out

    assert brief.count("failed go-2") == 20
    assert "… and 5 more; show them with -v" in brief
    assert full.count("failed go-2") == 25


def test_a_case_fails_when_its_check_raises(tmp_path, capsys):
    _write(tmp_path, "durations.json", {"cases": [{"name": "go-4", "kind": "swiss"}]})

    assert command.main([str(tmp_path)]) == 1
    assert "failed go-4: KeyError: 'swiss'" in capsys.readouterr().out


def test_a_file_without_cases_is_an_error_and_an_unknown_file_is_not(tmp_path, capsys):
    _write(tmp_path, "durations.json", [])
    _write(tmp_path, "notes.json", {"cases": []})

    assert command.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        'durations.json  no {"cases": […]} in the file',
        "notes.json  no check is named like this file",
        "0 passed, 0 failed, 0 left out",
    ]


def test_a_folder_without_files_of_cases_is_status_two(tmp_path, capsys):
    _write(tmp_path, "notes.json", {})

    assert command.main([str(tmp_path / "nowhere")]) == 2
    assert command.main([str(tmp_path)]) == 2
    assert "contains none of templates.json" in capsys.readouterr().err


def test_a_folder_may_have_its_own_clusters(tmp_path):
    _write(tmp_path, "clusters.json", {"clusters": {"mine": []}})

    assert harness.clusters(tmp_path) == {"mine": []}
    assert "default" in harness.clusters(tmp_path / "nowhere")
