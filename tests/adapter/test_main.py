"""The program's entry point: subcommands, --help and what it must not import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from adapter import __main__ as program

HEAVY = ("aiohttp", "asyncio", "cryptography", "kubernetes", "prometheus_client", "re2", "yaml")


def test_an_unknown_command_is_refused_with_the_nearest_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert program.main(["chekc", "rules.yaml"]) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "chekc: unknown command; did you mean check?",
        "`gpu-metrics-adapter --help` lists commands and flags",
    ]


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["help"], ["serve", "--help"]])
def test_help_lists_the_flags_of_serve(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(argv) == 0

    text = capsys.readouterr().out
    assert "  --prometheus-url url\n" in text
    assert ("  check    " in text) is (argv[0] != "serve")


def test_the_path_of_the_original_program_is_not_a_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The original's chart starts its image with `/adapter` as the first argument."""
    assert program.main(["/adapter", "--help"]) == 0

    assert "--prometheus-url" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["--help"], ["serve", "--help"]])
def test_help_imports_no_heavy_module(argv: list[str]) -> None:
    code = (
        "import sys\nfrom adapter.__main__ import main\n"
        f"main({argv!r})\n"
        f"sys.exit(' '.join({set(HEAVY)!r} & sys.modules.keys()))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stderr == "\n"
