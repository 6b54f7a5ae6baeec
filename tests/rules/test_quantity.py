"""What the golden cases of quantity.json and durations.json lack."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules import quantity
from rules.errors import DurationError, QuantityError
from tools.quantity import parse as parse_quantity

HOUR = 3600 * 10**9


@pytest.mark.parametrize(
    ("thousandths", "decimal"),
    [
        (10**25, "10000E"),
        (1000 * 2**70, str(2**70)),
    ],
)
def test_thousandths_have_a_canonical_form(thousandths, decimal):
    assert quantity.decimal(thousandths) == decimal


@given(st.integers(-(10**30), 10**30))
def test_decimal_form_parses_to_the_same_number(thousandths):
    assert parse_quantity(quantity.decimal(thousandths)) * 1000 == thousandths


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_finite_values_lose_less_than_a_thousandth(value):
    thousandths = quantity.milli(value)

    slack = 1 + abs(Fraction(value)) * 1000 / 2**52
    assert abs(thousandths - Fraction(value) * 1000) < slack


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('1"\\', r'time: unknown unit "\"\\" in duration "1\"\\"'),
        ("1\udcff", r'time: unknown unit "\xff" in duration "1\xff"'),
        ("9223372036854775808ns", 'time: invalid duration "9223372036854775808ns"'),
        ("1" * 5000 + "s", f'time: invalid duration "{"1" * 5000}s"'),
    ],
)
def test_invalid_go_duration_is_refused_in_the_words_of_go(text, message):
    with pytest.raises(DurationError) as error:
        quantity.go_duration(text)

    assert str(error.value) == message


@pytest.mark.parametrize("text", ["18446744073709551616ms", "1" * 5000 + "s"])
def test_a_long_prometheus_duration_is_refused_in_the_words_of_prometheus(text):
    with pytest.raises(DurationError) as error:
        quantity.prometheus_duration(text)

    assert str(error.value) == f'not a valid duration string: "{text}"'


@given(st.text("0123456789.-+hmsnuµdwy \n", max_size=12))
def test_any_text_is_a_duration_or_a_duration_error(text):
    for parse in (quantity.go_duration, quantity.prometheus_duration):
        with contextlib.suppress(DurationError):
            assert abs(parse(text)) <= 2**63


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("20", 20_000),
        ("37500m", 37_500),
        ("37.5", 37_500),
        ("-.5", -500),
        ("1.5k", 1_500_000),
        ("2Ki", 2_048_000),
        ("1e3", 1_000_000),
        ("1E3", 1_000_000),
        ("1E", 10**21),
        ("0.0009", 0),
    ],
)
def test_quantities_are_parsed(text, milli):
    assert quantity.parse(text) == milli


@pytest.mark.parametrize("text", ["", "x", "1 ", "1K", "1e999", ".", "0x1", "1" * 100])
def test_other_text_is_not_a_quantity(text):
    with pytest.raises(QuantityError, match="is not a quantity"):
        quantity.parse(text)


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [("123456789n", 124), ("1n", 1), ("250u", 1), ("2", 2000), ("1.0001", 1001), ("1Ki", 1024000)],
)
def test_milli_values_are_rounded_up(text: str, thousandths: int) -> None:
    assert quantity.milli_value(text) == thousandths


@pytest.mark.parametrize(
    ("thousandths", "binary"),
    [
        (0, "0"),
        (999_000, "999"),
        (1_000_000, "1k"),
        (1_024_000, "1Ki"),
        (1_025_000, "1025"),
        (1_536_000, "1536"),
        (1_048_576_000, "1Mi"),
        (1_572_864_000, "1536Ki"),
        (15_032_385_536_000, "14Gi"),
        (15_032_385_536_500, "15032385536500m"),
        (10**12, "1000000000"),
        (80 * 10**12, "78125000Ki"),
        (-1_048_576_000, "-1Mi"),
        (1000 * 2**70, "1024Ei"),
    ],
)
def test_binary_form_is_canonical(thousandths, binary):
    assert quantity.binary(thousandths) == binary


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (500_000_000, "500ms"),
        (1_500_000_000, "1.5s"),
        (30 * 10**9, "30s"),
        (61_500_000_000, "1m1.5s"),
        (300 * 10**9, "5m0s"),
        (HOUR, "1h0m0s"),
        (24 * HOUR, "24h0m0s"),
    ],
)
def test_durations_are_written_as_go_writes_them(nanoseconds, text):
    assert quantity.go_duration_text(nanoseconds) == text


@given(st.integers(min_value=0, max_value=10**18))
def test_written_durations_are_read_again(nanoseconds):
    assert quantity.go_duration(quantity.go_duration_text(nanoseconds)) == nanoseconds


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ("9P", 9 * 10**18),
        ("10P", 0),
        ("3E", 0),
        ("12E18", 0),
        ("12345678901234567", 12345678901234567000 - 2**64),
        ("12345678901234567890", (12345678901234567890 * 1000 + 2**63) % 2**64 - 2**63),
        ("-12345678901234567", 2**64 - 12345678901234567000),
        ("9Ei", -1000),
    ],
)
def test_milli_values_overflow_as_in_go(text: str, thousandths: int) -> None:
    """The values are those of k8s.io/apimachinery 0.36."""
    assert quantity.milli_value(text) == thousandths


@pytest.mark.parametrize(
    ("text", "value"), [("50m", 0.05), ("300u", 300 * 1e-6), ("2", 2.0), ("0", 0.0)]
)
def test_an_approximate_value_is_a_double(text: str, value: float) -> None:
    assert quantity.approximate(text) == value


@pytest.mark.parametrize(
    ("thousandths", "unit", "text"),
    [
        (19833, "%", "19.8 %"),
        (20000, "%", "20 %"),
        (500, "", "0.5"),
        (0, "s", "0 s"),
        (-19833, "°C", "-19.8 °C"),
        (1234567, "", "1235"),
        (9223372036854775807000, "", "9223372036854775807"),
        (512 * 1000, "B", "512 B"),
        (1536 * 2**20 * 1000, "B", "1.5 GiB"),
    ],
)
def test_sentences_have_decimal_numbers_with_the_unit(thousandths, unit, text):
    assert quantity.readable(thousandths, unit) == text


def test_the_unit_of_a_value_and_its_target_is_shown_once() -> None:
    gib = 2**30 * 1000
    assert quantity.readable_of(19833, 20000, "%") == "19.8 of 20 %"
    assert quantity.readable_of(gib // 2, 2 * gib, "B") == "512 MiB of 2 GiB"
    assert quantity.readable_of(gib, 2 * gib, "B") == "1 of 2 GiB"
    assert quantity.readable_of(500, 1000) == "0.5 of 1"
