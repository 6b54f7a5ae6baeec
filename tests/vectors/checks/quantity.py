"""Check of quantity.json: thousandths of a double, and their DecimalSI quantities.

Their BinarySI quantities are not checked, because no answer has any.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from rules import quantity
from rules.errors import QuantityError
from tests.vectors.expect import same
from tools.quantity import parse as parse_quantity


def check(case: Mapping[str, Any], clusters: Mapping[str, Any]) -> None:
    value = float.fromhex(case["hex"])
    if not math.isfinite(value):
        _refused(value)
        return
    thousandths = quantity.milli(value)
    if case.get("overflow"):
        product = value * 1000.0
        exact = product if math.isfinite(product) else Fraction(value) * 1000
        same(thousandths, int(exact), "milli")
        same(parse_quantity(quantity.decimal(thousandths)) * 1000, thousandths, "decimal, parsed")
        return
    same(str(thousandths), case["milli"], "milli")
    same(quantity.decimal(thousandths), case["decimal"], "decimal")


def _refused(value: float) -> None:
    try:
        thousandths = quantity.milli(value)
    except QuantityError:
        return
    same(thousandths, "QuantityError", "milli")
