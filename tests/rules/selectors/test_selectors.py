from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.errors import SelectorError
from rules.selectors import selectors
from rules.selectors.selectors import Requirement, Selector
from tests import effort

WORD_MUST = (
    "consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character"
)
VALUE_MUST = (
    f"a valid label must be an empty string or {WORD_MUST} (e.g. 'MyValue',  or 'my_value',"
    "  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
NAME_MUST = (
    f"must {WORD_MUST} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation"
    " is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
PREFIX_MUST = (
    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters,"
    " '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex"
    r" used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
REQUIREMENT = "unable to parse requirement: "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a===b", REQUIREMENT + "found '=', expected: identifier"),
        ("a=b,", "found '', expected: identifier after ','"),
        (",a=b", "found ',', expected: !, identifier, or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a b", REQUIREMENT + "found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a!", REQUIREMENT + "found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("a gt 1", REQUIREMENT + "found 'gt', expected: in, notin, =, ==, !=, gt, lt"),
        ("!", REQUIREMENT + "found '', expected: identifier"),
        ("a in x", REQUIREMENT + "found 'x' expected: '('"),
        ("a in", REQUIREMENT + "found '' expected: '('"),
        ("a in (", REQUIREMENT + "found '', expected: ',', ')' or identifier"),
        ("a in (x", REQUIREMENT + "found '', expected: ',' or ')'"),
        ("a in (x,", REQUIREMENT + "found '', expected: ',', or identifier"),
        ("a in (,,)", REQUIREMENT + "found ')', expected: ',', or identifier"),
        (
            "a>x",
            REQUIREMENT + 'values[0]: Invalid value: "x":'
            " for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        (
            "a<9223372036854775808",
            REQUIREMENT + 'values[0]: Invalid value: "9223372036854775808":'
            " for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        (
            "a>-x",
            REQUIREMENT + "[values[0]: Invalid value: \"-x\": for 'Gt', 'Lt' operators, the value"
            f' must be an integer, values[0][a]: Invalid value: "-x": {VALUE_MUST}]',
        ),
        ("a>+1", REQUIREMENT + f'values[0][a]: Invalid value: "+1": {VALUE_MUST}'),
        ("a=-bad", REQUIREMENT + f'values[0][a]: Invalid value: "-bad": {VALUE_MUST}'),
        (
            "a in (b,c-,é)",
            REQUIREMENT + f'[values[1][a]: Invalid value: "c-": {VALUE_MUST},'
            f' values[2][a]: Invalid value: "é": {VALUE_MUST}]',
        ),
        ("-bad=1", REQUIREMENT + f'<nil>: Invalid value: "-bad": name part {NAME_MUST}'),
        (
            "a=" + "x" * 64,
            REQUIREMENT
            + f'values[0][a]: Invalid value: "{"x" * 64}": must be no more than 63 bytes',
        ),
        (
            "a=" + "é" * 32,
            REQUIREMENT
            + f'values[0][a]: Invalid value: "{"é" * 32}": must be no more than 63 bytes;'
            f" {VALUE_MUST}",
        ),
        (
            "x" * 64,
            REQUIREMENT
            + f'<nil>: Invalid value: "{"x" * 64}": name part must be no more than 63 bytes',
        ),
        (
            "d" * 254 + "/a",
            REQUIREMENT + f'<nil>: Invalid value: "{"d" * 254}/a":'
            " prefix part must be no more than 253 bytes",
        ),
        (
            "/",
            REQUIREMENT + '<nil>: Invalid value: "/": prefix part must be non-empty;'
            f" name part must be non-empty; name part {NAME_MUST}",
        ),
        ("E.com/a", REQUIREMENT + f'<nil>: Invalid value: "E.com/a": {PREFIX_MUST}'),
        (
            "a/b/c",
            REQUIREMENT + f'<nil>: Invalid value: "a/b/c": a valid label key {NAME_MUST} with an'
            " optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        ),
        ("a=\udcff", REQUIREMENT + rf'values[0][a]: Invalid value: "\xff": {VALUE_MUST}'),
    ],
)
def test_invalid_selector_is_refused_in_the_words_of_kubernetes(text, message):
    with pytest.raises(SelectorError) as error:
        selectors.parse(text)

    assert str(error.value) == message


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (" \t\r\n", ""),
        ("z , !y,  x=1", "x=1,!y,z"),
        ("a==b,a=c,a!=d", "a==b,a=c,a!=d"),
        ("a in (c,b,c)", "a in (b,c)"),
        ("a notin ( x )", "a notin (x)"),
        ("a in ()", "a in ()"),
        ("a in (,)", "a in ()"),
        ("a in (b,)", "a in (,b)"),
        ("a in (b,,c)", "a in (,b,c)"),
        ("in in (in,notin)", "in in (in,notin)"),
        ("notin notin(in)", "notin notin (in)"),
        ("a=,b", "a=,b"),
        ("n>1,m<22", "m<22,n>1"),
        ("a\0=b", "a=b"),  # Go's lexer takes a NUL byte for the end of a word
        ("a=b\0\0,c", "a=b"),
    ],
)
def test_selector_has_a_canonical_form(text, canonical):
    assert str(selectors.parse(text)) == canonical
    assert selectors.parse(text).empty is (canonical == "")


LABELS = {"app": "web", "empty": "", "size": "7", "big": "9223372036854775808"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app", True),
        ("!app", False),
        ("nope", False),
        ("!nope", True),
        ("app=web", True),
        ("app==api", False),
        ("nope=", False),
        ("empty=", True),
        ("app!=api", True),
        ("app!=web", False),
        ("nope!=web", True),
        ("app in (api,web)", True),
        ("nope in (,web)", False),
        ("app notin (api,web)", False),
        ("nope notin (web)", True),
        ("size>6", True),
        ("size>7", False),
        ("size<8", True),
        ("size<7", False),
        ("nope>6", False),
        ("app>6", False),
        ("big>6", False),
        ("app=web,size>9", False),
    ],
)
def test_selector_matches_labels_as_in_kubernetes(text, matches):
    assert selectors.parse(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("", None),
        ("a=b,c==d", {"matchLabels": {"a": "b", "c": "d"}}),
        ("a=b,a=c", {"matchLabels": {"a": "c"}}),
        (
            "a!=b",
            {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]},
        ),
        (
            "d in (y,x),c notin (z),b,!a,e=",
            {
                "matchLabels": {"e": ""},
                "matchExpressions": [
                    {"key": "a", "operator": "DoesNotExist"},
                    {"key": "b", "operator": "Exists"},
                    {"key": "c", "operator": "NotIn", "values": ["z"]},
                    {"key": "d", "operator": "In", "values": ["x", "y"]},
                ],
            },
        ),
    ],
)
def test_selector_becomes_a_label_selector_object(text, document):
    assert selectors.label_selector(selectors.parse(text)) == document


