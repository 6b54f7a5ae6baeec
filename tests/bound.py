"""Other bounds of the server for a test."""

from __future__ import annotations

import dataclasses

import pytest

from adapter import bounds


def limit(monkeypatch: pytest.MonkeyPatch, name: str, size: int) -> None:
    """Set the size of one bound until the test ends."""
    monkeypatch.setattr(bounds, name, dataclasses.replace(getattr(bounds, name), size=size))
