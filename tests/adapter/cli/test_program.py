"""The program's entry point: subcommands, --help and what it must not import."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from adapter import __version__
from adapter.cli import commands, program

HEAVY = (
    *("aiohttp", "asyncio", "cryptography", "jinja2", "kubernetes", "orjson"),
    *("prometheus_client", "promql_parser", "re2", "yaml"),
)


def test_an_unknown_command_is_refused_with_the_nearest_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert program.main(["chekc", "rules.yaml"]) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "chekc: unknown command; did you mean check?",
        "`gpu-metrics-adapter --help` lists the commands",
    ]


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["help"]])
def test_help_lists_the_commands(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(argv) == 0

    text = capsys.readouterr().out
    assert re.findall(r"^  ([a-z]+) ", text, re.MULTILINE) == list(commands.SUMMARIES)
    assert "--prometheus-url" not in text


def test_the_flags_of_the_server_are_in_the_help_of_serve(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert program.main(["serve", "--help"]) == 0

    text = capsys.readouterr().out
    assert "  --prometheus-url url\n" in text
    headings = re.findall(r"^([A-Z].*):$", text, re.MULTILINE)
    assert headings[-1] == "Accepted, without effect"


def test_the_path_of_the_original_program_is_not_a_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The original's chart starts its image with `/adapter` as the first argument."""
    assert program.main(["/adapter", "--help"]) == 0

    assert "--prometheus-url" in capsys.readouterr().out


@pytest.mark.slow
def test_help_imports_no_heavy_module() -> None:
    """Without them, the help of a command took 0.10 to 0.15 s of CPU: the least of seven runs."""
    lines = [["--help"], *([name, "--help"] for name in commands.SUMMARIES)]
    code = (
        "import sys\nfrom adapter.cli.program import main\n"
        f"for argv in {lines!r}:\n"
        "    main(argv)\n"
        f"    print(*argv, *{set(HEAVY)!r} & sys.modules.keys(), file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stderr.splitlines() == [" ".join(each) for each in lines]


@pytest.mark.slow
def test_the_list_of_commands_imports_no_flags() -> None:
    """With them, it took 0.13 s of CPU instead of 0.03: the least of twelve runs."""
    code = (
        "import sys\nfrom adapter.cli.program import main\n"
        "main(['--help'])\nsys.exit('\\n'.join(sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert {"adapter.settings", "difflib", "logging"}.isdisjoint(done.stderr.splitlines())


@pytest.mark.slow
def test_commands_that_only_read_import_no_server() -> None:
    """Those that `check` and `test` need to evaluate requests are imported later, or by `test`."""
    names = ("check_files", "console", "doctor", "explain", "migrate", "presets_detect", "replay")
    modules = [*(f"commands.{name}" for name in names), "console.server", "doctor.checks"]
    imports = "".join(f"import adapter.cli.{module}\n" for module in modules)
    code = f"import sys\n{imports}sys.exit('\\n'.join(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    imported = done.stderr.splitlines()
    assert set(modules) <= {each.removeprefix("adapter.cli.") for each in imported}
    assert [each for each in imported if each.startswith("adapter.server")] == []


@pytest.mark.parametrize("argument", ["version", "--version"])
def test_the_version_is_printed(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main([argument]) == 0

    assert capsys.readouterr().out == f"gpu-metrics-adapter {__version__}\n"


def test_version_takes_no_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["version", "serve"]) == 2

    assert capsys.readouterr().err.startswith("serve: unexpected argument\n")


def test_a_file_is_not_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["rules/my.yaml"]) == 2

    assert capsys.readouterr().err.startswith("rules/my.yaml: unknown command\n")


def test_a_command_after_flags_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["-v", "6", "check", "rules.yaml"]) == 2

    assert "check: a command must be the first argument" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("argv", [["--help"], ["presets", "gpu-node"]])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_to_a_closed_pipe_gives_no_traceback(argv: list[str], stream: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "adapter", *argv]
    other = "stderr" if stream == "stdout" else "stdout"

    done = subprocess.run(
        command, check=False, **{stream: writing, other: subprocess.PIPE}, text=True
    )

    os.close(writing)
    assert "Traceback" not in (done.stderr or "")
    assert "BrokenPipeError" not in (done.stderr or "")
    assert done.returncode == (141 if stream == "stdout" else 0)


def test_an_interrupted_command_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str, argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "run", interrupted)

    assert program.main(["check", "rules.yaml"]) == 130
