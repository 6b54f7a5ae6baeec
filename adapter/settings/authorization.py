"""Flags for the authorization of callers."""

from __future__ import annotations

from dataclasses import dataclass

from adapter.settings.flag import FlagGroup, flag
from adapter.settings.flag_types import FILE, comma_separated, duration


def _check_paths(paths: tuple[str, ...]) -> None:
    for path in paths:
        if "*" in path[:-1]:
            raise ValueError(f"{path}: * is allowed at the end of a path only")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationSettings(FlagGroup):
    """SubjectAccessReviews, and paths that need none."""

    TITLE = "Authorization"

    kubeconfig: str | None = flag(
        "authorization-kubeconfig",
        FILE,
        "Kubeconfig of the cluster for SubjectAccessReviews. Without it, "
        "--authentication-kubeconfig.",
    )
    allowed_ttl: float = flag(
        "authorization-webhook-cache-authorized-ttl",
        duration(),
        "How long a SubjectAccessReview that allows the access is cached. The original caches it "
        "for 10s.",
        default="1m0s",
    )
    denied_ttl: float = flag(
        "authorization-webhook-cache-unauthorized-ttl",
        duration(),
        "How long a SubjectAccessReview that denies the access is cached.",
        default="10s",
    )
    always_allow_paths: tuple[str, ...] = flag(
        "authorization-always-allow-paths",
        comma_separated(_check_paths),
        "Comma-separated paths that everybody may read; a `*` at the end matches every path with "
        "that prefix.",
        default="/healthz,/readyz,/livez",
    )
