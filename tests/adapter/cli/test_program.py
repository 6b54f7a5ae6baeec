"""The program's entry point: subcommands, --help and what it must not import."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from adapter import __version__
from adapter.cli import commands

HEAVY = (
    *("aiohttp", "asyncio", "cryptography", "jinja2", "kubernetes", "orjson"),
    *("prometheus_client", "promql_parser", "re2", "yaml"),
)


@pytest.mark.parametrize(
    ("name", "hint"), [("chekc", "; did you mean check?"), ("rules/my.yaml", "")]
)
def test_an_unknown_command_is_refused_with_the_nearest_one(name, hint, cli):
    see = "`gpu-metrics-adapter --help` lists the commands"

    assert cli(name, "rules.yaml") == (2, "", f"{name}: unknown command{hint}\n{see}\n")


@pytest.mark.parametrize("name", ["--help", "-h", "help"])
def test_help_lists_the_commands(name, cli):
    code, text, _ = cli(name)

    assert code == 0
    assert re.findall(r"^  ([a-z]+) ", text, re.MULTILINE) == list(commands.SUMMARIES)
    assert "--prometheus-url" not in text


@pytest.mark.parametrize("name", ["serve", "/adapter"])
def test_the_flags_of_the_server_are_in_the_help_of_serve(name, cli):
    """The original's chart starts its image with `/adapter` as the first argument."""
    code, text, _ = cli(name, "--help")

    assert code == 0
    assert "  --prometheus-url url\n" in text
    headings = re.findall(r"^([A-Z].*):$", text, re.MULTILINE)
    assert headings[-1] == "Accepted, without effect"


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
    names = ("advise", "check_files", "console", "doctor", "explain", "migrate", "presets_detect")
    modules = [*(f"commands.{name}" for name in names), "commands.replay", "console.server"]
    modules += ["doctor.advise", "doctor.checks"]
    imports = "".join(f"import adapter.cli.{module}\n" for module in modules)
    code = f"import sys\n{imports}sys.exit('\\n'.join(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    imported = done.stderr.splitlines()
    assert set(modules) <= {each.removeprefix("adapter.cli.") for each in imported}
    assert [each for each in imported if each.startswith("adapter.server")] == []


@pytest.mark.parametrize("name", ["version", "--version"])
def test_the_version_is_printed(name, cli):
    assert cli(name) == (0, f"gpu-metrics-adapter {__version__}\n", "")


def test_a_command_after_flags_is_refused(cli):
    code, _, error = cli("-v", 6, "check", "rules.yaml")

    assert (code, "check: a command must be the first argument" in error) == (2, True)


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


def test_an_interrupted_command_ends_without_a_traceback(monkeypatch, cli):
    def interrupted(name: str, argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "run", interrupted)

    assert cli("check", "rules.yaml").code == 130
