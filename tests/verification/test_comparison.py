"""Differences between arrays, one kind at a time."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.verification.comparison import compare

F = np.float32


@pytest.mark.parametrize(
    ("got", "expected", "agrees"),
    [
        (np.array([1, 2], F), np.array([1, 2], F), True),
        (np.array([1, 2.0001], F), np.array([1, 2], F), True),
        (np.array([1, 2.001], F), np.array([1, 2], F), False),
        (np.array([np.nan, 2], F), np.array([np.nan, 2], F), True),
        (np.array([np.nan, 2], F), np.array([1, 2], F), False),
        (np.array([1, 2], F), np.array([np.nan, 2], F), False),
        (np.array([np.inf], F), np.array([np.inf], F), True),
        (np.array([np.inf], F), np.array([-np.inf], F), False),
        (np.array([3]), np.array([3]), True),
        (np.array([3]), np.array([4]), False),
        (np.array([True]), np.array([False]), False),
        (np.array([], F), np.array([], F), True),
        (np.array(["a"], object), np.array(["a"], object), True),
        (np.array(["a"], object), np.array(["b"], object), False),
        (np.zeros((2, 1), F), np.zeros((1, 2), F), False),
        (np.zeros(2, F), np.zeros(2), False),
    ],
)
def test_verdict(got: np.ndarray, expected: np.ndarray, agrees: bool) -> None:
    assert compare("v", got, expected).agrees is agrees


def test_the_worst_place_is_named() -> None:
    expected = np.ones((3, 4), F)
    got = expected.copy()
    got[1, 2] = 1.5
    got[2, 3] = 1.25
    difference = compare("v", got, expected)
    assert (difference.at, difference.got, difference.expected) == ((1, 2), 1.5, 1.0)
    assert difference.relative == 0.5
    assert "at [1, 2]: 1.5 instead of 1" in str(difference)
