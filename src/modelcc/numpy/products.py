"""Sums of products under NumPy's names, and diagonals."""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import reduce
from typing import Any

from modelcc.frontends.kit.equation import explicit
from modelcc.ir.errors import ModelError
from modelcc.ir.index import minimum
from modelcc.numpy.arrays import arange, asarray, eye
from modelcc.numpy.joining import stack
from modelcc.numpy.pairs import both, where
from modelcc.ops.matmul import Einsum
from modelcc.tensor.axes import axes_of, axis_of
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.promotion import is_complex
from modelcc.tensor.tensor import Tensor


def einsum(subscripts: str, *operands: Any) -> Tensor:
    """The sum of products in Einstein notation: ``"...ij,jk->...ik"``.

    Without an arrow the result has the letters that occur once, in alphabetical order.
    """
    first, *rest = [asarray(x) for x in operands]
    given = first.all_alike(rest)
    equation = _located(subscripts, [x.ndim for x in given])
    terms, result = equation.split("->")
    parts = terms.split(",")
    if [len(p) for p in parts] == [x.ndim for x in given]:
        parts, given = _without_single(parts, given)
    return _summed(f"{','.join(parts)}->{result}", given)


def _summed(equation: str, operands: Sequence[Tensor]) -> Tensor:
    """The sum of products of operands of one type."""

    def product(*parts: Tensor) -> Tensor:
        return parts[0].result(Einsum(equation), *parts)

    first: Any = operands[0]
    return first.multiplied(product, operands) if is_complex(first) else product(*operands)


def _located(subscripts: str, ranks: Sequence[int]) -> str:
    try:
        return explicit(subscripts, ranks)
    except ModelError as error:
        raise ModelError(error.message, callers_line(), error.hint) from error


def _without_single(
    terms: Sequence[str], operands: Sequence[Tensor]
) -> tuple[list[str], list[Tensor]]:
    """Drops axes of extent 1 whose letter has a larger extent in another operand."""
    wide = {letter for term, x in zip(terms, operands, strict=True)
            for letter, extent in zip(term, x.shape, strict=True) if extent != 1}  # fmt: skip
    letters: list[str] = []
    values: list[Tensor] = []
    for term, x in zip(terms, operands, strict=True):
        kept = [a for a, c in enumerate(term) if x.shape[a] != 1 or c not in wide]
        letters.append("".join(term[a] for a in kept))
        values.append(x.reshape(tuple(x.shape[a] for a in kept)))
    return letters, values


def matmul(x1: Any, x2: Any) -> Tensor:
    """The matrix product; a vector is a row on the left and a column on the right."""
    return asarray(x1) @ asarray(x2)


def dot(a: Any, b: Any) -> Tensor:
    """Sums over the last axis of ``a`` and the second last of ``b``; for vectors the inner
    product."""
    x, y = both(a, b)
    if not x.ndim or not y.ndim:
        return x * y
    if y.ndim <= 2:
        return x @ y
    return tensordot(x, y, ([x.ndim - 1], [y.ndim - 2]))


def vdot(a: Any, b: Any) -> Tensor:
    """The inner product of all elements, with ``a`` conjugated."""
    x, y = both(a, b)
    return x.conj().ravel() @ y.ravel()


def inner(a: Any, b: Any) -> Tensor:
    """Sums over the last axes of both."""
    x, y = both(a, b)
    return x * y if not x.ndim or not y.ndim else tensordot(x, y, ([-1], [-1]))


def outer(a: Any, b: Any) -> Tensor:
    """The matrix of products of all pairs of elements."""
    x, y = both(a, b)
    return x.ravel().expand_dims(1) * y.ravel()


def tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    """Sums over the last ``axes`` axes of ``a`` and the first of ``b``, or over pairs of axes."""
    x, y = both(a, b)
    if isinstance(axes, int):
        left, right = tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes))
    else:
        left, right = axes_of(axes[0], x.ndim), axes_of(axes[1], y.ndim)
    letters = iter(string.ascii_letters)
    mine = [next(letters) for _ in range(x.ndim)]
    other = [mine[left[right.index(k)]] if k in right else next(letters) for k in range(y.ndim)]
    result = [c for k, c in enumerate(mine) if k not in left]
    result += [c for k, c in enumerate(other) if k not in right]
    equation = f"{''.join(mine)},{''.join(other)}->{''.join(result)}"
    return _summed(equation, (x, y))


def kron(a: Any, b: Any) -> Tensor:
    """The Kronecker product: a block of ``b`` times each element of ``a``."""
    x, y = both(a, b)
    rank = max(x.ndim, y.ndim)
    x = x.reshape((*(1,) * (rank - x.ndim), *x.shape))
    y = y.reshape((*(1,) * (rank - y.ndim), *y.shape))
    wide = x.expand_dims(tuple(range(1, 2 * rank, 2)))
    tall = y.expand_dims(tuple(range(0, 2 * rank, 2)))
    return (wide * tall).reshape([d * e for d, e in zip(x.shape, y.shape, strict=True)])


def cross(a: Any, b: Any, axis: int = -1) -> Tensor:
    """The cross product of vectors of 3 along ``axis``."""
    x, y = both(a, b)
    if x.shape[axis] != 3 or y.shape[axis] != 3:
        raise ModelError(f"cross of {x.type} and {y.type}", callers_line(),
                         "vectors have 3 elements")  # fmt: skip
    u = x.split(3, axis)
    v = y.split(3, axis)
    parts = [(u[i] * v[j] - u[j] * v[i]).squeeze(axis) for i, j in ((1, 2), (2, 0), (0, 1))]
    return stack(parts, axis)


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The elements of diagonal ``offset`` of two axes, as the last axis."""
    x = asarray(a)
    first, second = axis_of(axis1, x.ndim), axis_of(axis2, x.ndim)
    others = [k for k in range(x.ndim) if k not in (first, second)]
    rows = x.transpose((*others, first, second))
    rows = rows[..., max(-offset, 0) :, max(offset, 0) :]
    places = arange(minimum(*rows.shape[-2:]))
    return rows[..., places, places]


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The sum of :func:`diagonal`."""
    return diagonal(a, offset, axis1, axis2).sum(-1)


def diag(v: Any, k: int = 0) -> Tensor:
    """A matrix with the vector ``v`` on diagonal ``k``, or that diagonal of a matrix."""
    x = asarray(v)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ModelError(f"diag of {x.type}", callers_line(), "give a vector or a matrix")
    line = x.pad((max(k, 0), max(-k, 0)))
    size = line.shape[0]
    return where(eye(size, k=k, dtype=bool), line, 0)


def multi_dot(arrays: Sequence[Any]) -> Tensor:
    """The matrix product of all, from the left."""
    return reduce(matmul, arrays)
