"""Fixtures for all tests, and the summary of golden cases at the end of a run."""

from __future__ import annotations

import pytest

from tests.vectors import harness

pytest_plugins = ("tests.control_plane.fixtures",)

_REPORTS = pytest.StashKey[list[harness.Report]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_REPORTS] = []


@pytest.fixture(scope="session")
def vector_reports(pytestconfig: pytest.Config) -> list[harness.Report]:
    """Return the list to which tests append reports on golden cases for the final summary."""
    return pytestconfig.stash[_REPORTS]


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    outcomes = [each for report in config.stash[_REPORTS] for each in report.outcomes]
    if not outcomes:
        return
    left_out = tuple(each for each in outcomes if each.problem and each.exotic)
    failed = sum(bool(each.problem) for each in outcomes) - len(left_out)
    terminalreporter.section("golden cases")
    terminalreporter.write_line(
        f"{len(outcomes)} cases: {len(outcomes) - failed - len(left_out)} passed,"
        f" {failed} failed, {len(left_out)} left out"
    )
    for line in harness.by_reason(left_out):
        terminalreporter.write_line(f"left out for {line}")