@pytest.mark.parametrize(("text", "operator"), [("a>1", "gt"), ("a<1", "lt")])
def test_comparison_cannot_become_a_label_selector_object(text, operator):
    with pytest.raises(SelectorError, match=f'"{operator}" isn\'t supported in label selectors'):
        selectors.label_selector(selectors.parse(text))


WORDS = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,4}[A-Za-z0-9])?", fullmatch=True)
KEYS = st.builds(
    lambda prefix, name: prefix + name, st.sampled_from(["", "gpu.example.com/"]), WORDS
)
VALUES = st.one_of(st.just(""), WORDS)
NUMBERS = st.integers(0, 2**63 - 1).map(str)


def _requirement(key, operator, values):
    return Requirement(key=key, operator=operator, values=tuple(sorted(values)))


REQUIREMENTS = st.one_of(
    st.builds(_requirement, KEYS, st.sampled_from(["exists", "!"]), st.just(())),
    st.builds(_requirement, KEYS, st.sampled_from(["=", "==", "!="]), st.tuples(VALUES)),
    st.builds(_requirement, KEYS, st.sampled_from(["gt", "lt"]), st.tuples(NUMBERS)),
    st.builds(
        _requirement,
        KEYS,
        st.sampled_from(["in", "notin"]),
        st.sets(VALUES, min_size=1, max_size=4),
    ),
)


@given(st.lists(REQUIREMENTS, max_size=4))
def test_canonical_form_parses_to_the_same_selector(requirements):
    requirements.sort(key=lambda requirement: requirement.key)
    selector = Selector(requirements=tuple(requirements))

    assert selectors.parse(str(selector)) == selector


@given(st.text("ab/.-_=!(),<> \t\0é1in", max_size=16))
def test_any_text_is_a_selector_with_a_canonical_form_or_a_selector_error(text):
    try:
        selector = selectors.parse(text)
    except SelectorError:
        return

    assert selectors.parse(str(selector)) == selector


def test_equal_selectors_have_equal_hashes():
    assert len({selectors.parse("a=b , c"), selectors.parse("c,a=b")}) == 1


def message_of(text):
    with pytest.raises(SelectorError) as raised:
        selectors.parse(text)
    return str(raised.value)


def test_a_message_repeats_the_start_of_a_long_key_only():
    assert len(message_of("/" + "\udcff" * 60_000)) < 5000


def test_a_message_lists_the_problems_of_20_values():
    values = ",".join(f"-{number:02}" for number in range(30))

    assert message_of(f"a in ({values})").count("Invalid value") == 20


def test_a_long_selector_is_read_only_up_to_its_first_error():
    def read(size):
        for _ in range(50):
            message_of("(" * size)

    assert effort.growth(read, 8192) < 0.6  # 1 if each text was split into tokens first
