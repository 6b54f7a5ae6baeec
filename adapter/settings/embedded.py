"""Flags for the Prometheus in the adapter's own pod, which scrapes what presets read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from adapter.settings.flag import FlagGroup, FlagType, duration, flag
from rules import connection
from rules.findings import Finding


def _url(text: str) -> str | None:
    if text:
        connection.check_url(text)
    return text or None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSettings(FlagGroup):
    """Where the Prometheus in the pod is."""

    TITLE = "Prometheus in the pod"

    url: str | None = flag(
        "embedded-prometheus-url",
        FlagType(name="url", parse=_url),
        "Base URL of a Prometheus in the adapter's own pod. A preset reads it while it has the "
        "preset's targets and data of the query's whole window, otherwise --prometheus-url. "
        "Without --prometheus-url, all rules read it.",
    )
    interval: float = flag(
        "embedded-prometheus-interval",
        duration(positive=True),
        "Its scrape interval. Its data count from two intervals and 10 s after its start.",
        default="5s",
    )
    """Seconds."""

    def problems(self) -> Iterator[Finding]:
        """Yield a problem if windows of queries would be full too soon."""
        if self.url is None and self.interval != 5.0:
            yield Finding(
                subject="--embedded-prometheus-interval", fact="needs --embedded-prometheus-url"
            )
