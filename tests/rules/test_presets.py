from __future__ import annotations

import importlib.resources

import pytest

from rules import presets, ruleset
from rules.errors import ConfigError
from rules.lint import check


def test_every_file_beside_the_module_is_a_preset():
    folder = importlib.resources.files("rules") / "presets"

    files = {each.name for each in folder.iterdir() if each.name.endswith(".yaml")}

    assert {f"{name}.yaml" for name in presets.names()} == files
    assert list(presets.names()) == sorted(presets.names())


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_loads_without_a_problem_and_says_what_it_is_for(name):
    loaded = ruleset.load([(name, presets.text(name))])

    assert loaded.problems == ()
    assert loaded.rules or loaded.external or loaded.resource_rules
    assert presets.describe(name)


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_names_kinds_that_every_cluster_has_and_asks_proper_queries(name):
    loaded = ruleset.load([(name, presets.text(name))])

    found = check.warnings(loaded)

    assert {problem.path.rpartition(".")[2] for problem in found} <= {"seriesQuery"}


def test_an_unknown_preset_is_an_error_that_names_the_known_ones():
    with pytest.raises(ConfigError, match="there is no preset called 'nope'") as caught:
        presets.text("nope")

    for name in presets.names():
        assert name in str(caught.value)


def test_a_preset_is_no_path():
    with pytest.raises(ConfigError):
        presets.text("../presets/nope")
