"""The table of limits."""

import pytest

from adapter.settings import settings
from adapter.settings.command_line import UsageError
from rules import limits


def test_each_limit_says_what_it_limits():
    table = list(limits.DEFAULT.table())

    assert len({each.name for each in table}) == len(table)
    assert all(each.unit and each.what and each.beyond and each.value for each in table)


def test_a_flag_changes_a_limit():
    parsed = settings.parse(["--limit=team-rules=7", "--limit=team-text=100"])

    assert parsed.limited.limits == limits.Limits(team_rules=7, team_text=100)


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ("team-rules", "NAME=NUMBER"),
        ("team-rules=-1", "NAME=NUMBER"),
        ("team-rules=0", "team-rules: must be 1 or more"),
        ("rules=1", "rules: is not a limit; the limits are team-config-maps"),
    ],
)
def test_a_wrong_limit_is_refused(argument, problem):
    with pytest.raises(UsageError, match=problem):
        settings.parse([f"--limit={argument}"])


def test_a_limit_is_given_once():
    with pytest.raises(UsageError, match="--limit=team-rules: is given twice"):
        settings.parse(["--limit=team-rules=7", "--limit=team-rules=8"])
