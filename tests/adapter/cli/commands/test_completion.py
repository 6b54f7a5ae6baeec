"""Completion, in a real bash."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from adapter.cli import commands
from adapter.cli.commands import completion


@pytest.fixture
def complete(tmp_path, cli):
    """Return what bash offers for the last word of a line; `=` is a word of its own there."""
    script = tmp_path / "completion"
    script.write_text(cli("completion", "bash").out)

    def complete(line):
        words = line.replace("=", " = ").split(" ")
        code = (
            'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
            '_gpu_metrics_adapter; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        command = ["bash", "-c", code, "bash", str(script), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.split()

    return complete


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("gpu-metrics-adapter ", [*commands.SUMMARIES, "--help", "--version"]),
        ("gpu-metrics-adapter do", ["doctor"]),
        ("gpu-metrics-adapter check -o ", ["text", "json", "yaml", "github"]),
        ("gpu-metrics-adapter check --output=g", ["github"]),
        ("gpu-metrics-adapter presets det", ["detect"]),
        ("gpu-metrics-adapter presets gpu-dcgm-m", ["gpu-dcgm-mig"]),
        ("gpu-metrics-adapter presets detect --prometheus-ur", ["--prometheus-url"]),
        ("gpu-metrics-adapter explain --conte", ["--context"]),
        ("gpu-metrics-adapter serve --secure-p", ["--secure-port"]),
        ("gpu-metrics-adapter doctor --kubeconfig ", []),
    ],
)
def test_bash_offers_commands_flags_and_values(line, offered, complete):
    assert complete(line) == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_each_command_and_can_read_the_script(shell, tmp_path, cli):
    code, text, _ = cli("completion", shell)

    assert code == 0
    assert all(name in text for name in commands.SUMMARIES)
    assert "--context=" in text or "-l context" in text
    if found := shutil.which(shell):
        (tmp_path / "script").write_text(text)
        subprocess.run([found, "-n", tmp_path / "script"], check=True)


def test_an_unknown_shell_is_refused(cli):
    code, _, error = cli("completion", "csh")

    assert (code, "csh: must be bash or zsh or fish" in error) == (2, True)


def test_no_command_has_two_flags_of_one_name_or_letter() -> None:
    """Words such as `presets detect` are command lines of their own."""
    for specs in completion.specs().values():
        for spec in specs:
            flags = [flag for group in spec.groups for _, flag in group.flags()]
            names = [flag.name for flag in flags]
            letters = [flag.shorthand for flag in flags if flag.shorthand]
            assert len(names) == len(set(names)), spec.name
            assert len(letters) == len(set(letters)), spec.name
