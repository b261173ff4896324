"""Triangular systems and Cholesky's factors, row by row and column by column (Golub and Van Loan,
Matrix Computations, 3.1 and 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.stablehlo.call import HloCall, table
from modelcc.frontends.stablehlo.loops import fresh_counter
from modelcc.frontends.stablehlo.structure import converted, transposed
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.index import Index, Range, Sym
from modelcc.ir.types import F32, I32
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.control import Loop
from modelcc.ops.generate import Full, Indices, Iota
from modelcc.ops.matmul import MatMul
from modelcc.ops.reduce import ReduceMax
from modelcc.ops.shape import Transpose
from modelcc.ops.slicing import ReplaceSlice, Slice

Step = Callable[[GraphBuilder, Index, str, Sequence[str]], str]
"""The next state of one of as many steps as there are rows, from the last one and operands."""


def _stepped(call: HloCall, rows: Index, step: Step, first: str, *operands: str) -> str:
    counter = fresh_counter(call.bounds)
    build = GraphBuilder("step", {**call.bounds, counter: Range(0, rows - 1)})
    state = build.input("state", call.type_of(first))
    own = [build.input(f"operand{n}", call.type_of(name)) for n, name in enumerate(operands)]
    place = 0 if rows == 1 else Sym(counter)
    body = build.build([step(build, place, state, own)])
    return call.emit(Loop(body, counter, rows, 1), first, *operands)


def _part(build: GraphBuilder, x: str, places: Mapping[int, Index]) -> Value:
    """One row, column or element of each of the matrices ``x``, by axis from the end."""
    shape = build.type_of(x).shape
    at = {len(shape) + axis: place for axis, place in places.items()}
    starts = tuple(at.get(a, 0) for a in range(len(shape)))
    extents = tuple(1 if a in at else e for a, e in enumerate(shape))
    return Value(build, build.emit(Slice(starts, extents, (1,) * len(shape)), x))


def _put(build: GraphBuilder, x: str, axis: int, place: Index, part: Value) -> str:
    rank = build.type_of(x).rank
    starts = tuple(place if a == rank + axis else 0 for a in range(rank))
    return build.emit(ReplaceSlice(starts), x, part.name)


def _swapped(call: HloCall, x: str) -> str:
    rank = call.type_of(x).rank
    return transposed(call, x, (*range(rank - 2), rank - 1, rank - 2))


def _computed(call: HloCall, x: str) -> str:
    dtype = call.type_of(x).dtype
    if not dtype.is_float:
        unsupported(f"matrices of {dtype}")
    return converted(call, x, F32) if dtype.bits <= 16 else x


def solved(call: HloCall, a: str, b: str, lower: bool, unit: bool) -> str:
    """``x`` with ``a @ x = b``, of which one triangle of ``a`` is read."""
    a, b = _computed(call, a), _computed(call, b)
    type = call.type_of(b)
    rows = type.shape[-2]

    def step(build: GraphBuilder, count: Index, x: str, operands: Sequence[str]) -> str:
        place = count if lower else rows - 1 - count
        row = _part(build, operands[0], {-2: place})
        rest = _part(build, operands[1], {-2: place}) - of(MatMul(), row, Value(build, x))
        if not unit:
            rest = rest / _part(build, operands[0], {-2: place, -1: place})
        return _put(build, x, -2, place, rest)

    first = call.emit(Full(type.shape, 0, type.dtype))
    return _stepped(call, rows, step, first, a, b)


def triangular_solve(call: HloCall) -> str:
    turned = call.attribute("transpose_a") in ("TRANSPOSE", "ADJOINT")
    left, lower = bool(call.attribute("left_side")), bool(call.attribute("lower"))
    unit = bool(call.attribute("unit_diagonal"))
    return _solved_on(call, left, lower != turned, unit, turned)


def _solved_on(call: HloCall, left: bool, lower: bool, unit: bool, turned: bool) -> str:
    """``lower`` is said of ``a`` after it was ``turned``.  From the right: of both turned."""
    a, b = call.inputs[:2]
    a = _swapped(call, a) if turned == left else a
    found = solved(call, a, b if left else _swapped(call, b), lower == left, unit)
    return converted(call, found if left else _swapped(call, found), call.dtype())


def factored(call: HloCall, lower: bool) -> str:
    """Cholesky's factor of operand 0, of which one triangle is read; NaN where there is none."""
    a = _computed(call, call.input(0) if lower else _swapped(call, call.input(0)))
    type = call.type_of(a)
    rows = type.shape[-1]

    def step(build: GraphBuilder, count: Index, x: str, operands: Sequence[str]) -> str:
        row = _part(build, x, {-2: count})
        rank = type.rank
        across = build.emit(Transpose((*range(rank - 2), rank - 1, rank - 2)), row.name)
        column = _part(build, operands[0], {-1: count}) - of(
            MatMul(), Value(build, x), Value(build, across)
        )
        column = column / of(ew.Sqrt(), _part(build, column.name, {-2: count}))
        line = Value(build, build.emit(Iota((rows, 1), 0)))
        below = of(ew.GreaterOrEqual(), line, Value(build, build.emit(Indices((count,), ()))))
        return _put(build, x, -1, count, of(ew.Where(), below, column, column.lift(0.0)))

    first = call.emit(Full(type.shape, 0, type.dtype))
    found = _stepped(call, rows, step, first, a)
    return converted(call, found if lower else _swapped(call, found), call.dtype())


def cholesky(call: HloCall) -> str:
    return factored(call, bool(call.attribute("lower", False)))


def _option(call: HloCall, name: str, letter: str) -> bool:
    """Whether an option of LAPACK is ``letter``."""
    found: Mapping[str, int] = call.attribute("mhlo.backend_config") or {}
    return found.get(name) == ord(letter)


def potrf(call: HloCall) -> Sequence[str]:
    """LAPACK's factor, and for each matrix 0 if there is one: else it has a NaN."""
    found = factored(call, _option(call, "uplo", "L"))
    odd = call.emit(ew.Cast(I32), call.emit(ew.IsNaN(), found))
    rank = call.rank()
    return found, call.emit(ReduceMax((rank - 2, rank - 1), False), odd)


def trsm(call: HloCall) -> str:
    """BLAS's triangular system."""
    turned, left = not _option(call, "trans_x", "N"), _option(call, "side", "L")
    lower = _option(call, "uplo", "L")
    return _solved_on(call, left, lower != turned, _option(call, "diag", "U"), turned)


LINEAR_ALGEBRA = table(triangular_solve=triangular_solve, cholesky=cholesky)
LAPACK = MappingProxyType(
    {
        **{f"lapack_{letter}potrf_ffi": potrf for letter in "sd"},
        **{f"lapack_{letter}trsm_ffi": trsm for letter in "sd"},
    }
)
"""Custom calls of jax on processors."""
