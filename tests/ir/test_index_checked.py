"""Index expressions computed step by step in 64 bits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelcc.ir.index import evaluate, parse_index
from modelcc.ir.index_checked import MOST, NoValueError, evaluate_checked

SPELLED = (
    "7",
    "a",
    "2*a - 3*b + 5",
    "a*b*c - c",
    "a floordiv 4 + b mod 3",
    "(a + b) floordiv (c + 1)",
    "a mod (b + 2)",
    "min(a, b, c) + max(a - b, 0)",
)


@pytest.mark.parametrize("text", SPELLED)
@given(values=st.tuples(*[st.integers(0, 1 << 20)] * 3))
def test_small_values_are_those_of_integers(text: str, values: tuple[int, int, int]) -> None:
    named = dict(zip("abc", values, strict=True))
    assert evaluate_checked(parse_index(text), named) == evaluate(parse_index(text), named)


@pytest.mark.parametrize(
    ("text", "a", "b"),
    [
        ("a + b", MOST, 1),
        ("a*b", 1 << 32, 1 << 31),
        ("2*a - 2*b", MOST, MOST),
        ("a floordiv b", 1, 0),
        ("a mod b", 1, 0),
        ("a floordiv b", -MOST - 1, -1),
        ("min(a*b, 3)", 1 << 40, 1 << 40),
    ],
)
def test_steps_beyond_64_bits_have_no_value(text: str, a: int, b: int) -> None:
    e = parse_index(text)
    with pytest.raises(NoValueError):
        evaluate_checked(e, {"a": a, "b": b})


def test_a_symbol_without_a_value_is_named() -> None:
    with pytest.raises(KeyError, match="n"):
        evaluate_checked(parse_index("n + 1"), {})
