from __future__ import annotations

import pytest

from rules.document import yaml
from rules.document.yaml import MappingNode, Scalar, SequenceNode


def _values(node: yaml.Node | None) -> object:
    """Return a node as dicts, lists and strings."""
    match node:
        case MappingNode():
            return {name: _values(entry.value) for name, entry in node.entries.items()}
        case SequenceNode():
            return [_values(item) for item in node.items]
        case Scalar():
            return node.value
    return None


def _load(text: str | bytes) -> object:
    node, problems = yaml.load(text, file="f")
    assert problems == ()
    return _values(node)


def _error(text: str | bytes) -> str:
    """Return the only problem of text that is not valid YAML."""
    node, (problem,) = yaml.load(text, file="f")
    assert node is None
    return str(problem)


def _scalar(text: str) -> Scalar:
    node, problems = yaml.load(f"- {text}\n", file="f")
    assert problems == ()
    assert isinstance(node, SequenceNode)
    (scalar,) = node.items
    assert isinstance(scalar, Scalar)
    return scalar


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a:\n- [b\nc: d", "f:3:2: error: invalid YAML: did not find expected ',' or ']' while"),
        ("a:\n- [b\nc: d", "while parsing a flow sequence that starts on line 2"),
        ("a: {b:[c]}", "f:1:7: error: invalid YAML: did not find expected ',' or '}': check"),
        ("a:\n- b: 'x\n", "a quoted scalar that starts on line 2: close the quotes"),
        ("a:\n\t- b", "f:2:1: error: invalid YAML: found character that cannot start any token"),
        ("a:\n\t- b", "indent with spaces, not with tabs"),
        ("a: `b`", "quote text that begins with `"),
        ("a: b: c", 'quote text that contains ": "'),
        ('a: "\\d"', "in double quotes write \\\\"),
        ("a: *b", "f:1:4: error: invalid YAML: found undefined alias 'b': define its anchor above"),
        ("a: &b [*b]", "f:1:8: error: invalid YAML: the value of &b contains *b"),
        ("<<: &b {<<: *b}", "the value of &b contains *b"),
        ("a:\n  b\x00", "f:2:4: error: invalid YAML: control characters are not allowed"),
        ("a: é\x01", "f:1:5: error: invalid YAML: control characters are not allowed"),
        (b"a:\n  \xff", "f:2:3: error: not UTF-8 text: save the file as UTF-8"),
        ("a: b".encode("utf-16"), "f:1:1: error: not UTF-8 text"),
    ],
)
def test_invalid_yaml_is_one_error_with_its_position(text, error):
    assert error in _error(text)


@pytest.mark.parametrize(
    "text",
    [
        "a: b",
        b"\xef\xbb\xbfa: b",
        "a:\r\n  b\r\n",
        "a:\t b",
        "%YAML 1.1\n---\na: b\n",
        "--- {a: b}\n...\n",
    ],
    ids=["plain", "byte-order-mark", "crlf", "tab", "directive", "markers"],
)
def test_line_ends_tabs_and_markers_do_not_matter(text):
    assert _load(text) == {"a": "b"}


@pytest.mark.parametrize("text", ["", "# nothing\n", "\n\n"])
def test_an_empty_file_has_no_document(text):
    assert yaml.load(text, file="f") == (None, ())


@pytest.mark.parametrize("rest", ["a: [", "- x", "@"])
def test_only_the_first_document_is_read_and_the_rest_is_a_warning(rest):
    node, (problem,) = yaml.load(f"a: b\n...\n{rest}\n", file="f")

    assert _values(node) == {"a": "b"}
    assert str(problem).startswith("f:3:1: warning: only the first YAML document is read")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"\'"', "'"),
        (r'"a\'\\\'b"', r"a'\'b"),
        (r"'a\'", "a\\"),
        (r"a\'b", r"a\'b"),
        ("[a:, b:]", ["a:", "b:"]),
        ("{is: ^job:}", {"is": "^job:"}),
        ("{is: a::, x: {y: z:}}", {"is": "a::", "x": {"y": "z:"}}),
        ('{"a":[b],\'c\':{"d":e}}', {"a": ["b"], "c": {"d": "e"}}),
        ("a:[b", "a:[b"),
    ],
)
def test_escaped_quotes_and_final_colons_are_read_as_in_the_original(text, value):
    assert _load(f"- {text}\n") == [value]


