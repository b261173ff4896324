"""Text of :class:`IndexBound`, as the tensor and the program level have it, and its reader.

``below [n] wrapped noun "length" of "axis 0 of 'x'" from "Gather_3"``
"""

from __future__ import annotations

from modelcc.ir.index_bound import IndexBound
from modelcc.ir.loop_parser import LoopScanner, parse_source
from modelcc.ir.loop_text import source_text
from modelcc.ir.mlir_syntax import string_text


def bound_text(bound: IndexBound) -> str:
    """What :func:`parse_bound` reads back."""
    wrapped = " wrapped" if bound.wrapped else ""
    number = f" number {bound.number}" if bound.number else ""
    noun = f" noun {string_text(bound.noun)}" if bound.noun != "index" else ""
    what = f" of {string_text(bound.what)}" if bound.what else ""
    return f"below [{bound.extent}]{wrapped}{number}{noun}{what}{source_text(bound.source)}"


def parse_bound(at: LoopScanner) -> IndexBound | None:
    """The bound at the scanner's position, if there is one."""
    if not at.accept("below "):
        return None
    at.expect("[")
    extent = at.index_before("]")
    at.expect("]")
    wrapped = at.accept("wrapped")
    number = int(at.take("number")) if at.accept("number ") else 0
    noun = at.string() if at.accept("noun ") else "index"
    what = at.string() if at.accept("of ") else ""
    return IndexBound(extent, what, noun, wrapped, parse_source(at), number)
