"""Parser of the command line, by the rules of Go's pflag.

`--flag=value`, `--flag value`, `--switch`, `--switch=false`, `-v=6`, `-v6`, `-v 6`; `--` ends the
flags. Unlike pflag, it reports all problems instead of the first.
"""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from adapter.settings.flag import Flag, FlagGroup
from rules.findings import Finding


class UsageError(Exception):
    """Invalid command line; `problems` has a finding for each mistake, about an argument.

    `command` is the name of the subcommand.
    """

    def __init__(self, problems: Sequence[Finding], *, command: str = "serve") -> None:
        self.problems = tuple(problems)
        self.command = command
        super().__init__("\n".join(each.sentence for each in self.problems))


class HelpRequested(Exception):
    """`-h` or `--help` was given; the text is the help of the subcommand, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    """Command line of a subcommand."""

    name: str
    """Name, with that of the subcommand's own subcommand: `presets detect`."""
    help: str
    """Text of --help: usage, description and flags."""
    groups: tuple[type[FlagGroup], ...] = ()
    arguments: tuple[str, ...] = ()
    """Names of the positional arguments; in brackets if it may be left out.

    The last one may be repeated if it ends in `...`.
    """
    positional_flag: str = ""
    """Flag whose values the positional arguments are."""
    words: tuple[str, ...] = ()
    """What the first positional argument may be, for completion."""

    def parse(self, argv: Iterable[str]) -> CommandLine:
        """Parse the arguments after the name. Raises UsageError and HelpRequested."""
        try:
            line = parse(argv, self.groups, positional_flag=self.positional_flag)
        except HelpRequested:
            raise HelpRequested(self.help) from None
        wanted, given = self.arguments, line.positional
        problems = list(line.problems)
        problems += [
            Finding(subject=name, fact="is missing")
            for name in wanted[len(given) :]
            if not name.startswith("[")
        ]
        if not (wanted and wanted[-1].endswith("...")):
            problems += [
                Finding(subject=text, fact="unexpected argument") for text in given[len(wanted) :]
            ]
        if problems:
            raise UsageError(problems, command=self.name)
        return line

    def error(self, argument: str, fact: str) -> UsageError:
        """Return the error for a command line with an argument that cannot be used."""
        return UsageError([Finding(subject=argument, fact=fact)], command=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """Parsed command line."""

    groups: tuple[Any, ...]
    """One instance of each group, in the order of the groups."""
    given: tuple[Flag[Any], ...]
    """Every flag that was given with a valid value, in order."""
    positional: tuple[str, ...]
    """Arguments that are neither flags nor their values."""
    problems: tuple[Finding, ...]


def parse(
    argv: Iterable[str],
    groups: Sequence[type[FlagGroup]],
    *,
    ignored: Iterable[Flag[Any]] = (),
    positional_flag: str = "",
) -> CommandLine:
    """Parse `argv` (without the program's name). Raises HelpRequested.

    Positional arguments become values of the flag `positional_flag`, if there is one.
    """
    parser = _Parser(argv, groups, ignored, positional_flag)
    parser.run()
    built = tuple(group(**values) for group, values in parser.values.items())
    # A default in place of an invalid value could conflict with a valid one.
    valid = (group for group in built if type(group) not in parser.invalid)
    conflicts = (problem for group in valid for problem in group.problems())
    return CommandLine(
        groups=built,
        given=tuple(parser.given),
        positional=tuple(parser.positional),
        problems=(*parser.problems, *conflicts),
    )


class _Parser:
    def __init__(
        self,
        argv: Iterable[str],
        groups: Sequence[type[FlagGroup]],
        ignored: Iterable[Flag[Any]],
        positional_flag: str,
    ) -> None:
        self.rest = deque(argv)
        self.values: dict[type[FlagGroup], dict[str, Any]] = {group: {} for group in groups}
        self.flags: dict[str, Flag[Any]] = {each.name: each for each in ignored}
        self.targets: dict[str, tuple[type[FlagGroup], str]] = {}
        for group in groups:
            for field, declared in group.flags():
                self.flags[declared.name] = declared
                self.targets[declared.name] = (group, field)
        self.shorthands = {each.shorthand: each for each in self.flags.values() if each.shorthand}
        self.positional_flag = self.flags.get(positional_flag)
        self.positional: list[str] = []
        self.given: list[Flag[Any]] = []
        self.problems: list[Finding] = []
        self.invalid: set[type[FlagGroup]] = set()

    def run(self) -> None:
        while self.rest:
            argument = self.rest.popleft()
            if argument == "--":
                break
            if argument.startswith("--"):
                self.long(argument)
            elif argument.startswith("-") and argument != "-":
                self.short(argument)
            else:
                self.take_positional(argument)
        for argument in self.rest:
            self.take_positional(argument)

    def long(self, argument: str) -> None:
        name, equals, value = argument[2:].partition("=")
        # klog's flags are spelled with underscores; many manifests have hyphens instead.
        flag = self.flags.get(name) or self.flags.get(name.replace("-", "_"))
        if flag is not None:
            self.take(flag, value if equals else None)
        elif name == "help":
            raise HelpRequested
        else:
            self.unknown(f"--{name}", name)

    def short(self, argument: str) -> None:
        letter, value = argument[1], argument[2:]
        flag = self.shorthands.get(letter)
        if flag is not None:
            self.take(flag, value.removeprefix("=") if value else None)
        elif letter == "h":
            raise HelpRequested
        else:
            self.unknown(argument.partition("=")[0], argument[1:])

    def take_positional(self, argument: str) -> None:
        if self.positional_flag is None:
            self.positional.append(argument)
        else:
            self.take(self.positional_flag, argument)

    def take(self, flag: Flag[Any], text: str | None) -> None:
        if text is None and flag.type.name == "":
            text = "true"
        elif text is None:
            if not self.rest:
                example = f"--{flag.name}={flag.type.name.upper()}"
                self.refuse(f"--{flag.name}", f"needs a value: {example}")
                return
            text = self.rest.popleft()
        try:
            value = flag.type.parse(text)
        except ValueError as error:
            self.refuse(f"--{flag.name}={flag.type.redact(text)}", str(error))
            if not flag.ignored:
                self.invalid.add(self.targets[flag.name][0])
            return
        self.given.append(flag)
        if not flag.ignored:
            group, field = self.targets[flag.name]
            values = self.values[group]
            values[field] = values.get(field, ()) + value if flag.type.repeatable else value

    def unknown(self, spelled: str, name: str) -> None:
        near = difflib.get_close_matches(name.partition("=")[0], self.flags, n=1)
        hint = f"; did you mean --{near[0]}?" if near else ""
        self.refuse(spelled, f"unknown flag{hint}")

    def refuse(self, argument: str, fact: str) -> None:
        self.problems.append(Finding(subject=argument, fact=fact))
