"""The API groups that are served: a module each, with its OpenAPI documents as JSON beside it."""

from __future__ import annotations

from adapter.api.groups import custom, external
from adapter.api.groups.group import Group

GROUPS: tuple[Group, ...] = (custom, external)
"""In the order of discovery."""
