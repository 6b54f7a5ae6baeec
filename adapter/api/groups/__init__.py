"""The API groups that are served: one module each, of the shape that `group.Group` describes."""

from __future__ import annotations

from adapter.api.groups import custom, external
from adapter.api.groups.group import Group

GROUPS: tuple[Group, ...] = (custom, external)
"""In the order in which discovery lists them."""
