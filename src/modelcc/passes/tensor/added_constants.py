"""Constants that a pass makes for the kernels of a program, and those that none reads any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from modelcc.ir.constant import Constant
from modelcc.ir.naming import Names
from modelcc.ir.tensor import Item, Kernel, TensorProgram, item_inputs
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


def still_read(
    items: Sequence[Item], program: TensorProgram, constants: Mapping[str, Constant]
) -> dict[str, Constant]:
    """``constants`` without those that kernels of ``program`` read, but none of ``items``."""
    before = {t for i in program.items if isinstance(i, Kernel) for t in i.inputs}
    after = {t for i in items if isinstance(i, Kernel) for t in i.inputs}
    whole = {t for i in items if not isinstance(i, Kernel) for t in item_inputs(i)}
    gone = before - after - whole - set(program.outputs)
    return {n: c for n, c in constants.items() if n not in gone}
