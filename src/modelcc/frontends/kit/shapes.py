"""Shape arithmetic: constant folding of ops on known contents, possibly symbolic.

Contents are NumPy arrays: of numbers, or object arrays whose elements are numbers,
:data:`~modelcc.ir.index.Index` and :class:`~modelcc.frontends.kit.ratio.Ratio`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from modelcc.frontends.kit import ratio
from modelcc.frontends.kit.ratio import Element, Ratio, compared
from modelcc.ir.index import (
    Bounds,
    Comparison,
    Expr,
    Index,
    floordiv,
    maximum,
    minimum,
    mod,
    simplify,
)
from modelcc.ir.op import Op
from modelcc.ir.types import BOOL, Array, DType
from modelcc.ops import elementwise as ew
from modelcc.ops import reduce as rd
from modelcc.ops.gather import Gather

LIMIT = 1024
"""Shapes are short: longer contents are data and stay in the graph."""

NAMED_LIMIT = 1 << 14
"""As `LIMIT`, for contents with symbols: the sizes of as many parts."""

Contents = Array


@dataclass(frozen=True)
class Facts:
    """What a rule uses besides the operands: the result's dtype, bounds of the symbols."""

    dtype: DType
    bounds: Bounds


Rule = Callable[[Op, Sequence[Contents], Facts], Contents | None]

Function = Callable[..., "Element | None"]
"""An element of the result from those of the operands; None if it is unknown."""


def is_symbolic(contents: Contents) -> bool:
    """Whether any element is symbolic."""
    return contents.dtype == object and any(
        isinstance(e, Expr | Ratio) for e in contents.reshape(-1).tolist()
    )


def is_data(contents: Contents) -> bool:
    """Whether there are too many elements for a shape."""
    return contents.size > LIMIT and (contents.size > NAMED_LIMIT or not is_symbolic(contents))


def evaluate(op: Op, operands: Sequence[Contents | None], facts: Facts) -> Contents | None:
    """The result of the single-result ``op`` on known contents; None if it is unknown."""
    if not op.pure:
        return None
    if operands and op.symbols():
        return None
    if not any(o is not None and is_symbolic(o) for o in operands):
        with np.errstate(all="ignore"):
            found = op.reference(*operands)
        result = np.asarray(found[0] if isinstance(found, tuple) else found)
        return normalised(result, facts) if result.dtype == object else result
    if any(o is None for o in operands):
        return None
    objects = [o.astype(object) for o in operands if o is not None]
    rule = RULES.get(type(op))
    if rule is None:
        values = np.asarray(op.reference(*objects)) if op.symbolic else None
    else:
        values = rule(op, objects, facts)
    return None if values is None else normalised(values, facts)


def normalised(contents: Contents, facts: Facts) -> Contents:
    """Simplified elements; an array of ``dtype`` if all are numbers."""
    flat = [_simplified(e, facts.bounds) for e in contents.reshape(-1).tolist()]
    result = object_array(flat, contents.shape)
    return result if is_symbolic(result) else result.astype(facts.dtype.numpy)


def _simplified(e: Element, bounds: Bounds) -> Element:
    return simplify(e, bounds) if isinstance(e, Expr) else e


def object_array(elements: Sequence[Any], shape: tuple[int, ...]) -> Contents:
    """An object array of these elements."""
    array = np.empty(len(elements), object)
    array[:] = elements
    return array.reshape(shape)


def _pointwise(function: Function, operands: Sequence[Contents]) -> Contents | None:
    """``function`` on every element of the broadcast operands; None if any is None."""
    arrays = np.broadcast_arrays(*operands)
    rows = zip(*(a.reshape(-1).tolist() for a in arrays), strict=True)
    results: list[Element] = []
    for row in rows:
        value = function(*row)
        if value is None:
            return None
        results.append(value)
    return object_array(results, arrays[0].shape)


def _each(function: Callable[[Op, Facts], Function]) -> Rule:
    """The rule of an elementwise op."""
    return lambda op, operands, facts: _pointwise(function(op, facts), operands)


def _plain(function: Function) -> Rule:
    return _each(lambda op, facts: function)


def _comparison(operator: Comparison) -> Rule:
    def of(op: Op, facts: Facts) -> Function:
        def holds(a: Element, b: Element) -> bool | None:
            return compared(a, operator, b, facts.bounds)

        return holds

    return _each(of)


