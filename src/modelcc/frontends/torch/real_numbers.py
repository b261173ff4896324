"""Floating-point numbers that PyTorch computes from sizes (SymPy expressions), as values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial, reduce
from types import MappingProxyType
from typing import Any, cast

import sympy
import torch
from torch.utils._sympy import functions

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.torch.aten import Aten
from modelcc.frontends.torch.sizes import Names, index_of_expression
from modelcc.ir.op import Op
from modelcc.ir.types import F64
from modelcc.ops import elementwise as ew
from modelcc.ops import transcendental as tr
from modelcc.ops.arithmetic import Value, of

TAKING = frozenset({
    *("add", "sub", "rsub", "mul", "div", "pow", "remainder", "fmod"),
    *("eq", "ne", "lt", "le", "gt", "ge", "where", "clamp", "maximum", "minimum"),
    *("full", "new_full", "full_like", "fill", "scalar_tensor"),
})  # fmt: skip
"""Operators whose numeric arguments may be computed ones."""

_FN: Any = functions
_SYMPY: Any = sympy

_OPS: Mapping[type, Op] = MappingProxyType({
    _SYMPY.Add: ew.Add(), _SYMPY.Mul: ew.Mul(), _SYMPY.Pow: tr.Pow(), _FN.FloatPow: tr.Pow(),
    _FN.IntTrueDiv: ew.Div(), _FN.FloatTrueDiv: ew.Div(), _FN.Max: ew.Max(), _FN.Min: ew.Min(),
    _FN.OpaqueUnaryFn_sqrt: tr.Sqrt(), _FN.OpaqueUnaryFn_exp: tr.Exp(),
    _FN.OpaqueUnaryFn_log: tr.Log(),
})  # fmt: skip


def real_number(call: Aten, given: torch.SymFloat, names: Names) -> Value:
    """``given`` as an f64 scalar; not supported unless ``call`` takes one."""
    expression = cast(Any, given).node.expr
    if call.target.removeprefix("aten.").partition(".")[0] not in TAKING:
        unsupported(f"its operand {expression}, which depends on sizes")
    return _computed(call, expression, names)


def _computed(call: Aten, e: Any, names: Names) -> Value:
    if isinstance(e, _SYMPY.Number):
        return call.literal(float(e), F64)
    if e.is_integer or isinstance(e, _FN.ToFloat):
        whole = e.args[0] if isinstance(e, _FN.ToFloat) else e
        return call.as_value(index_of_expression(whole, names), F64)
    op = _OPS.get(e.func)
    if op is None:
        unsupported(f"the number {e}")
    first, *others = (_computed(call, a, names) for a in e.args)
    return reduce(partial(of, op), others, first) if others else of(op, first)
