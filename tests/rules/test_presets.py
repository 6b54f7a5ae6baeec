from __future__ import annotations

import importlib.resources

import pytest

from rules import presets, ruleset
from rules.errors import ConfigError
from rules.lint import check


def test_every_yaml_file_in_the_folder_is_a_preset():
    folder = importlib.resources.files("rules") / "presets"

    files = {each.name for each in folder.iterdir() if each.name.endswith(".yaml")}

    assert {f"{name}.yaml" for name in presets.names()} == files
    assert list(presets.names()) == sorted(presets.names())


@pytest.mark.slow
@pytest.mark.parametrize("name", presets.names())
def test_a_preset_loads_without_problems_and_has_a_description(name):
    loaded = ruleset.load([(name, presets.text(name))])

    assert loaded.problems == ()
    assert loaded.rules or loaded.external or loaded.resource_rules
    assert presets.describe(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", presets.names())
def test_a_preset_has_no_warning_other_than_about_its_selectors(name):
    loaded = ruleset.load([(name, presets.text(name))])

    problems = check.warnings(loaded)

    assert {problem.where.path.rpartition(".")[2] for problem in problems} <= {"seriesQuery"}


def test_an_unknown_preset_is_an_error_that_lists_the_presets():
    with pytest.raises(ConfigError, match="there is no preset called 'nope'") as caught:
        presets.text("nope")

    for name in presets.names():
        assert name in str(caught.value)


def test_a_misspelled_preset_is_an_error_that_suggests_the_right_one():
    with pytest.raises(ConfigError, match=r"'gpu-dcmg'; did you mean gpu-dcgm\? \(presets: "):
        presets.text("gpu-dcmg")