def _of_indices(function: Callable[[Index, Index], Index]) -> Function:
    """``function`` of two numbers that are not fractions."""

    def picked(a: Element, b: Element) -> Element | None:
        if isinstance(a, int | Expr) and isinstance(b, int | Expr):
            return function(a, b)
        return None

    return picked


def _negated(a: Element) -> Element | None:
    return ratio.multiply(a, -1)


def _chosen(condition: Element, a: Element, b: Element) -> Element:
    return a if condition else b


def _subtract(a: Element, b: Element) -> Element | None:
    negative = _negated(b)
    return None if negative is None else ratio.add(a, negative)


def _quotient(op: Op, facts: Facts) -> Function:
    def quotient(a: Element, b: Element) -> Element | None:
        if not (compared(a, ">=", 0, facts.bounds) and compared(b, ">=", 0, facts.bounds)):
            return None
        found = None if b == 0 else _of_indices(floordiv)(a, b)
        # There is no quotient by 0, so what has no remainder may be taken for all divisors.
        defined = compared(b, ">", 0, facts.bounds) or _has_no_rest(a, b, found)
        return found if defined else None

    return ratio.divide if facts.dtype.is_float else quotient


def _has_no_rest(a: Element, b: Element, quotient: Element | None) -> bool:
    whole = None if quotient is None else ratio.multiply(quotient, b)
    return whole is not None and compared(whole, "==", a, {}) is True


def _remainder(op: Op, facts: Facts) -> Function:
    def remainder(a: Element, b: Element) -> Element | None:
        return None if facts.dtype.is_float or b == 0 else _of_indices(mod)(a, b)

    return remainder


def _floor(a: Element) -> Element | None:
    if isinstance(a, float):
        return float(np.floor(a))
    return a.floor() if isinstance(a, Ratio) else a


def _ceil(a: Element) -> Element | None:
    if isinstance(a, float):
        return float(np.ceil(a))
    return a.ceil() if isinstance(a, Ratio) else a


def _converted(op: Op, facts: Facts) -> Function:
    assert isinstance(op, ew.Cast)

    def converted(a: Element) -> Element | None:
        if op.to == BOOL:
            return compared(a, "!=", 0, facts.bounds)
        if op.to.is_float:
            return a
        if isinstance(a, Ratio):
            return a.floor() if compared(a, ">=", 0, facts.bounds) else None
        return a if isinstance(a, Expr) else int(a)

    return converted


def _reduction(function: Callable[[Any, Any], Any]) -> Rule:
    ufunc = np.frompyfunc(function, 2, 1)

    def rule(op: Op, operands: Sequence[Contents], facts: Facts) -> Contents | None:
        axes: tuple[int, ...] = op.attributes()["axes"]
        values = operands[0]
        if any(values.shape[a] == 0 for a in axes):
            return None
        for axis in axes:
            values = np.asarray(ufunc.reduce(values, axis=axis, keepdims=True), object)
        return values if op.attributes()["keepdims"] else np.squeeze(values, axes)

    return rule


def _taken(op: Op, operands: Sequence[Contents], facts: Facts) -> Contents | None:
    """Elements at constant indices."""
    x, places = operands
    return None if is_symbolic(places) else np.asarray(op.reference(x, places))


RULES: Mapping[type[Op], Rule] = MappingProxyType(
    {
        ew.Add: _plain(ratio.add),
        ew.Sub: _plain(_subtract),
        ew.Mul: _plain(ratio.multiply),
        ew.Div: _each(_quotient),
        ew.Mod: _each(_remainder),
        ew.Neg: _plain(_negated),
        ew.Min: _plain(_of_indices(minimum)),
        ew.Max: _plain(_of_indices(maximum)),
        ew.Floor: _plain(_floor),
        ew.Ceil: _plain(_ceil),
        ew.Cast: _each(_converted),
        ew.Where: _plain(_chosen),
        ew.Equal: _comparison("=="),
        ew.NotEqual: _comparison("!="),
        ew.Less: _comparison("<"),
        ew.LessOrEqual: _comparison("<="),
        ew.Greater: _comparison(">"),
        ew.GreaterOrEqual: _comparison(">="),
        Gather: _taken,
        rd.ReduceSum: _reduction(lambda a, b: a + b),
        rd.ReduceProd: _reduction(lambda a, b: a * b),
        rd.ReduceMax: _reduction(maximum),
        rd.ReduceMin: _reduction(minimum),
    }
)
