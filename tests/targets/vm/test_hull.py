"""Bounds of index expressions hold for all values of their symbols."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from modelcc.ir.index import Sym, evaluate, parse_index, symbols
from modelcc.targets.vm.hull import Hull, NoHullError, hull, is_natural, magnitude, most

_RANGES = {"i": Hull(0, Sym("N0") - 1), "j": Hull(-2, Sym("N1"))}
_EXPRESSIONS = (
    "N2*i + 3*j - N3",
    "min(i, N2) + max(j, 1) - N3*i",
    "(i + 2*N3) floordiv N2 - (j mod N2)",
    "N2*(i mod N1) + N3*((i + 3) floordiv 4) - 5",
    "i*(N2 - (j mod N2)) + N0*N1",
)


@pytest.mark.parametrize("text", _EXPRESSIONS)
def test_every_value_is_within(text: str) -> None:
    e = parse_index(text)
    try:
        found, greatest = hull(e, _RANGES), magnitude(e, _RANGES)
    except NoHullError:
        assert "i*(N2" in text
        return
    rng = np.random.default_rng(0)
    for _ in range(30):
        given = {f"N{n}": int(rng.integers(1, 9)) for n in range(4)}
        lo, hi, size = (evaluate(one, given) for one in (found.lo, found.hi, greatest))
        assert not is_natural(found.lo) or lo >= 0
        assert size <= most(greatest)
        for i, j in product(range(given["N0"]), range(-2, given["N1"] + 1)):
            values = {**given, "i": i, "j": j}
            value = evaluate(e, {name: values[name] for name in symbols(e)})
            assert lo <= value <= hi
            assert abs(value) <= size


def test_values_that_are_no_indices_may_be_negative() -> None:
    assert is_natural(Sym("N0"))
    assert not is_natural(Sym("V0"))
