"""YAML encoding of API documents, as sigs.k8s.io/yaml writes it.

libyaml, from which Go's YAML library is translated, writes the text; this module sorts the keys and
decides which strings are quoted.

https://github.com/yaml/go-yaml/blob/v2.4.0/resolve.go
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

_CORE = "tag:yaml.org,2002:"
_MAPPING, _SEQUENCE, _TEXT = _CORE + "map", _CORE + "seq", _CORE + "str"
_SURROGATE = re.compile("[\ud800-\udfff]")
_RUN = re.compile(r"\d+|.", re.DOTALL)
_WORDS = ("~", "null", "y", "n", "yes", "no", "on", "off", "true", "false", ".nan", "+.inf")
_NOT_TEXT = re.compile(
    rf"""
    (?:{"|".join(re.escape(form) for word in _WORDS for form in (word, word.title(), word.upper()))}
    | | \.NaN | -?\.(?:inf|Inf|INF)
    | [-+]?(?:0b[01_]+ | 0o[0-7_]+ | 0x[0-9a-fA-F_]+ | [0-9][0-9_]*)
    | [-+]?(?:\._*[0-9][0-9_]* | [0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9_]+)?
    | [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?
    | [0-9]{{4}}-[0-9]{{1,2}}-[0-9]{{1,2}}(?:(?:[Tt]|[ ]+)[0-9]{{1,2}}:[0-9.:]+[ ]*[Zz]?)?
    )""",
    re.VERBOSE,
)
"""Plain scalars that a parser would not read as text: numbers, times, words such as `yes`."""


class _Dumper(yaml.CSafeDumper):
    """Dumper that sorts, quotes and wraps like Go's library, and writes no anchors."""

    # Every scalar is represented as text, plain or quoted; PyYAML would quote other words.
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML declares it so

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - as PyYAML declares it
        return True


def encode(document: Mapping[str, Any]) -> bytes:
    """Encode a document; bytes that are not UTF-8 become U+FFFD."""
    text: bytes = yaml.dump(document, Dumper=_Dumper, allow_unicode=True, encoding="utf-8")
    # libyaml ends the document explicitly if its last string ends with empty lines.
    return text.removesuffix(b"...\n") if text.endswith(b"\n...\n") else text


def _mapping(dumper: _Dumper, mapping: Mapping[str, Any]) -> yaml.Node:
    pairs = sorted(mapping.items(), key=lambda pair: _order(pair[0]))
    return dumper.represent_mapping(_MAPPING, pairs, flow_style=not pairs)


def _sequence(dumper: _Dumper, sequence: Sequence[Any]) -> yaml.Node:
    return dumper.represent_sequence(_SEQUENCE, sequence, flow_style=not sequence)


def _string(dumper: _Dumper, text: str) -> yaml.Node:
    text = _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
    if "\n" in text:
        return dumper.represent_scalar(_TEXT, text, style="|")
    return dumper.represent_scalar(_TEXT, text, style='"' if _NOT_TEXT.fullmatch(text) else None)


def _plain(dumper: _Dumper, value: object) -> yaml.Node:
    return dumper.represent_scalar(_TEXT, json.dumps(value))


_Dumper.add_representer(dict, _mapping)
_Dumper.add_representer(list, _sequence)
_Dumper.add_representer(tuple, _sequence)
_Dumper.add_representer(str, _string)
for _type in (type(None), bool, int, float):
    _Dumper.add_representer(_type, _plain)


def _order(key: str) -> list[tuple[int, int, int]]:
    """Return the sort key of a mapping's key: digits count as numbers and come before letters."""
    return [
        (1, int(run), len(run)) if run.isdecimal() else (2 if run.isalpha() else 0, ord(run), 0)
        for run in _RUN.findall(key)
    ]
