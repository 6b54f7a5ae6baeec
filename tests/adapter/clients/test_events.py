from __future__ import annotations

import pytest

from adapter.clients.events import event_name
from rules.names import is_subdomain

DIGEST = "0123456789abcdef" * 4


@pytest.mark.parametrize("name", ["web", "a" * 236, "a" * 253, "a" * 235 + ".b", "a" * 234 + "--b"])
def test_an_event_about_an_object_of_any_name_has_a_valid_name(name: str) -> None:
    found = event_name(name, DIGEST)

    assert is_subdomain(found)
    assert found.endswith(".0123456789abcdef")
    assert found.startswith(name[:234].rstrip("-"))
