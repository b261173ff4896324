"""Axes of stages told by the elements that they share."""

from __future__ import annotations

import pytest

from modelcc.ir.index import Index, Sym
from modelcc.ir.tensor import Axis, Read, Stage
from modelcc.ir.types import F32
from modelcc.passes.tensor.unify_axes import Place, reads_own_point, shared_places, unify_axes

A, B, U = Sym("a"), Sym("b"), Sym("u")
OWN = (Axis("a", 4), Axis("b", 8), Axis("u", 1))
X, Y, ONE = Sym("x"), Sym("y"), Sym("one")
COMMON = (Axis("x", 4), Axis("y", 8), Axis("one", 1))

ALIKE: dict[str, tuple[Place, Place, dict[str, Index]]] = {
    "in order": ((A, B), (X, Y), {"a": X, "b": Y}),
    "permuted": ((B, A), (Y, X), {"a": X, "b": Y}),
    "some of them": ((A,), (X,), {"a": X}),
    "the same twice": ((A, A), (X, X), {"a": X}),
    "one point": ((A, U), (X, ONE), {"a": X, "u": ONE}),
    "one point, which is 0": ((A, U), (X, 0), {"a": X, "u": 0}),
    "0 where there is one point": ((A, 0), (X, ONE), {"a": X}),
    "the same number": ((A, 3), (X, 3), {"a": X}),
    "no dimensions": ((), (), {}),
}
APART: dict[str, tuple[Place, Place]] = {
    "another extent": ((A,), (Y,)),
    "moved": ((A + 1,), (X,)),
    "moved alike": ((A + 1,), (X + 1,)),
    "moved where it is written": ((A,), (X + 1,)),
    "stretched": ((A,), (2 * X,)),
    "a diagonal": ((A, A), (X, Y)),
    "one axis for two": ((A, U), (X, X)),
    "another number": ((3,), (4,)),
    "a number and an axis": ((0,), (X,)),
    "an axis and a number": ((A,), (0,)),
    "one point that is not 0": ((U,), (3,)),
    "a symbol of neither": ((Sym("n"),), (Sym("n"),)),
}


@pytest.mark.parametrize("name", ALIKE)
def test_axes_have_values_of_common_ones(name: str) -> None:
    first, second, values = ALIKE[name]
    assert unify_axes([(first, second)], OWN, COMMON) == values


@pytest.mark.parametrize("name", APART)
def test_other_places_have_none(name: str) -> None:
    assert unify_axes([APART[name]], OWN, COMMON) is None


def test_all_places_are_met() -> None:
    same = (Axis("a", 4), Axis("b", 4)), (Axis("x", 4), Axis("y", 4))
    assert unify_axes([((A,), (X,)), ((B,), (Y,))], *same) == {"a": X, "b": Y}
    assert unify_axes([((A,), (X,)), ((A,), (Y,))], *same) is None
    assert unify_axes([((A,), (X,)), ((B,), (X,))], *same) is None, "both would be one"


def stage(output: str, write: Place, axes: tuple[Axis, ...], *read: Read) -> Stage:
    return Stage(output, axes, write, read[0] if read else Read("input", write, F32))


def test_places_are_those_of_reads_of_writers() -> None:
    writer = stage("t", (Y, X), COMMON[:2])
    reader = stage("r", (A, B), OWN[:2], Read("t", (B, A), F32))
    assert list(shared_places(reader, {"t": writer})) == [((B, A), (Y, X))]
    assert not list(shared_places(reader, {"r": reader}))


@pytest.mark.parametrize(
    ("read", "depth", "same"),
    [
        ((A, B, U), None, True),
        ((A, B, 0), None, True),
        ((B, A, U), None, False),
        ((A, B + 1, U), None, False),
        ((A, B + 1, U), 1, True),
    ],
)
def test_reads_at_the_own_point(read: Place, depth: int | None, same: bool) -> None:
    writer = stage("t", (X, Y, ONE), COMMON)
    found = Read("t", read, F32)
    assert reads_own_point(found, stage("r", (A, B), OWN, found), writer, depth) is same