def test_a_final_colon_does_not_move_the_position_of_what_follows():
    assert _error("a: [x:, {b:[c]}]").startswith("f:1:12: ")


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("x", "str"),
        ("'5'", "str"),
        ("<<.Series>>", "str"),
        ("'null'", "str"),
        ('"~"', "str"),
        ("", "null"),
        ("~", "null"),
        ("Null", "null"),
        ("yes", "bool"),
        ("5", "int"),
        ("0x1F", "int"),
        ("9" * 5000, "int"),
        (".5", "float"),
        (".inf", "float"),
        ("2020-01-01", "timestamp"),
        ("!foo 5", "!foo"),
        ("!!str 5", "str"),
        ("!!bool 'yes'", "bool"),
    ],
)
def test_scalars_have_the_type_of_yaml_1_1(text, tag):
    assert _scalar(text).tag == tag


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x1F", "0x1F"),
        ("yes", "yes"),
        ("~", ""),
        ("'~'", "~"),
        ('"null"', "null"),
        ("!foo a", "a"),
    ],
)
def test_the_text_of_a_scalar_is_as_written(text, value):
    assert _scalar(text).text == value


@pytest.mark.parametrize(
    "text", ["!!int up", "!!null x", "!!int 1.5", "!!binary é", "!!binary aGk="]
)
def test_a_tag_that_does_not_fit_the_text_is_an_error(text):
    node, (problem,) = yaml.load(f"a: {text}", file="f")

    assert node is not None
    assert "does not fit" in str(problem)
    assert str(problem).endswith("remove the tag")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: 1\nb: 2\na: 3", "f:3:1: error: a: the key 'a' is already set on line 1"),
        ('x: {a: 1, "a": 2}', "f:1:11: error: x.a: the key 'a' is already set on line 1"),
        ("x: [{a: 1, a: 2}]", "f:1:12: error: x[0].a: the key 'a' is already set"),
        ("x: {[a]: 1}", "f:1:5: error: x: a key must be text"),
        ("!!int x: 1", "the tag !!int does not fit 'x'"),
        ("<<: x", "f:1:5: error: << must be a mapping, an alias of a mapping, or a list of these"),
        ("<<: [x]", "<< must be a mapping"),
    ],
)
def test_keys_must_be_text_and_occur_once(text, error):
    node, (problem,) = yaml.load(text, file="f")

    assert isinstance(node, MappingNode)
    assert error in str(problem)


@pytest.mark.parametrize(
    ("text", "merged"),
    [
        ("x: &x {a: 1}\ny: {<<: *x, b: 2}", {"a": "1", "b": "2"}),
        ("x: &x {a: 1}\ny: {<<: *x, a: 2}", {"a": "2"}),
        ("x: &x {a: 1}\ny: {a: 2, <<: *x}", {"a": "1"}),
        ("x: &x {a: {b: 1, c: 1}}\ny: {<<: *x, a: {c: 2}}", {"a": {"b": "1", "c": "2"}}),
        ("x: &x {a: {b: 1}}\ny: {<<: *x, a: ~}", {"a": "~"}),
        ("x:\ny: {<<: [{a: 1}, {a: 2}]}", {"a": "1"}),
        ("x:\ny: {'<<': {a: 1}}", {"<<": {"a": "1"}}),
    ],
)
def test_merge_keys_are_applied_in_the_order_of_the_file_as_in_the_original(text, merged):
    assert _load(text)["y"] == merged


def test_an_alias_means_the_latest_anchor_of_its_name():
    assert _load("[&a 1, *a, &a 2, *a]") == ["1", "1", "2", "2"]


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 5_000, "a: " + "{a: " * 101])
def test_depth_is_limited(text):
    assert "nested deeper than 100 levels" in _error(text)


def _bomb(levels: int, form: str) -> str:
    lines = ["x0: &x0 {a: b}"]
    for level in range(1, levels):
        aliases = ", ".join([f"*x{level - 1}"] * 10)
        lines.append(f"x{level}: &x{level} {form.format(aliases)}")
    return "\n".join(lines)


@pytest.mark.parametrize("form", ["[{}]", "{{<<: [{}]}}"], ids=["lists", "merges"])
def test_expansion_of_aliases_is_limited(form):
    assert "aliases expand to more than 1000000 values" in _error(_bomb(30, form))


def test_ordinary_aliases_are_within_the_limit():
    items = "\n".join("- *a" for _ in range(500))

    assert len(_load(f"- &a {{b: [c, d]}}\n{items}\n")) == 501
