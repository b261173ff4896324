"""Parts of matrices (the last two axes of a value): triangles, diagonals, identities."""

from __future__ import annotations

from modelcc.frontends.kit.stretching import common_shape
from modelcc.ir.index import Bounds, Index, minimum
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Expand
from modelcc.ops.gather_elements import GatherElements
from modelcc.ops.generate import Iota
from modelcc.ops.matmul import MatMul
from modelcc.ops.matrix_values import block, column
from modelcc.ops.reduce import ReduceSum
from modelcc.ops.shape import Concat, Transpose
from modelcc.ops.views import cast, part


def swapped(x: Value) -> Value:
    """The transposes of the matrices."""
    axes = list(range(x.type.rank))
    axes[-2:] = axes[-1], axes[-2]
    return of(Transpose(tuple(axes)), x)


def product(*factors: Value) -> Value:
    """The product of the matrices."""
    first, *rest = factors
    for other in rest:
        first = of(MatMul(), first, other)
    return first


def expanded(x: Value, shape: tuple[Index, ...]) -> Value:
    """``x`` expanded to a shape that it broadcasts to."""
    return x if x.type.shape == shape else of(Expand(shape), x)


def batched(bounds: Bounds, *matrices: Value) -> list[Value]:
    """All with broadcast leading axes."""
    outer = common_shape([x.type.shape[:-2] for x in matrices], bounds)
    return [expanded(x, (*outer, *x.type.shape[-2:])) for x in matrices]


def identity(like: Value, rows: Index, columns: Index) -> Value:
    """Identity matrices, for each of the matrices of ``like``."""
    own = cast(_on_diagonal(like, rows, columns), like.type.dtype)
    return expanded(own, (*like.type.shape[:-2], rows, columns))


def _on_diagonal(like: Value, rows: Index, columns: Index) -> Value:
    """The mask of the diagonal."""
    build = like.build
    lines = (Iota((rows, 1), 0), Iota((1, columns), 1))
    return of(ew.Equal(), *(Value(build, build.emit(line)) for line in lines))


def diagonal(x: Value) -> Value:
    """The diagonals [..., min(m, n)]."""
    rows, columns = x.type.shape[-2:]
    least = minimum(rows, columns)
    square = block(x, least, least)
    own = of(ew.Where(), _on_diagonal(x, least, least), square, square.lift(0.0))
    return of(ReduceSum((x.type.rank - 2,), False), own)


def rows_in(order: Value, x: Value) -> Value:
    """The rows of ``x`` in the ``order`` [..., rows]."""
    return of(GatherElements(x.type.rank - 2), x, expanded(column(order), x.type.shape))


def reversed_along(x: Value, axis: int) -> Value:
    """``x`` reversed along ``axis``, counted from the end."""
    extent = x.type.shape[axis]
    return part(x, axis, extent - 1, extent, -1)


def beside(*parts: Value) -> Value:
    """Matrices concatenated along columns."""
    first = parts[0]
    names = [p.name for p in parts]
    return Value(first.build, first.build.emit(Concat(first.type.rank - 1), *names))
