"""Routines on fragments by the matrices that a SIMD-group holds (Metal)."""

from __future__ import annotations

from modelcc.ir.argument import Argument
from modelcc.ir.index import Index, floordiv
from modelcc.ir.loop import Buffer, RoutineCall
from modelcc.ir.loop_text import statement_text
from modelcc.targets.c.code import Code
from modelcc.targets.c.expressions import ExpressionCode
from modelcc.targets.isa.apple_simdgroup import (
    EDGE,
    ELEMENTS,
    MATRIX_INSTRUCTIONS,
    TYPES,
    SimdClear,
    SimdLoad,
    SimdMultiply,
    SimdStore,
)

_SHAPE = f"{EDGE}, {EDGE}"


def matrix_array(name: str, buffer: Buffer) -> str:
    """The declaration of fragments."""
    if buffer.dtype not in TYPES or not isinstance(buffer.size, int):
        raise NotImplementedError(f"Metal has no matrices of {buffer.dtype}")
    return f"simdgroup_matrix<{TYPES[buffer.dtype]}, {_SHAPE}> {name}[{buffer.size // ELEMENTS}];"


class MatrixCode:
    """Prints routines on fragments into ``code``; ``memory`` and ``shared`` are the qualifiers of
    pointers into memory of either kind."""

    def __init__(self, code: Code, expressions: ExpressionCode, memory: str, shared: str) -> None:
        self._code = code
        self._expressions = expressions
        self._spaces = {"global": memory, "shared": shared}

    def call(self, s: RoutineCall) -> None:
        """A routine; ``NotImplementedError`` if Metal has none for it."""
        match MATRIX_INSTRUCTIONS.get(s.routine):
            case SimdLoad() as kind:
                to, source = s.arguments
                for place in kind.places:
                    pointer = self._pointer(source, place.offset(s.sizes[0]), "const ")
                    given = [self._matrix(to, place.number), pointer, self._index(s.sizes[0])]
                    turned = ["ulong2(0, 0)", "true"] if kind.transposed else []
                    self._line("simdgroup_load", *given, *turned)
            case SimdMultiply() as kind:
                total, left, right = s.arguments
                for c, a, b in kind.products:
                    sums = self._matrix(total, c)
                    pair = self._matrix(left, a), self._matrix(right, b)
                    self._line("simdgroup_multiply_accumulate", sums, *pair, sums)
            case SimdClear() as kind:
                name = TYPES[self._code.buffer(s.arguments[0].buffer)[1].dtype]
                for number in range(kind.count):
                    zeros = f"make_filled_simdgroup_matrix<{name}, {_SHAPE}>(0)"
                    self._code.line(f"{self._matrix(s.arguments[0], number)} = {zeros};")
            case SimdStore() as kind:
                to, sums = s.arguments
                for place in kind.places:
                    pointer = self._pointer(to, place.offset(s.sizes[0]))
                    stored = self._matrix(sums, place.number)
                    self._line("simdgroup_store", stored, pointer, self._index(s.sizes[0]))
            case _:
                raise NotImplementedError(f"Metal has no '{statement_text(s)}'")

    def _line(self, function: str, *given: str) -> None:
        self._code.line(f"{function}({', '.join(given)});")

    def _matrix(self, fragment: Argument, number: int) -> str:
        name = self._code.buffer(fragment.buffer)[0]
        return f"{name}[{self._index(floordiv(fragment.offset, ELEMENTS) + number)}]"

    def _pointer(self, place: Argument, offset: Index, kind: str = "") -> str:
        """A pointer to a matrix' element type: halves are bits elsewhere."""
        buffer = self._code.buffer(place.buffer)[1]
        memory = self._spaces[buffer.space]
        address = self._expressions.memory.address(place.buffer, place.offset + offset)
        return f"({kind}{memory}{TYPES[buffer.dtype]} *){self._inner(address)}"

    @staticmethod
    def _inner(address: str) -> str:
        return f"({address})" if address.startswith("&") else address

    def _index(self, index: Index) -> str:
        return self._expressions.index.text(index)
