"""README.md says what the program does."""

from __future__ import annotations

import re

from tests import readme


def test_generated_parts_agree_with_the_program() -> None:
    text = readme.README.read_text(encoding="utf-8")

    assert readme.written(text) == text, "run `make fix`"


def test_every_make_target_that_it_names_exists() -> None:
    text = readme.README.read_text(encoding="utf-8")
    makefile = (readme.README.parent / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))

    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets


def test_every_file_that_it_names_exists() -> None:
    text = readme.README.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:adapter|rules|certs|tests|manifests)/[\w./-]*)`", text))

    assert not {name for name in named if not (readme.README.parent / name).exists()}
