"""Constants that a pass makes for the kernels of a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from modelcc.ir.constant import Constant
from modelcc.ir.naming import Names
from modelcc.ir.tensor import Item, TensorProgram
from modelcc.ir.types import Array


class AddedConstants:
    """What is added to the constants of ``program``, equal ones once."""

    def __init__(self, program: TensorProgram) -> None:
        self._program = program
        self._names = Names(program.types)
        self._added: dict[str, Constant] = {}

    def contents(self, name: str) -> Array | None:
        """What the constant ``name`` holds; None if there is none."""
        found = self._added.get(name) or self._program.constants.get(name)
        return None if found is None else found.data

    def add(self, data: Array, name: str) -> str:
        """A constant with the contents ``data``, called ``name`` or as it is called already."""
        constant = Constant(data)
        same = next((n for n, c in self._added.items() if c == constant), None)
        found = same or self._names.fresh(name)
        self._added[found] = constant
        return found

    def with_items(self, items: Sequence[Item]) -> TensorProgram:
        """The program with ``items`` and all that was added."""
        types = {**self._program.types, **{n: c.type for n, c in self._added.items()}}
        constants = {**self._program.constants, **self._added}
        return replace(self._program, items=tuple(items), types=types, constants=constants)
