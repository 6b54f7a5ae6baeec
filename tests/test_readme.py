"""README.md agrees with the code, the Makefile and the files."""

from __future__ import annotations

import re

from tests import readme


def test_generated_parts_are_current() -> None:
    text = readme.README.read_text(encoding="utf-8")

    assert readme.regenerated(text) == text, "run `make fix`"


def test_every_make_target_in_it_exists() -> None:
    text = readme.README.read_text(encoding="utf-8")
    makefile = (readme.README.parent / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))

    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets


def test_every_file_in_it_exists() -> None:
    text = readme.README.read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:adapter|rules|certs|tests|manifests)/[\w./-]*)`", text))

    assert not {path for path in paths if not (readme.README.parent / path).exists()}
