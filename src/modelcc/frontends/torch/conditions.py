"""Conditions on sizes of PyTorch, SymPy expressions, as values."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial, reduce
from types import MappingProxyType
from typing import Any, cast

import sympy
import torch

from modelcc.frontends.kit.errors import UnsupportedForm, unsupported
from modelcc.frontends.torch.aten import Aten
from modelcc.frontends.torch.sizes import Names, index_of_expression
from modelcc.ir.condition import Comparison, Constraint
from modelcc.ir.op import Op
from modelcc.ir.types import BOOL, I64
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual
from modelcc.ops.logic import And, Not, Or

_SYMPY: Any = sympy

_OPS: Mapping[type, Op] = MappingProxyType({
    _SYMPY.Eq: Equal(), _SYMPY.Ne: NotEqual(), _SYMPY.Lt: Less(), _SYMPY.Le: LessOrEqual(),
    _SYMPY.Gt: Greater(), _SYMPY.Ge: GreaterOrEqual(), _SYMPY.And: And(), _SYMPY.Or: Or(),
    _SYMPY.Not: Not(),
})  # fmt: skip

_COMPARISONS: Mapping[type, Comparison] = MappingProxyType({
    _SYMPY.Eq: "==", _SYMPY.Ne: "!=", _SYMPY.Lt: "<", _SYMPY.Le: "<=", _SYMPY.Gt: ">",
    _SYMPY.Ge: ">=",
})  # fmt: skip


def condition(call: Aten, given: torch.SymBool, names: Names) -> Value:
    """Whether ``given`` holds, a scalar; not supported if it compares anything but integers."""
    return _truth(call, cast(Any, given).node.expr, names)


def assumed(given: torch.SymBool, names: Names) -> list[Constraint]:
    """The comparisons of integers that ``given`` is a conjunction of; others are omitted, as are
    those of sizes that no operator has defined yet."""
    e = cast(Any, given).node.expr
    parts = e.args if isinstance(e, _SYMPY.And) else (e,)
    found: list[Constraint] = []
    for part in parts:
        word = _COMPARISONS.get(part.func)
        with suppress(UnsupportedForm):
            if word is not None:
                left, right = (index_of_expression(a, names) for a in part.args)
                found.append((left, word, right))
    return found


def _truth(call: Aten, e: Any, names: Names) -> Value:
    if e in (_SYMPY.true, _SYMPY.false):
        return call.literal(bool(e), BOOL)
    op = _OPS.get(e.func)
    if op is None:
        unsupported(f"the condition {e}")
    if isinstance(e, _SYMPY.core.relational.Relational):
        return of(op, *(call.as_value(index_of_expression(a, names), I64) for a in e.args))
    first, *others = (_truth(call, a, names) for a in e.args)
    return reduce(partial(of, op), others, first) if others else of(op, first)
