from __future__ import annotations

import pytest

from rules.document import yaml
from rules.document.scalars import Scalar
from rules.document.yaml import Items, Table


def _plain(node: yaml.Node | None) -> object:
    match node:
        case Table():
            return [(entry.name, _plain(entry.value)) for entry in node.entries]
        case Items():
            return [_plain(item) for item in node.items]
        case Scalar():
            return node.value
    return None


def _refusal(text: str | bytes) -> str:
    node, problems = yaml.load(text, file="f")
    (problem,) = problems
    assert node is None
    return str(problem)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: [b", "f:2:1: error: a[1]: is not YAML: did not find expected ',' or ']'"),
        ("a:\n- b: 'x\n", "a quote is not closed"),
        ("a:\n\t- b", "f:2:1: error: a: is not YAML: found character that cannot start any token"),
        ("a:\n\t- b", "indent with spaces, not with tabs"),
        ("a: `b`", "quote text that begins with `"),
        ("a: b: c", 'quote text that holds ": "'),
        ('a: "\\d"', "between double quotes write \\\\"),
        ("a: *b", "f:1:4: error: a: the alias *b stands for no anchor &b above it"),
        ("a: &b [*b]", "the value of &b contains itself"),
        ("<<: &b {<<: *b}", "the value of &b contains itself"),
        ("a: {b: c?d}", "quote 'c?d', since ? has a meaning inside {}"),
        ("%YAML 1.2\n---\na: b", "asks for another YAML than 1.1"),
        ("a:\n  b\x00", "f:2:4: error: is not YAML: control characters are not allowed"),
        ("a: é\x01", "f:1:5: error: is not YAML: control characters are not allowed"),
        ("a: \ud800", "f:1:4: error: is not UTF-8 text (surrogates not allowed)"),
        (b"a:\n  \xff", "f:2:3: error: is not UTF-8 text (invalid start byte)"),
        (b"\xff\xfea", "is not UTF-8 text (truncated data)"),
    ],
)
def test_what_is_not_yaml_is_one_problem(text, error):
    assert error in _refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "a: b",
        "\ufeffa: b",
        b"\xef\xbb\xbfa: b",
        "a: b".encode("utf-16"),
        "a:\r\n  b\r\n",
        "a:\t b",
        "%YAML 1.1\n---\na: b\n",
        "--- {a: b}\n...\n",
    ],
    ids=["plain", "bom", "utf-8 bom", "utf-16", "crlf", "tab", "directive", "markers"],
)
def test_encodings_line_ends_and_markers_make_no_difference(text):
    node, problems = yaml.load(text, file="f")

    assert _plain(node) == [("a", "b")]
    assert problems == ()


@pytest.mark.parametrize("text", ["", "# nothing\n", "\n\n"])
def test_an_empty_file_has_no_document(text):
    assert yaml.load(text, file="f") == (None, ())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: 1\nb: 2\na: 3", "f:3:1: error: a: the key 'a' is already set on line 1"),
        ('x: {a: 1, "a": 2}', "f:1:11: error: x.a: the key 'a' is already set on line 1"),
        ("x: [{a: 1, a: 2}]", "f:1:12: error: x[0].a: the key 'a' is already set"),
        ("x: {[a]: 1}", "f:1:5: error: x: a key must be text"),
        ("!!int x: 1", "'x' is no int, as its tag says"),
        ("<<: x", "<<: takes a mapping, an alias of one, or a list of these"),
        ("<<: [x]", "<<: takes a mapping"),
        ("x: &x [{a: 1}]\ny: {<<: *x}", "f:1:4: error: y: <<: takes a mapping"),
    ],
)
def test_keys_must_be_text_and_occur_once(text, error):
    node, (problem,) = yaml.load(text, file="f")

    assert isinstance(node, Table)
    assert error in str(problem)


@pytest.mark.parametrize(
    ("text", "merged"),
    [
        ("x: &x {a: 1}\ny: {<<: *x, b: 2}", [("a", "1"), ("b", "2")]),
        ("x: &x {a: 1}\ny: {a: 2, <<: *x}", [("a", "2"), ("a", "1")]),
        ("x:\ny: {<<: [{a: 1}, {a: 2}]}", [("a", "2"), ("a", "1")]),
        ("x:\ny: {!!merge <<: {a: 1}}", [("a", "1")]),
        ("x:\ny: {'<<': {a: 1}}", [("<<", [("a", "1")])]),
    ],
)
def test_merges_are_laid_out_in_the_order_in_which_they_apply(text, merged):
    node, problems = yaml.load(text, file="f")

    assert isinstance(node, Table)
    assert _plain(node.entries[1].value) == merged
    assert problems == ()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "- " * 5_000,
        "a: " + "{a: " * 101,
        "\n".join(f"- &a{i} [*a{i - 1}]" if i else "- &a0 [x]" for i in range(200)),
    ],
    ids=["flow", "block", "mappings", "aliases"],
)
def test_nesting_is_bounded(text):
    assert "nests deeper than 100 levels" in _refusal(text)


def _bomb(levels: int, form: str) -> str:
    lines = ["x0: &x0 {a: b}"]
    for level in range(1, levels):
        aliases = ", ".join([f"*x{level - 1}"] * 10)
        lines.append(f"x{level}: &x{level} {form.format(aliases)}")
    return "\n".join(lines)


@pytest.mark.parametrize("form", ["[{}]", "{{<<: [{}]}}"], ids=["lists", "merges"])
def test_aliases_cannot_multiply_a_document_beyond_reason(form):
    assert "its aliases multiply the document beyond reason" in _refusal(_bomb(12, form))


def test_many_aliases_of_something_small_are_no_bomb():
    node, problems = yaml.load(_bomb(3, "[{}]") + "\ny: [1, 2, *x1]", file="f")

    assert isinstance(node, Table)
    assert problems == ()


def test_a_large_file_may_repeat_itself_as_far_as_the_original_lets_it():
    items = "\n".join("- *a" for _ in range(500))

    node, problems = yaml.load(f"- &a {{b: [c, d]}}\n{items}\n", file="f")

    assert isinstance(node, Items)
    assert len(node.items) == 501
    assert problems == ()
