"""Go's text/template with the delimiters `<<` and `>>`, the language of queries and label names.

Follows Go 1.26 for data of strings, lists and maps, without what no rules file uses: methods,
complex numbers, hexadecimal floats, capacities of slices, strings that are not UTF-8, names of Go
types and rare verbs of printf.

A template passes through `lexer`, `parser` (to a tree of `nodes`, with `literals`) and `execution`,
which evaluates pipelines with `functions` and `printf`. `analysis` checks the tree for fields that
the data does not have, and for uses of fields that it does have.
https://pkg.go.dev/text/template
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rules.template import analysis, execution, parser

MAX_STEPS = execution.MAX_STEPS
_ACTION = re.compile(r"<<.*?>>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Template:
    """Parsed template."""

    source: str
    share: float = 1.0
    """Of the limits of time that a rendering has."""
    _parsed: parser.ParsedTemplate = field(repr=False)

    def render(self, data: Mapping[str, object]) -> str:
        """Return the text for this data: fields of type str, list or tuple of str, or dict of str.

        Raises TemplateExecError, also beyond the limits of time, size and recursion.
        """
        return execution.render(self._parsed, data, share=self.share)

    def unknown_fields(self, known: Mapping[str, type]) -> list[analysis.FieldUse]:
        """Return the fields in the template that data with these fields and types cannot have."""
        return analysis.unknown_fields(self._parsed, known)

    def text_only(self) -> str:
        """Return the source with spaces in the place of its actions."""
        return _ACTION.sub(lambda match: " " * len(match[0]), self.source)

    def reads(self, names: Collection[str]) -> list[analysis.FieldUse]:
        """Return where the template does more with these fields than to write them out."""
        return analysis.reads(self._parsed, names)


def parse(source: str, *, name: str = "metrics-query", share: float = 1.0) -> Template:
    """Parse a template, which can invoke itself as `name`. Raises TemplateSyntaxError."""
    return Template(source=source, share=share, _parsed=parser.parse(source, name))
