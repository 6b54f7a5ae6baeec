"""Kubernetes quantities, Go durations and Prometheus durations.

Quantities are integers in thousandths, durations integers in nanoseconds. They are rounded only
where the original rounds them, and never overflow.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from rules.errors import DurationError, QuantityError
from rules.quoting import quote

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d{1,40}\.?\d{0,40}|\.\d{1,40})(?:[eE][+-]?\d\d?)?)"
    r"(?P<suffix>m|[kMGTPE]|[KMGTPE]i|)",
    re.ASCII,
)
_SUFFIXES = {-3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}


def milli(value: float) -> int:
    """Return `value` in thousandths, truncated as in the original: `int(value * 1000)`.

    The product is a double, so 1.001 gives 1000 and 1.005 gives 1004. Beyond 64 bits, where the
    original overflows, the result is exact. Raises QuantityError for NaN and the infinities.
    """
    product = value * 1000.0
    if math.isfinite(product):
        return int(product)
    if not math.isfinite(value):
        raise QuantityError(f"a quantity cannot hold {value}")
    return int(value) * 1000


def decimal(thousandths: int) -> str:
    """Return the canonical DecimalSI form: `20` for 20000, `20500m` for 20500, `40k` for 4e7.

    Follows resource.Quantity of k8s.io/apimachinery; beyond `E` the mantissa grows.
    """
    if not thousandths:
        return "0"
    mantissa, exponent = thousandths, -3
    while exponent < 18 and not mantissa % 1000:
        mantissa //= 1000
        exponent += 3
    return f"{mantissa}{_SUFFIXES[exponent]}"


def binary(thousandths: int) -> str:
    """Return the canonical BinarySI form: `14Gi` for 14 GiB, `1536Ki` for 1 572 864 000.

    Like resource.Quantity, write the decimal form of fractions and of values below 1024.
    """
    mantissa, rest = divmod(thousandths, 1000)
    if rest or abs(mantissa) < 1024:
        return decimal(thousandths)
    power = 0
    while power < len(_BINARY_SUFFIXES) - 1 and not mantissa % 1024:
        mantissa //= 1024
        power += 1
    return f"{mantissa}{_BINARY_SUFFIXES[power]}"


def readable(thousandths: int, unit: str = "") -> str:
    """Return a value as people write it: `19.8 %` for 19833 and `%`, `15.2 GiB` for bytes (`B`).

    It is rounded to three digits, but no more than to a whole number.
    """
    value, prefix = Fraction(thousandths, 1000), 0
    while unit == "B" and abs(value) >= 1024 and prefix < len(_BINARY_SUFFIXES) - 1:
        value, prefix = value / 1024, prefix + 1
    decimals = sum(abs(value) < bound for bound in (1, 10, 100))
    number = str(round(value))
    if decimals:
        number = f"{float(value):.{decimals}f}".rstrip("0").rstrip(".")
    return f"{number} {_BINARY_SUFFIXES[prefix]}{unit}" if unit else number


def readable_of(thousandths: int, whole: int, unit: str = "") -> str:
    """Return a value and its target: `19.8 of 20 %`, `512 MiB of 2 GiB`."""
    value, target = readable(thousandths, unit), readable(whole, unit)
    return f"{value.removesuffix(target.lstrip('-.0123456789'))} of {target}"


def go_duration_text(nanoseconds: int) -> str:
    """Return a duration as Go writes it: `5m0s`, `1h0m0s`, `1.5s`, `500ms`.

    It must not be negative.
    """
    seconds, part = divmod(nanoseconds, 1_000_000_000)
    if not seconds and part:
        unit = next(unit for unit in ("ms", "µs", "ns") if part >= _GO_UNITS[unit])
        return f"{_with_fraction(part, _GO_UNITS[unit])}{unit}"
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{_with_fraction(seconds * 1_000_000_000 + part, 1_000_000_000)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def _with_fraction(number: int, unit: int) -> str:
    whole, part = divmod(number, unit)
    digits = f"{part:0{len(str(unit)) - 1}}".rstrip("0") if part else ""
    return f"{whole}.{digits}" if digits else str(whole)


_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_GO_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, the micro sign
    "μs": 1_000,  # U+03BC, the Greek letter
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_GO_TERM = re.compile(r"(?P<whole>[0-9]*)(?P<part>\.[0-9]*)?(?P<unit>[^0-9.]*)")
_PROMETHEUS_UNITS = {
    "y": 365 * 86_400_000_000_000,
    "w": 7 * 86_400_000_000_000,
    "d": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
}
_PROMETHEUS_TERM = re.compile(r"(?P<whole>[0-9]+)(?P<unit>[^0-9]+)")
_LIMIT = 2**63


def parse(text: str) -> int:
    """Return a decimal quantity (`20`, `37500m`, `1.5k`, `2Gi`, `1e3`) in thousandths.

    Digits beyond thousandths are cut. Raises QuantityError.
    """
    return int(_thousandths(text))


def milli_value(text: str) -> int:
    """Return a quantity in thousandths, rounded up as `Quantity.MilliValue` of Kubernetes does.

    Also accepts the suffixes `n` and `u`, which the resource metrics API writes. What takes more
    than 64 bits overflows as there. Raises QuantityError.
    """
    exact = _with_small_suffixes(text)
    rounded = math.ceil(exact) if exact > 0 else math.floor(exact)
    return rounded if -_LIMIT <= rounded < _LIMIT else _overflowed(text)


def approximate(text: str) -> float:
    """Return a quantity as a double, as `Quantity.AsApproximateFloat64` computes it.

    It must be in canonical form. Raises QuantityError.
    """
    suffix = text[-1:] if text[-1:] in _SMALL else ""
    number = _thousandths(text.removesuffix(suffix)) / 1000
    return float(number) * float(f"1e{_SMALL[suffix]}") if suffix else float(number)


_SMALL = {"n": -9, "u": -6, "m": -3}


def _with_small_suffixes(text: str) -> Fraction:
    divisor = {"n": 10**9, "u": 10**6}.get(text[-1:], 1)
    return _thousandths(text[:-1] if divisor > 1 else text) / divisor


def _overflowed(text: str) -> int:
    """Return what Go makes of a quantity whose thousandths take more than 64 bits.

    Up to 18 digits, a product that it computes at once wraps around, and others become 0. More
    digits are a big number, whose last 64 bits are taken.
    """
    match = _QUANTITY.fullmatch(text)
    assert match is not None  # as it was parsed before
    mantissa, _, exponent = match["number"].lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    suffix = match["suffix"]
    if suffix.endswith("i"):
        return wrapped(1000 * (_LIMIT - 1) * (-1 if whole[0] == "-" else 1), 64)
    digits = int(whole + fraction)
    power = 3 + int(exponent or 0) - len(fraction)
    power += next(each for each, name in _SUFFIXES.items() if name == suffix)
    if len(whole.lstrip("+-0") + fraction) <= 18:
        return wrapped(digits * 10**power, 64) if power in {1, 2, 3, 6, 9} else 0
    if power <= 0:
        return wrapped(-(-digits // 10**-power), 64)
    factor = 10**power
    return wrapped(wrapped(digits, 64) * (factor if factor < _LIMIT else -_LIMIT), 64)


def wrapped(number: int, bits: int) -> int:
    """Return the number with this many bits, as integers of Go overflow."""
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


def _thousandths(text: str) -> Fraction:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise QuantityError(f"{text!r} is not a quantity: write a number such as 37.5 or 37500m")
    number, suffix = Fraction(match["number"]), match["suffix"]
    if suffix.endswith("i"):
        return number * 1000 * Fraction(1024) ** ("KMGTPE".index(suffix[0]) + 1)
    exponent = next(power for power, each in _SUFFIXES.items() if each == suffix)
    return number * Fraction(1000) * Fraction(10) ** exponent


def go_duration(text: str) -> int:
    """Parse a Go duration (`1h15m30.918s`) to nanoseconds, as time.ParseDuration does.

    Raises DurationError with the messages of Go.
    """
    invalid = DurationError(f"time: invalid duration {_quote_bytes(text)}")
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    if not rest:
        raise invalid
    total, position = 0, 0
    while position < len(rest):
        match = _GO_TERM.match(rest, position)
        assert match is not None  # every part of the pattern may be empty
        position = match.end()
        whole, part, unit = match.group("whole", "part", "unit")
        significant = whole.lstrip("0")
        number = int(significant or "0") if len(significant) < 20 else _LIMIT + 1
        if not (whole or (part or "")[1:]) or number > _LIMIT:
            raise invalid
        if not unit:
            raise DurationError(f"time: missing unit in duration {_quote_bytes(text)}")
        if unit not in _GO_UNITS:
            raise DurationError(
                f"time: unknown unit {_quote_bytes(unit)} in duration {_quote_bytes(text)}"
            )
        total += number * _GO_UNITS[unit] + _fraction((part or "")[1:], _GO_UNITS[unit])
        if total > _LIMIT:
            raise invalid
    if text[0] == "-":
        return -total
    if total == _LIMIT:
        raise invalid
    return total


def _fraction(digits: str, unit: int) -> int:
    """Return the nanoseconds of `0.DIGITS` units, computed in doubles as in Go."""
    number, scale = 0, 1.0
    for digit in digits:
        longer = number * 10 + int(digit)
        if number > (_LIMIT - 1) // 10 or longer > _LIMIT:
            break
        number, scale = longer, scale * 10
    return int(float(number) * (float(unit) / scale))


def _quote_bytes(text: str) -> str:
    """Quote as Go's package time does: bytes outside ASCII are escaped one by one."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    code = ord(character)
    if 0x20 <= code < 0x80:
        return character
    if 0xDC80 <= code <= 0xDCFF:  # a byte of invalid UTF-8, decoded with surrogateescape
        return f"\\x{code - 0xDC00:02x}"
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))


def prometheus_duration(text: str) -> int:
    """Parse a Prometheus duration (`1d12h`) to nanoseconds, as prometheus/common does.

    It has integers with the units y, w, d, h, m, s and ms, each at most once, larger ones first.
    Raises DurationError with the messages of Prometheus.
    """
    if text == "0":
        return 0
    if not text:
        raise DurationError("empty duration string")
    invalid = DurationError(f"not a valid duration string: {quote(text)}")
    units = list(_PROMETHEUS_UNITS)
    total, position, smallest = 0, 0, -1
    while position < len(text):
        match = _PROMETHEUS_TERM.match(text, position)
        if match is None:
            raise invalid
        position = match.end()
        significant, unit = match["whole"].lstrip("0"), match["unit"]
        if len(significant) > 20 or int(significant or "0") >= 2**64:
            raise invalid
        if unit not in _PROMETHEUS_UNITS:
            raise DurationError(f"unknown unit {quote(unit)} in duration {quote(text)}")
        if units.index(unit) <= smallest:
            raise invalid
        smallest = units.index(unit)
        total += int(significant or "0") * _PROMETHEUS_UNITS[unit]
        if total >= _LIMIT:
            raise DurationError("duration out of range")
    return total
