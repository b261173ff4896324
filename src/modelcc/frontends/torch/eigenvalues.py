"""Handlers of eigenvalues of general matrices, which are complex; computed in f64.

Their order differs from PyTorch's, as does the scaling of eigenvectors, which PyTorch leaves open.
"""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.frontends.kit import linear_algebra as la
from modelcc.frontends.kit.complex_functions import Complex
from modelcc.frontends.torch.aten import Aten, Result, table
from modelcc.frontends.torch.complex_parts import joined, operand, parts_of, real_type
from modelcc.ir.types import F64
from modelcc.ops.arithmetic import Value
from modelcc.ops.views import cast


def _found(call: Aten, x: Value) -> Sequence[Value]:
    """Eigenvalues and eigenvectors in the type of the result."""
    part = real_type(call.result.dtype)

    def narrowed(z: Complex) -> Value:
        return joined(call, cast(z.re, part), cast(z.im, part))

    return [*map(narrowed, la.eig(operand(call, x, F64), parts_of(x) is None))]


def eig(call: Aten, x: Value) -> Result:
    return _found(call, x)


def eigenvalues(call: Aten, x: Value) -> Result:
    return _found(call, x)[0]


EIGENVALUES = table(
    linalg_eig=eig,
    **dict.fromkeys(("linalg_eigvals", "_linalg_eigvals"), eigenvalues),
)
