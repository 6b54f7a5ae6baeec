"""Every line that a user reads stays as it is, unless a commit changes it on purpose.

`python -m tools.golden` writes the golden file again; its difference shows what users will read.
"""

import pytest

from tools.golden import chart, cluster, lines
from tools.golden.cases import CASES

GOLDEN = lines.sections(lines.FILE.read_text())


def test_each_case_is_in_the_golden_file():
    assert [*GOLDEN] == [*CASES, *cluster.TITLES, *chart.TITLES]


@pytest.mark.slow
@pytest.mark.parametrize("title", CASES)
def test_what_a_user_reads_is_in_the_golden_file(title):
    assert lines.section(CASES[title]) == GOLDEN[title]


@pytest.mark.slow
@pytest.mark.parametrize("title", cluster.TITLES)
def test_what_commands_print_of_a_cluster_is_in_the_golden_file(title):
    assert cluster.section(title) == GOLDEN[title]


@pytest.mark.usefixtures("real_servers")
@pytest.mark.parametrize("title", chart.TITLES)
def test_what_helm_prints_of_the_chart_is_in_the_golden_file(title):
    assert chart.section(title) == GOLDEN[title]
