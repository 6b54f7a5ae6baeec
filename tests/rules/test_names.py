from __future__ import annotations

import pytest

from rules import names


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("default", True),
        ("0", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("", False),
        ("*", False),
        ("-a", False),
        ("a-", False),
        ("a.b", False),
        ("A", False),
        ("a\n", False),
        ("é", False),
        ('a"} or b{c="', False),
    ],
)
def test_namespaces_are_dns_labels(name, valid):
    assert names.is_namespace(name) is valid


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("web-0.example.com", True),
        ("system:node:A_1", True),
        ("...", True),
        ("é" * 126, True),
        ("é" * 127, False),
        ("a" * 253, True),
        ("a" * 254, False),
        ("", False),
        (".", False),
        ("..", False),
        ("a/b", False),
        ("a%2fb", False),
        ("\udcff", False),
    ],
)
def test_names_of_objects_are_path_segments(name, valid):
    assert names.is_object_name(name) is valid
