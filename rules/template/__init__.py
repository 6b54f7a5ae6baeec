"""Go's text/template with the delimiters `<<` and `>>`: the language of a rules file's queries.

All of Go 1.26's syntax, functions and rules for values, for data that is text, lists and maps: no
methods. A rendering is bounded in time, size and depth. https://pkg.go.dev/text/template
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rules import errors
from rules.template import fields, nodes, parser, program
from rules.template.fields import UnknownField
from rules.template.values import LABEL_FIELDS, QUERY_FIELDS

__all__ = ["LABEL_FIELDS", "QUERY_FIELDS", "Template", "UnknownField", "parse"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Template:
    """A parsed template."""

    source: str
    root: nodes.Body
    """What is rendered."""
    defined: Mapping[str, nodes.Body]
    """The bodies of every `define` and `block`, and the root, by name."""
    _program: program.Program = field(repr=False)

    def render(self, data: Mapping[str, object]) -> str:
        """The text for this data: `str`, a list or tuple of `str`, or a dict of `str` by each name.

        Bytes that are not UTF-8, which only a template itself can make (`slice "é" 1`), come out as
        `surrogateescape` has them. Raises TemplateExecError, also for data of other types, for more
        than 1 MiB of text, and for a template that takes too many steps.
        """
        return self._program.render(data)

    def unknown_fields(self, known: Mapping[str, type]) -> list[UnknownField]:
        """The fields that data of these types cannot have, wherever they stand in the template."""
        return fields.unknown(self.root, self.defined, known)


def parse(source: str, *, name: str = "metrics-query") -> Template:
    """Parse a template; `name` is what it may invoke itself by. Raises TemplateSyntaxError."""
    try:
        source.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise errors.TemplateSyntaxError(
            "the template is no Unicode text", source=source, offset=error.start
        ) from error
    parsed = parser.parse(source, name)
    return Template(
        source=source,
        root=parsed.root,
        defined=parsed.defined,
        _program=program.Program(source, parsed.root, parsed.defined),
    )
