"""Go's text for a float64, as strconv.FormatFloat has it: of finite numbers, the only ones here."""

from __future__ import annotations

import decimal
import math

_FRACTION_BITS = 52


def text(value: float, verb: str, precision: int | None) -> str:
    """`value` by a verb of `e E f g G b x X`; precision None is the shortest that reads back.

    https://pkg.go.dev/strconv#FormatFloat
    """
    if verb == "b":
        return _binary(value)
    if verb in "xX":
        shown = _hexadecimal(value, precision)
        return shown.upper() if verb == "X" else shown
    if precision is not None:
        return f"%.{precision}{verb}" % value
    return _shortest(value, verb)


def _shortest(value: float, verb: str) -> str:
    """%g with the fewest digits; an exponent below 10**-4 and from 10**6 on."""
    sign = "-" if math.copysign(1, value) < 0 else ""
    number = decimal.Decimal(repr(abs(value))).normalize()
    digits, power = "".join(map(str, number.as_tuple().digits)), number.adjusted()
    if not value:
        return f"{sign}0"
    if power < -4 or power >= 6:
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        letter = "E" if verb == "G" else "e"
        return f"{sign}{digits[0]}{fraction}{letter}{'-' if power < 0 else '+'}{abs(power):02d}"
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    whole, fraction = digits[: power + 1].ljust(power + 1, "0"), digits[power + 1 :]
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


def _parts(value: float) -> tuple[str, int, int]:
    """Sign, mantissa of 53 bits and exponent of a double."""
    sign = "-" if math.copysign(1, value) < 0 else ""
    fraction, exponent = math.frexp(abs(value))
    return sign, int(math.ldexp(fraction, _FRACTION_BITS + 1)), exponent - 1


def _binary(value: float) -> str:
    sign, mantissa, exponent = _parts(value)
    shift = exponent - _FRACTION_BITS
    if shift < -1074 or not mantissa:  # denormalised numbers keep the least exponent
        mantissa >>= max(0, -1074 - shift)
        shift = -1074
    return f"{sign}{mantissa}p{shift:+d}"


def _hexadecimal(value: float, precision: int | None) -> str:
    sign, mantissa, exponent = _parts(value)
    if not mantissa:
        exponent = 0
    digits = 13
    if precision is not None and precision < digits:
        drop = 4 * (digits - precision)
        rest, mantissa = mantissa & ((1 << drop) - 1), mantissa >> drop
        half = 1 << (drop - 1)
        mantissa += rest > half or (rest == half and mantissa & 1)
        digits = precision
        if mantissa >> (4 * digits) > 1:
            mantissa >>= 1
            exponent += 1
    whole = mantissa >> (4 * digits)
    fraction = f"{mantissa & ((1 << (4 * digits)) - 1):0{digits}x}" if digits else ""
    fraction = fraction.rstrip("0") if precision is None else fraction.ljust(precision, "0")
    point = f".{fraction}" if fraction else ""
    return f"{sign}0x{whole}{point}p{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
