"""Triangular systems and Cholesky factors of complex matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from modelcc.frontends.kit.complex_functions import Complex
from modelcc.frontends.kit.complex_matrices import (
    adjoint,
    cholesky,
    solved_triangle,
    transposed,
)
from modelcc.frontends.kit.complex_values import ComplexValue
from modelcc.frontends.kit.matrices import batched
from modelcc.frontends.stablehlo.call import Handler, HloCall
from modelcc.frontends.stablehlo.linear_algebra import option


def _matrices(call: HloCall, number: int) -> Complex:
    group = call.emitter.find_group(call.inputs[number])
    assert group is not None
    return Complex(*map(call.as_value, group.parts))


def _grouped(call: HloCall, z: Complex) -> str:
    return call.group(ComplexValue(z.re.name, z.im.name))


def _solved(call: HloCall, left: bool, lower: bool, unit: bool, turn: str) -> str:
    """``lower`` refers to ``a`` before transposition; ``turn`` starts with LAPACK's letter."""
    x, y = _matrices(call, 0), _matrices(call, 1)
    parts = batched(call.bounds, x.re, x.im, y.re, y.im)
    a, b = Complex(*parts[:2]), Complex(*parts[2:])
    if turn[0] in "TAC":
        a, lower = transposed(a) if turn[0] == "T" else adjoint(a), not lower
    if left:
        return _grouped(call, solved_triangle(a, b, lower, unit))
    found = solved_triangle(transposed(a), transposed(b), not lower, unit)
    return _grouped(call, transposed(found))


def _triangular_solve(call: HloCall) -> str:
    left, lower = bool(call.attribute("left_side")), bool(call.attribute("lower"))
    turn = str(call.attribute("transpose_a"))
    return _solved(call, left, lower, bool(call.attribute("unit_diagonal")), turn)


def _trsm(call: HloCall) -> str:
    left, lower = option(call, "side") == "L", option(call, "uplo") == "L"
    return _solved(call, left, lower, option(call, "diag") == "U", option(call, "trans_x"))


def _cholesky(call: HloCall) -> str:
    return _grouped(call, cholesky(_matrices(call, 0), bool(call.attribute("lower", False)))[0])


def _potrf(call: HloCall) -> Sequence[str]:
    found, info = cholesky(_matrices(call, 0), option(call, "uplo") == "L")
    return _grouped(call, found), info.name


COMPLEX_MATRICES: Mapping[str, Handler] = MappingProxyType(
    {"stablehlo.triangular_solve": _triangular_solve, "stablehlo.cholesky": _cholesky}
)
COMPLEX_LAPACK: Mapping[str, Handler] = MappingProxyType(
    {f"lapack_{letter}{name}_ffi": handler for letter in "cz"
     for name, handler in (("trsm", _trsm), ("potrf", _potrf))}
)  # fmt: skip
