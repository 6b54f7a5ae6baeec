from __future__ import annotations

import importlib.resources

import pytest

from rules import presets, ruleset
from rules.errors import ConfigError
from rules.lint import check


def test_every_preset_file_is_listed():
    folder = importlib.resources.files("rules") / "presets"

    files = {each.name for each in folder.iterdir() if each.name.endswith(".yaml")}

    assert {f"{name}.yaml" for name in presets.names()} == files
    assert list(presets.names()) == sorted(presets.names())


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_loads_without_problems_and_has_a_description(name):
    loaded = ruleset.load([(name, presets.text(name))])

    assert loaded.problems == ()
    assert loaded.rules or loaded.external or loaded.resource_rules
    assert presets.describe(name)


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_gives_no_warning_except_about_broad_selectors(name):
    loaded = ruleset.load([(name, presets.text(name))])

    problems = check.warnings(loaded)

    assert {problem.path.rpartition(".")[2] for problem in problems} <= {"seriesQuery"}


def test_the_error_for_an_unknown_preset_lists_all_presets():
    with pytest.raises(ConfigError, match="there is no preset called 'nope'") as caught:
        presets.text("nope")

    for name in presets.names():
        assert name in str(caught.value)


def test_a_path_is_not_accepted_as_a_preset():
    with pytest.raises(ConfigError):
        presets.text("../presets/nope")
