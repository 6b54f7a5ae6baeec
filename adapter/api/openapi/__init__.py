"""The OpenAPI documents of the served groups: what their URLs and objects look like.

They say nothing of metrics, so they are built once, and nothing of the program's own version, so
that replicas of two versions hand out the same. The API server merges them with those of the whole
cluster; names that it has itself are therefore not used for definitions.
"""

from __future__ import annotations

from adapter.api.openapi.served import OpenApi

__all__ = ["OpenApi"]
