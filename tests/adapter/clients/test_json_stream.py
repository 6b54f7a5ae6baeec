from __future__ import annotations

import json
import tracemalloc

import hypothesis
import orjson
import pytest
from hypothesis import strategies as st

from adapter import errors
from adapter.clients import json_stream

NUMBERS = st.integers(-(2**63), 2**64 - 1)
"""The integers that orjson parses."""
LABELS = st.dictionaries(st.text(max_size=5), st.text(max_size=8), max_size=4)
ELEMENTS = LABELS | st.recursive(
    st.none()
    | st.booleans()
    | NUMBERS
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


def parse(document: bytes, cuts: list[int]) -> tuple[list, dict]:
    """Feed the document in chunks that end at `cuts`; return the elements and the rest."""
    array = json_stream.ArrayParser("data")
    ends = sorted({min(cut, len(document)) for cut in cuts} | {len(document)})
    elements = []
    begin = 0
    for end in ends:
        elements += array.feed(document[begin:end])
        begin = end
    return elements, array.close()


@pytest.mark.slow
@hypothesis.given(
    elements=st.lists(ELEMENTS, max_size=5),
    before=st.dictionaries(st.text(max_size=5), st.none() | st.lists(LABELS, max_size=2)),
    after=st.dictionaries(st.text(max_size=5), NUMBERS | st.lists(st.text(max_size=3))),
    indent=st.none() | st.integers(0, 2),
    separators=st.sampled_from([None, (",", ":")]),
    ascii_only=st.booleans(),
    cuts=st.lists(st.integers(0, 400)),
)
def test_result_does_not_depend_on_the_chunks(
    elements, before, after, indent, separators, ascii_only, cuts
):
    rest = {key: value for key, value in {**before, **after}.items() if key != "data"}
    document = {**{key: rest[key] for key in before if key in rest}, "data": elements, **rest}
    text = json.dumps(document, indent=indent, separators=separators, ensure_ascii=ascii_only)

    parsed, envelope = parse(text.encode(), cuts)

    assert parsed == elements
    assert envelope == {**rest, "data": []}


@pytest.mark.slow
def test_end_and_beginning_of_an_object_inside_an_element_do_not_separate_elements():
    elements = [{"a": "},{"}, {"b": [{}, {"c": "d"}]}, {"e": '"},{"'}, {}, {}]
    document = orjson.dumps({"data": elements, "warnings": [{"f": "},{"}, {}]})

    for begin in range(len(document)):
        for end in range(begin, len(document)):
            parsed, envelope = parse(document, [begin, end])
            assert (parsed, envelope["warnings"]) == (elements, [{"f": "},{"}, {}])


def test_arrays_at_other_keys_or_depths_stay_in_the_rest():
    document = {"x": {"data": [{"a": "b"}]}, "y": [{"data": "data"}], "status": "data"}

    parsed, envelope = parse(orjson.dumps(document), [])

    assert (parsed, envelope) == ([], document)


def test_only_one_element_is_held(monkeypatch):
    monkeypatch.setattr(json_stream, "_MAX_PENDING", 1000)
    array = json_stream.ArrayParser("data")
    element = orjson.dumps({"a": "b" * 500})

    elements = list(array.feed(b'{"data":[' + b",".join([element] * 100)))
    elements += array.feed(b"]}")

    assert len(elements) == 100
    assert array.close() == {"data": []}


@pytest.mark.parametrize(
    "endless",
    [b'{"data":[{"a":"' + b"b" * 2000, b'{"data":[{' + b"1," * 1000, b" " * 2000, b'"' * 2001],
    ids=["string", "element", "blank", "strings"],
)
def test_oversized_element_is_malformed(monkeypatch, endless):
    monkeypatch.setattr(json_stream, "_MAX_PENDING", 1000)

    with pytest.raises(errors.Broken):
        parse(endless, [])


LONG = [
    {"a": "b" * 2000},
    {"a": '"{\\' * 800, "b": [{"c": "}"}, [], {}]},
    {"a": ["x"] * 700, "b": {}},
]


@hypothesis.given(
    elements=st.lists(LABELS | st.sampled_from(LONG), max_size=6),
    indent=st.none() | st.integers(0, 2),
    cuts=st.lists(st.integers(0, 9000), max_size=40),
)
def test_an_object_that_is_too_long_is_left_out_alone(elements, indent, cuts):
    text = json.dumps({"data": elements, "end": [1]}, indent=indent).encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_stream, "_MAX_PENDING", 1000)

        parsed, envelope = parse(text, [*range(0, len(text), 7), *cuts])

    assert parsed == [each for each in elements if each not in LONG]
    assert envelope == {"data": [], "end": [1]}


def test_an_object_that_is_too_long_is_logged_and_takes_no_memory(caplog):
    array = json_stream.ArrayParser("data")
    array.feed(b'{"data":[{"a":"b"},{"c":"')
    tracemalloc.start()

    for _ in range(200):
        assert array.feed(b"x" * (1 << 16)) == []
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert array.feed(b'"},{"d":"e"}]}') == [{"d": "e"}]
    assert used < 5 << 20  # of 12.5 MiB
    (record,) = caplog.records
    assert "is longer than 1048576 bytes and is left out" in record.message


NESTED = b"[" * json_stream._MAX_NESTING + b"]" * json_stream._MAX_NESTING


def test_elements_may_be_nested():
    assert parse(b'{"data":[' + NESTED + b"]}", [])[0] == [orjson.loads(NESTED)]


@pytest.mark.parametrize(
    "document",
    [
        "[]",
        "1",
        "",
        '{"data":[}',
        '{"data":[:]}',
        '{"data":[1 2]}',
        '{"data":["a"x]}',
        '{"data":[NaN]}',
        '{"data":[{]}]}',
        f'{{"data":[[{NESTED.decode()}]]}}',
    ],
)
def test_other_shapes_are_malformed(document):
    with pytest.raises(errors.Broken):
        parse(document.encode(), [])
