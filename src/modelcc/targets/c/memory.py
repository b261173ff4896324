"""Loads and stores as C expressions; bools are bytes in memory and masks in vectors."""

from __future__ import annotations

from modelcc.ir.index import Index
from modelcc.ir.types import BOOL, DType
from modelcc.targets.c.arithmetic import ArithmeticCode
from modelcc.targets.c.code import CExpression, Code
from modelcc.targets.c.indices import IndexCode
from modelcc.targets.c.prelude import Prelude
from modelcc.targets.c.values import constant
from modelcc.targets.c.vectors import VectorFunctions


class MemoryCode:
    """Prints accesses to the buffers visible in ``code``."""

    def __init__(
        self, code: Code, prelude: Prelude, index: IndexCode, arithmetic: ArithmeticCode
    ) -> None:
        self._code = code
        self._index = index
        self._prelude = prelude
        self._vectors = VectorFunctions(prelude)
        self._arithmetic = arithmetic

    def address(self, name: str, offset: Index) -> str:
        """Pointer to an element."""
        return f"&{self._element(name, offset)}" if offset != 0 else self._code.buffer(name)[0]

    def load(
        self, name: str, offset: Index, lanes: int, stride: Index, active: Index | None
    ) -> CExpression:
        """Lane l is element ``offset + l*stride``; lanes from ``active`` on are 0."""
        dtype = self._code.buffer(name)[1].dtype
        rest = self._active(active, lanes)
        if lanes == 1:
            return self._scalar(self._element(name, offset), dtype, rest)
        if stride == 0 and rest is None:
            one = self._scalar(self._element(name, offset), dtype, None)
            return self._arithmetic.splat(one, dtype, lanes)
        pointer = self.address(name, offset)
        if stride == 1:
            vectors = self._vectors
            function = (vectors.load if rest is None else vectors.load_first)(dtype, lanes)
            return self._from_memory(_called(function, pointer, rest), dtype, lanes)
        function = self._vectors.load_strided(dtype, lanes, rest is not None)
        text = _called(function, pointer, self._index.text(stride), rest)
        return self._from_memory(text, dtype, lanes)

    def gather(
        self,
        name: str,
        offset: Index,
        at: CExpression,
        kind: DType,
        lanes: int,
        active: Index | None,
    ) -> CExpression:
        """Lane l is element ``offset + at[l]``."""
        dtype = self._code.buffer(name)[1].dtype
        rest = self._active(active, lanes)
        if lanes == 1:
            return self._scalar(self._moved(name, offset, at), dtype, rest)
        function = self._vectors.gather(dtype, lanes, kind, rest is not None)
        text = _called(function, self.address(name, offset), at.text, rest)
        return self._from_memory(text, dtype, lanes)

    def store(
        self,
        name: str,
        offset: Index,
        value: CExpression,
        lanes: int,
        stride: Index,
        active: Index | None,
    ) -> None:
        """Element ``offset + l*stride`` becomes lane l; lanes from ``active`` on are kept."""
        dtype = self._code.buffer(name)[1].dtype
        rest = self._active(active, lanes)
        if lanes == 1:
            self._store_scalar(self._element(name, offset), value, rest)
            return
        stored, pointer = self._to_memory(value, dtype, lanes), self.address(name, offset)
        if stride == 1:
            vectors = self._vectors
            function = (vectors.store if rest is None else vectors.store_first)(dtype, lanes)
            self._code.line(f"{_called(function, pointer, stored.text, rest)};")
            return
        function = self._vectors.store_strided(dtype, lanes, rest is not None)
        step = self._index.text(stride)
        self._code.line(f"{_called(function, pointer, stored.text, step, rest)};")

    def scatter(
        self,
        name: str,
        offset: Index,
        at: CExpression,
        kind: DType,
        value: CExpression,
        lanes: int,
        active: Index | None,
    ) -> None:
        """Element ``offset + at[l]`` becomes lane l."""
        dtype = self._code.buffer(name)[1].dtype
        rest = self._active(active, lanes)
        if lanes == 1:
            self._store_scalar(self._moved(name, offset, at), value, rest)
            return
        function = self._vectors.scatter(dtype, lanes, kind, rest is not None)
        stored, pointer = self._to_memory(value, dtype, lanes), self.address(name, offset)
        self._code.line(f"{_called(function, pointer, at.text, stored.text, rest)};")

    def _element(self, name: str, offset: Index) -> str:
        return f"{self._code.buffer(name)[0]}[{self._index.text(offset)}]"

    def _moved(self, name: str, offset: Index, at: CExpression) -> str:
        start = "" if offset == 0 else f"{self._index.text(offset)} + "
        return f"{self._code.buffer(name)[0]}[{start}{at.inner if start else at.text}]"

    def _active(self, active: Index | None, lanes: int) -> str | None:
        """The number of active lanes; None if all are provably active."""
        if active is None or self._index.at_least(active, lanes):
            return None
        return self._index.text(active)

    def _scalar(self, element: str, dtype: DType, rest: str | None) -> CExpression:
        if dtype == BOOL:
            element = f"{element} != 0"
        if rest is not None:
            return CExpression(f"{rest} > 0 ? {element} : {constant(0, dtype)}", False)
        return CExpression(element, dtype != BOOL)

    def _store_scalar(self, element: str, value: CExpression, rest: str | None) -> None:
        guard = "" if rest is None else f"if ({rest} > 0) "
        self._code.line(f"{guard}{element} = {value.text};")

    def _from_memory(self, text: str, dtype: DType, lanes: int) -> CExpression:
        if dtype != BOOL:
            return CExpression(text)
        return CExpression(f"({self._prelude.mask(8, lanes)})({text} != 0)", True, 8)

    def _to_memory(self, value: CExpression, dtype: DType, lanes: int) -> CExpression:
        if dtype != BOOL:
            return value
        mask = self._arithmetic.remask(value, 8, lanes)
        return CExpression(f"({self._prelude.vector(BOOL, lanes)})-{mask.inner}")


def _called(function: str, *arguments: str | None) -> str:
    return f"{function}({', '.join(a for a in arguments if a is not None)})"
