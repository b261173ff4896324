"""Systems of triangular matrices (Golub and Van Loan, Matrix Computations, 3.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.algorithm import AlgorithmBuilder, call
from modelcc.ir.compute import Inputs, Outputs
from modelcc.ir.op import Builder, Gradients, Op, Values, require
from modelcc.ir.types import F64, Array, TensorType
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.matrix_rows import count_of, require_matrices, rows_of, subtract_scaled
from modelcc.ops.matrix_values import lower, product, swapped, upper
from modelcc.ops.samples import bounded, sample, tensor


@dataclass(frozen=True)
class TriangularSolve(Op):
    """``x`` [..., n, m] with ``a @ x = b``: of a [..., n, n] one triangle is read, without the
    diagonal if that is ``unit``.  Zeros of it give infinities and NaN.
    """

    lower: bool = True
    unit: bool = False
    samples = (
        *(
            bounded((1.0, 2.0), tensor(2, 4, 4), tensor(2, 4, 3), lower=lower, unit=unit)
            for lower in (True, False)
            for unit in (True, False)
        ),
        bounded((1.0, 2.0), tensor(5, 5, dtype=F64), tensor(5, 19, dtype=F64)),
        bounded((1.0, 2.0), tensor("b", "n", "n"), tensor("b", "n", 1)),
        sample(tensor(2, 0, 0), tensor(2, 0, 3)),
    )

    def infer(self, a: TensorType, b: TensorType) -> tuple[TensorType]:
        require_matrices(a, "TriangularSolve", square=True)
        fits = a.dtype == b.dtype and a.shape[:-1] == b.shape[:-1] and a.rank == b.rank
        require(fits, f"TriangularSolve of {a} and {b}, which do not fit")
        return (b,)

    def reference(self, a: Array, b: Array) -> Array:
        x, n = np.zeros_like(b), a.shape[-1]
        for i in range(n) if self.lower else reversed(range(n)):
            rest = b[..., i, :] - (a[..., i, None, :] @ x)[..., 0, :]
            x[..., i, :] = rest if self.unit else rest / a[..., i, i, None]
        return x

    def algorithm(self, at: AlgorithmBuilder, inputs: Inputs, outputs: Outputs) -> None:
        (a, b), (y,) = inputs, outputs
        assert a is not None and b is not None
        n, width = b.shape[-2:]
        with at.shared_loop(count_of(b.type), b.type.elements * n) as matrix:
            left, right, x = rows_of(a, matrix), rows_of(b, matrix), rows_of(y, matrix)
            with at.loop(0, n) as step:
                i = step if self.lower else n - 1 - step
                own = x.row(i)
                at.copy(y, own.start, b, right.row(i).start, width)
                first, stop = (0, i) if self.lower else (i + 1, n)
                with at.loop(first, stop) as k:
                    subtract_scaled(at, own, x.row(k), at.let(left.load(at, i, k)), width)
                if not self.unit:
                    divisor = at.let(left.load(at, i, i))
                    with at.loop(0, width) as j:
                        own.store(at, j, call("div", own.load(at, j), divisor))

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        """``db = a^-T dx`` and ``da = -db x^T`` (Giles 2008, 2.3.1), of the triangle that is
        read."""
        a, x, dy = (Value(build, name) for name in (inputs[0], outputs[0], dys[0]))
        db = of(replace(self, lower=not self.lower), swapped(a), dy)
        da = -product(db, swapped(x))
        edge = 1 if self.unit else 0
        return (lower(da, -edge) if self.lower else upper(da, edge)).name, db.name


def solved(a: Value, b: Value, is_lower: bool, unit: bool = False) -> Value:
    """``x`` with ``a @ x = b``, of a triangle of ``a``."""
    return of(TriangularSolve(is_lower, unit), a, b)


def divided(a: Value, b: Value) -> Value:
    """``a @ b^-T`` of an upper triangle ``b``."""
    return swapped(solved(b, swapped(a), False))
