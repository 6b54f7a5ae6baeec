"""The one table of flags, in the order in which the help text and the README list them."""

from __future__ import annotations

from adapter.settings import flags_audit, flags_logging, flags_metrics, flags_serving
from adapter.settings.flag import Flag

FLAGS: tuple[Flag, ...] = (
    *flags_metrics.FLAGS,
    *flags_serving.FLAGS,
    *flags_logging.FLAGS,
    *flags_audit.FLAGS,
)
