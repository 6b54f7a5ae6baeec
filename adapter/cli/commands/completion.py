"""`completion`: prints a script that completes commands, flags and their values in a shell."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from adapter import settings
from adapter.cli import commands
from adapter.settings.flag import Flag

_PROGRAM = "gpu-metrics-adapter"

COMMAND = settings.CommandSpec(
    name="completion",
    help="""Usage: gpu-metrics-adapter completion bash|zsh|fish

Prints a script that completes commands, flags and their values. To load it:

  source <(gpu-metrics-adapter completion bash)                   in ~/.bashrc
  source <(gpu-metrics-adapter completion zsh)                    in ~/.zshrc, after compinit
  gpu-metrics-adapter completion fish >~/.config/fish/completions/gpu-metrics-adapter.fish""",
    arguments=("SHELL",),
    words=("bash", "zsh", "fish"),
)

Specs = Mapping[str, Sequence[settings.CommandSpec]]
"""Command -> its command line, and those of its subcommands."""


def main(argv: Sequence[str]) -> int:
    """Return 0. Raises UsageError and HelpRequested."""
    (shell,) = COMMAND.parse(argv).positional
    if shell not in _SHELLS:
        raise COMMAND.error(shell, f"must be {' or '.join(_SHELLS)}")
    print("\n".join(_SHELLS[shell](specs())))
    return 0


def specs() -> Specs:
    """Return the command lines of all commands."""
    found = {}
    for name in commands.SUMMARIES:
        with contextlib.suppress(ModuleNotFoundError):  # an image has no demo
            module = importlib.import_module(f"{commands.__name__}.{name}")
            found[name] = getattr(module, "COMMANDS", None) or (module.COMMAND,)
    return found


def _flags(specs: Sequence[settings.CommandSpec]) -> Sequence[Flag[Any]]:
    """Return the flags of a command and its subcommands, each once."""
    groups = [group for spec in specs for group in spec.groups]
    return tuple({flag.name: flag for group in groups for _, flag in group.flags()}.values())


def _is_file(flag: Flag[Any]) -> bool:
    return flag.type.name == "file"


def _first_sentence(flag: Flag[Any]) -> str:
    return flag.help.split(". ")[0].rstrip(".")


def _bash(specs: Specs) -> Iterator[str]:
    yield """_gpu_metrics_adapter() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=
  COMPREPLY=()
  [[ $word == = ]] && word=
  [[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD-2]}"""
    yield "  if (( COMP_CWORD == 1 )); then"
    yield f'    words="{" ".join((*specs, "--help", "--version"))}"'
    yield '  else case "${COMP_WORDS[1]} $before" in'
    for name, lines in specs.items():
        for flag in _flags(lines):
            if flag.type.name:
                patterns = [f'"{name} --{flag.name}"']
                patterns += [f'"{name} -{flag.shorthand}"'] if flag.shorthand else []
                yield f'    {"|".join(patterns)}) words="{" ".join(flag.type.options)}" ;;'
    yield '    *) case "${COMP_WORDS[1]}" in'
    for name, lines in specs.items():
        words = [f"--{flag.name}" for flag in _flags(lines)]
        yield f'      {name}) words="{" ".join((*lines[0].words, *words, "--help"))}" ;;'
    yield "    esac ;;"
    yield "  esac; fi"
    yield """  COMPREPLY=($(compgen -W "$words" -- "$word"))
}"""
    yield f"complete -o default -F _gpu_metrics_adapter {_PROGRAM}"


def _zsh(specs: Specs) -> Iterator[str]:
    yield f"#compdef {_PROGRAM}"
    yield "_gpu_metrics_adapter() {"
    yield "  if (( CURRENT == 2 )); then"
    summaries = (_quoted(f"{name}:{commands.SUMMARIES[name]}") for name in specs)
    yield f"    local -a listed=({' '.join(summaries)})"
    yield "    _describe command listed; return"
    yield "  fi"
    yield "  local command=$words[2]; shift words; (( CURRENT-- ))"
    yield "  case $command in"
    for name, lines in specs.items():
        yield f"    {name}) _arguments \\"
        for flag in _flags(lines):
            text = "".join(
                f"\\{each}" if each in "[]:\\" else each for each in _first_sentence(flag)
            )
            values = "_files" if _is_file(flag) else f"({' '.join(flag.type.options)})"
            value = f":{flag.type.name}:{values}" if flag.type.name else ""
            equals = "=" if flag.type.name else ""
            yield f"      {_quoted(f'*--{flag.name}{equals}[{text}]{value}')} \\"
            if flag.shorthand:
                yield f"      {_quoted(f'*-{flag.shorthand}[{text}]{value}')} \\"
        words = f"({' '.join(lines[0].words)})" if lines[0].words else "_files"
        yield f"      {_quoted(f'1: :{words}')} '*: :_files' ;;"
    yield "  esac"
    yield "}"
    yield f"compdef _gpu_metrics_adapter {_PROGRAM}"


def _fish(specs: Specs) -> Iterator[str]:
    start = f"complete -c {_PROGRAM}"
    for name in specs:
        summary = _quoted(commands.SUMMARIES[name])
        yield f"{start} -f -n __fish_use_subcommand -a {name} -d {summary}"
    for name, lines in specs.items():
        within = f"{start} -n '__fish_seen_subcommand_from {name}'"
        if lines[0].words:
            yield f"{within} -a '{' '.join(lines[0].words)}'"
        for flag in _flags(lines):
            short = f" -s {flag.shorthand}" if flag.shorthand else ""
            value = ""
            if flag.type.options:
                value = f" -x -a '{' '.join(flag.type.options)}'"
            elif flag.type.name:
                value = " -r -F" if _is_file(flag) else " -x"
            yield f"{within} -l {flag.name}{short}{value} -d {_quoted(_first_sentence(flag))}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


_SHELLS: Mapping[str, Callable[[Specs], Iterator[str]]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
