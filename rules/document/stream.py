"""Bytes or text -> libyaml's events, and every way in which that can fail as one `Refusal`.

libyaml's scanner is the one that gopkg.in/yaml.v2 was translated from, tabs and all; PyYAML's own
is another.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml


class Refusal(Exception):
    """The document as a whole cannot be read; `str()` says why."""

    def __init__(self, message: str, line: int, column: int, path: str = "") -> None:
        super().__init__(message)
        self.line, self.column, self.path = line, column, path


def decode(data: str | bytes) -> str:
    """The text without its byte order mark: UTF-8, or UTF-16 if the mark says so."""
    try:
        if isinstance(data, bytes):
            wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
            data = data.decode("utf-16" if wide else "utf-8")
        data.encode()
    except UnicodeDecodeError as error:
        raise _not_text(error, error.object[: error.start].decode("utf-8", "replace")) from error
    except UnicodeEncodeError as error:
        raise _not_text(error, error.object[: error.start]) from error
    return data.removeprefix("\ufeff")


def events(text: str) -> Iterator[yaml.Event]:
    """The events of the whole stream, made while they are asked for."""
    try:
        yield from yaml.parse(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        raise _marked(error, text) from error
    except yaml.reader.ReaderError as error:
        before = text.encode()[: error.position].decode(errors="ignore")
        raise Refusal(f"is not YAML: {error.reason}", *_end_of(before)) from error


def start(event: yaml.Event) -> tuple[int, int]:
    """Line and column of the event, from 1."""
    mark = event.start_mark
    assert mark is not None  # libyaml marks every event
    return mark.line + 1, mark.column + 1


def _not_text(error: UnicodeDecodeError | UnicodeEncodeError, before: str) -> Refusal:
    message = f"is not UTF-8 text ({error.reason}): save the file as UTF-8"
    return Refusal(message, *_end_of(before))


def _end_of(text: str) -> tuple[int, int]:
    return text.count("\n") + 1, len(text) - text.rfind("\n")


def _marked(error: yaml.MarkedYAMLError, text: str) -> Refusal:
    mark, begun = error.problem_mark, error.context_mark
    assert mark is not None  # libyaml marks every error of its scanner and parser
    since = ""
    if begun is not None and (begun.line, begun.column) != (mark.line, mark.column):
        since = f" ({error.context} that begins at {begun.line + 1}:{begun.column + 1})"
    advice = _advice(error.problem or "", text[mark.index : mark.index + 1])
    return Refusal(f"is not YAML: {error.problem}{since}{advice}", mark.line + 1, mark.column + 1)


def _advice(problem: str, character: str) -> str:
    match problem:
        case "found character that cannot start any token":
            if character == "\t":
                return ": indent with spaces, not with tabs"
            return f": quote text that begins with {character}"
        case "mapping values are not allowed in this context":
            return ': quote text that holds ": " or ends in ":", and check the indentation'
        case "found unexpected end of stream":
            return ": a quote is not closed"
        case "found unknown escape character":
            return ": between double quotes write \\\\ for a backslash, or use single quotes"
        case _:
            return ""
