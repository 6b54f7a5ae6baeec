"""The command line, taken apart as Go's pflag would take it.

`--flag=value`, `--flag value`, `--switch`, `--switch=false`, `-v=6`, `-v6`, `-v 6`; `--` ends the
flags; words that are no flags are ignored. Unlike pflag it goes on after a mistake, so that all of
them are told at once.
"""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from adapter.settings.flag import Flag, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One flag as it was given, once for each time."""

    flag: Flag
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """What was given, in order, and what could not be understood."""

    given: tuple[Given, ...]
    problems: tuple[str, ...]
    help: bool


def read(argv: Iterable[str], flags: Sequence[Flag]) -> CommandLine:
    reading = _Reading(argv, flags)
    reading.run()
    return CommandLine(
        given=tuple(reading.given), problems=tuple(reading.problems), help=reading.help
    )


def values(given: Iterable[Given], flags: Iterable[Flag]) -> Mapping[str, Value]:
    """One value for each flag: a list grows each time it is given, else the last time counts."""
    result = {flag.name: flag.initial() for flag in flags}
    grown = set[str]()
    for each in given:
        name, value = each.flag.name, each.value
        before = result[name]
        if name in grown and isinstance(before, tuple) and isinstance(value, tuple):
            value = before + value
        grown.add(name)
        result[name] = value
    return result


class _Reading:
    def __init__(self, argv: Iterable[str], flags: Sequence[Flag]) -> None:
        self.rest = deque(argv)
        self.flags = {flag.name: flag for flag in flags}
        self.short = {flag.shorthand: flag for flag in flags if flag.shorthand}
        self.given: list[Given] = []
        self.problems: list[str] = []
        self.help = False

    def run(self) -> None:
        while self.rest:
            word = self.rest.popleft()
            if word == "--":
                return
            if word.startswith("--"):
                self.long(word)
            elif word.startswith("-") and word != "-":
                self.shorthands(word)

    def long(self, word: str) -> None:
        name, equals, text = word[2:].partition("=")
        if not name or name.startswith("-"):
            self.problems.append(f"bad flag syntax: {word}")
            return
        # klog's old flags are spelled with underscores, and many manifests have hyphens instead.
        flag = self.flags.get(name) or self.flags.get(name.replace("-", "_"))
        if flag is not None:
            self.take(flag, f"--{name}", f"--{name}", text if equals else None)
        elif name == "help":
            self.help = True
        else:
            self.problems.append(f"unknown flag: --{name}{self.suggestion(name)}")

    def shorthands(self, word: str) -> None:
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            flag = self.short.get(letter)
            if flag is None:
                if letter != "h":
                    self.problems.append(
                        f"unknown shorthand flag: {letter!r} in {word}{self.suggestion(word[1:])}"
                    )
                    return
                self.help = True
            elif letters.startswith("=") and len(letters) > 1:
                self.take(flag, f"-{letter}", f"{letter!r} in {word}", letters[1:])
                return
            else:
                self.take(flag, f"-{letter}", f"{letter!r} in {word}", letters or None)
                return

    def take(self, flag: Flag, spelled: str, place: str, text: str | None) -> None:
        if text is None and flag.type == "bool":
            text = "true"
        if text is None:
            if not self.rest:
                self.problems.append(f"flag needs an argument: {place}")
                return
            text = self.rest.popleft()
        try:
            value = flag.read(text)
        except ValueError as error:
            self.problems.append(f'invalid argument "{text}" for {spelled}: {error}')
        else:
            self.given.append(Given(flag=flag, value=value))

    def suggestion(self, name: str) -> str:
        near = difflib.get_close_matches(name.partition("=")[0], self.flags, n=1)
        return f" (did you mean --{near[0]}?)" if near else ""
