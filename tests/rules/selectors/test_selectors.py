"""What selectors match, and what the golden cases of selectors.json lack."""

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
REQUIREMENT = "unable to parse requirement: "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a>-x",
            REQUIREMENT + "[values[0]: Invalid value: \"-x\": for 'Gt', 'Lt' operators, the value"
            f' must be an integer, values[0][a]: Invalid value: "-x": {VALUE_MUST}]',
        ),
        (
            "a=" + "é" * 32,
            REQUIREMENT
            + f'values[0][a]: Invalid value: "{"é" * 32}": must be no more than 63 bytes;'
            f" {VALUE_MUST}",
        ),
        ("a=\udcff", REQUIREMENT + rf'values[0][a]: Invalid value: "\xff": {VALUE_MUST}'),
    ],
)
def test_invalid_selector_is_refused_in_the_words_of_kubernetes(text, message):
    with pytest.raises(SelectorError) as error:
        selectors.parse(text)

    assert str(error.value) == message


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


def test_inequality_becomes_a_not_in_of_a_label_selector_object():
    assert selectors.label_selector(selectors.parse("a!=b")) == {
        "matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]
    }


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
        for _ in range(500):
            message_of("(" * size)

    assert effort.growth(read, 8192) < 0.6  # 1 if each text was split into tokens first
