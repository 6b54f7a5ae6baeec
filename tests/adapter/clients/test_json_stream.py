from __future__ import annotations

import json

import hypothesis
import orjson
import pytest
from hypothesis import strategies as st

from adapter.clients import json_stream

LABELS = st.dictionaries(st.text(max_size=5), st.text(max_size=8), max_size=4)
NUMBERS = st.integers(-(2**63), 2**64 - 1)
"""Others are no integers to orjson."""


def read(document: bytes, cuts: list[int], *, longest: int = 1 << 20) -> tuple[list, dict]:
    """The elements and the rest, fed in pieces that end at `cuts`."""
    array = json_stream.ObjectArray("data", longest=longest)
    ends = sorted({min(cut, len(document)) for cut in cuts} | {len(document)})
    elements = []
    begin = 0
    for end in ends:
        elements += array.feed(document[begin:end])
        begin = end
    return elements, array.close()


@hypothesis.given(
    elements=st.lists(LABELS, max_size=5),
    before=st.dictionaries(st.text(max_size=5), st.none() | st.lists(LABELS, max_size=2)),
    after=st.dictionaries(st.text(max_size=5), NUMBERS | st.lists(st.text(max_size=3))),
    indent=st.none() | st.integers(0, 2),
    ascii_only=st.booleans(),
    cuts=st.lists(st.integers(0, 400)),
)
def test_elements_and_the_rest_come_out_however_the_bytes_are_cut(
    elements, before, after, indent, ascii_only, cuts
):
    rest = {key: value for key, value in {**before, **after}.items() if key != "data"}
    document = {**{key: rest[key] for key in before if key in rest}, "data": elements, **rest}
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)

    found, envelope = read(text.encode(), cuts)

    assert found == elements
    assert envelope == {**rest, "data": []}


def test_data_of_another_name_or_depth_is_not_taken():
    document = {"x": {"data": [{"a": "b"}]}, "y": [{"data": "data"}], "status": "data"}

    found, envelope = read(orjson.dumps(document), [])

    assert (found, envelope) == ([], document)


def test_only_one_element_is_held():
    array = json_stream.ObjectArray("data", longest=1000)
    element = orjson.dumps({"a": "b" * 500})

    found = list(array.feed(b'{"data":[' + b",".join([element] * 100)))
    found += array.feed(b"]}")

    assert len(found) == 100
    assert array.close() == {"data": []}


@pytest.mark.parametrize(
    "endless",
    [b'{"data":[{"a":"' + b"b" * 2000, b'{"data":[{' + b"1," * 1000, b" " * 2000, b'"' * 2001],
    ids=["string", "element", "blank", "strings"],
)
def test_what_does_not_end_is_malformed(endless):
    with pytest.raises(json_stream.MalformedError):
        read(endless, [], longest=1000)


@pytest.mark.parametrize("document", ['{"data":[{"a":{}}]}', '{"data":[1]}', '{"data":[[]]}', "[]"])
def test_what_has_another_shape_is_malformed(document):
    with pytest.raises(json_stream.MalformedError):
        read(document.encode(), [])
