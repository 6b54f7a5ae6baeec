"""Flags about the log: klog's present ones, and those it had, which many manifests still carry."""

from __future__ import annotations

from functools import partial

from adapter.settings.flag import Flag

_STDERR = "the log goes to standard error, and nowhere else"
_LINES = "a line of the log has one form"

_log = partial(Flag, group="Logging")
_old = partial(Flag, group="Logging, accepted by older releases of the original", effect=_STDERR)

FLAGS = (
    _log(
        name="v",
        shorthand="v",
        type="int",
        default="0",
        help="How much is logged; 6 and more names each request to Prometheus.",
    ),
    _log(
        name="vmodule",
        type="string",
        default="",
        help="Verbosity by source file.",
        effect="the log's verbosity is the same for every part; use --v",
    ),
    _log(
        name="log-flush-frequency",
        type="duration",
        default="5s",
        help="How often the log is written out.",
        effect="each line of the log is written at once",
    ),
    _old(name="logtostderr", type="bool", default="true", help="Log to standard error."),
    _old(name="alsologtostderr", type="bool", default="false", help="Log there as well."),
    _old(name="stderrthreshold", type="string", default="2", help="Least severity shown there."),
    _old(name="one_output", type="bool", default="false", help="Write each severity to one file."),
    _old(name="log_dir", type="string", default="", help="Directory of log files."),
    _old(name="log_file", type="string", default="", help="Name of the log file."),
    _old(name="log_file_max_size", type="int", default="1800", help="Its largest size in MB."),
    _old(
        name="log_backtrace_at",
        type="string",
        default=":0",
        help="Place in the source at which a stack trace is logged.",
        effect="places in the original's source mean nothing here",
    ),
    _old(
        name="add_dir_header",
        type="bool",
        default="false",
        help="Name the source file's directory.",
        effect=_LINES,
    ),
    _old(
        name="skip_headers",
        type="bool",
        default="false",
        help="Log without time and place.",
        effect=_LINES,
    ),
    _old(
        name="skip_log_headers",
        type="bool",
        default="false",
        help="Begin log files without a header.",
    ),
)
