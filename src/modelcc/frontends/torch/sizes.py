"""Sizes of PyTorch, SymPy expressions, as indices."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, cast

import sympy
import torch
from torch.utils._sympy import functions as fn

from modelcc.frontends.kit.errors import unsupported
from modelcc.ir.index import Index, ceildiv, floordiv, maximum, minimum, mod, product, total

Names = Mapping[str, Index]
"""Indices by PyTorch's symbols."""


def index_of(size: object, names: Names) -> Index:
    """A size, ``int`` or ``SymInt``, as an index; not supported if it is not an integer
    expression."""
    if isinstance(size, torch.SymInt):
        return index_of_expression(cast(Any, size).node.expr, names)
    if isinstance(size, int):
        return size
    unsupported(f"a size that is {size!r}")


def symbol_of(size: object) -> str | None:
    """The symbol name of a size that is a single symbol."""
    if not isinstance(size, torch.SymInt):
        return None
    expression = cast(Any, size).node.expr
    return str(expression) if isinstance(expression, sympy.Symbol) else None


def symbols_of(size: object) -> list[str]:
    """The names of all symbols of a size, in order."""
    if not isinstance(size, torch.SymInt):
        return []
    return sorted(map(str, cast(Any, size).node.expr.free_symbols))


def index_of_expression(e: sympy.Basic, names: Names) -> Index:
    """A SymPy expression as an index; not supported if it is not an integer one."""
    if isinstance(e, sympy.Integer):
        return int(e)
    if isinstance(e, sympy.Symbol):
        if str(e) not in names:
            unsupported(f"the size {e}, which no input has and no operator made known")
        return names[str(e)]
    if isinstance(e, sympy.Add):
        return total([index_of_expression(a, names) for a in e.args])
    if isinstance(e, sympy.Mul):
        return _multiplied(e, names)
    if isinstance(e, sympy.Pow):
        base, power = e.args
        if isinstance(power, sympy.Integer) and int(power) >= 0:
            return product([index_of_expression(base, names)] * int(power))
    return _of_function(e, names)


def _multiplied(e: sympy.Basic, names: Names) -> Index:
    """A product; a rational factor divides: PyTorch uses it only for exact division."""
    top, bottom = e.as_numer_denom()
    if not (isinstance(bottom, sympy.Integer) and int(bottom) == 1):
        return floordiv(index_of_expression(top, names), index_of_expression(bottom, names))
    return product(index_of_expression(a, names) for a in e.args)


def _of_function(e: sympy.Basic, names: Names) -> Index:
    args = [index_of_expression(a, names) for a in e.args]
    if isinstance(e, fn.FloorDiv | fn.CleanDiv | fn.IntTrueDiv):
        return floordiv(*args)
    if isinstance(e, fn.CeilDiv):
        return ceildiv(*args)
    if isinstance(e, fn.Mod | fn.PythonMod):
        return mod(*args)
    if isinstance(e, fn.ModularIndexing):
        return mod(floordiv(args[0], args[1]), args[2])
    if isinstance(e, fn.Max | sympy.Max):
        return reduce(maximum, args)
    if isinstance(e, fn.Min | sympy.Min):
        return reduce(minimum, args)
    unsupported(f"the size {e}")
