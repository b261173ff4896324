"""Symbolic integer algebra: dimensions, tensor indices, loop extents and buffer offsets.

An :data:`Index` is an ``int`` or an :class:`Expr`. A constant is always a plain ``int``; an
``Expr`` is a polynomial with integer coefficients over *atoms*: named symbols, floor quotients,
remainders, minima and maxima. It is immutable, hashable and always in canonical form, so two
indices that print the same are equal, and ``==`` compares structure.

>>> n, m = Sym("n"), Sym("m")
>>> print((n + 1) * (m - 1) + n)
m + m*n - 1
>>> n + 3 - n
3
>>> print((8 * n + 12) // 4, "|", (n + 3) // 4, "|", -(-n // 4), "|", (n * m * 64) // (m * 16))
2*n + 3 | (n + 3) floordiv 4 | (n + 3) floordiv 4 | 4*n
>>> parse_index("min(n, 8) + (n mod 16)") == minimum(n, 8) + n % 16
True

Canonical form uses what holds for all integers; :func:`simplify`, :func:`compare` and
:func:`bounds_of` also use what is known about the symbols, given by name. Such bounds may be
symbolic: a loop variable runs to ``n - 1``. Here a reshape to ``[batch*seq, 768]`` and back:

>>> b, s, k, seq = Sym("b"), Sym("s"), Sym("k"), Sym("seq")
>>> bounds = {"seq": DIM, "s": loop_range(seq), "k": Range(0, 767)}
>>> offset = (b * seq + s) * 768 + k
>>> print(simplify(offset // 768 % seq, bounds), simplify(offset // (768 * seq), bounds))
s b
>>> compare(s + 1, "<=", seq, bounds), compare(s, "<", 5, bounds)
(True, None)
>>> bounds_of(4 * k - 1, bounds)
Interval(lo=-1, hi=3067)

``//`` and ``%`` round down, as in Python and as MLIR's ``floordiv`` and ``mod`` do for positive
divisors. An expression has a value only where no divisor in it is 0; rewrites assume this.

The affine part of it is the quasi-affine expressions of Feautrier, *Parametric integer
programming* (RAIRO 1988).
"""

from modelcc.ir.index_affine import (
    coefficient,
    divisions,
    evaluate,
    split_affine,
    substitute,
    total,
    without,
)
from modelcc.ir.index_bounds import bounds_of
from modelcc.ir.index_expr import (
    Atom,
    Expr,
    FloorDiv,
    FloorMod,
    Index,
    Sym,
    ceildiv,
    floordiv,
    mod,
    product,
    symbols,
)
from modelcc.ir.index_extremum import (
    IndexMax,
    IndexMin,
    broadcast_extent,
    broadcast_parts,
    maximum,
    minimum,
)
from modelcc.ir.index_interval import DIM, Bounds, Interval, Range, loop_range
from modelcc.ir.index_names import quote_name
from modelcc.ir.index_simplify import Comparison, compare, divides, index_size, simplify
from modelcc.ir.index_text import compile_index, compile_shapes, parse_index, python_source

__all__ = [
    "DIM",
    "Atom",
    "Bounds",
    "Comparison",
    "Expr",
    "FloorDiv",
    "FloorMod",
    "Index",
    "IndexMax",
    "IndexMin",
    "Interval",
    "Range",
    "Sym",
    "bounds_of",
    "broadcast_extent",
    "broadcast_parts",
    "ceildiv",
    "coefficient",
    "compare",
    "compile_index",
    "compile_shapes",
    "divides",
    "divisions",
    "evaluate",
    "floordiv",
    "index_size",
    "loop_range",
    "maximum",
    "minimum",
    "mod",
    "parse_index",
    "product",
    "python_source",
    "quote_name",
    "simplify",
    "split_affine",
    "substitute",
    "symbols",
    "total",
    "without",
]
