"""Constants that a pass adds to a program, and removal of unused ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from modelcc.ir.constant import Constant
from modelcc.ir.naming import Names
from modelcc.ir.tensor import Item, Kernel, TensorProgram, item_inputs
from modelcc.ir.types import Array


class AddedConstants:
    """Constants added to those of ``program``, deduplicated."""

    def __init__(self, program: TensorProgram) -> None:
        self._program = program
        self._names = Names(program.types)
        self._added: dict[str, Constant] = {}

    def contents(self, name: str) -> Array | None:
        """The contents of the constant ``name``; None if there is none."""
        found = self._added.get(name) or self._program.constants.get(name)
        return None if found is None else found.data

    def add(self, data: Array, name: str) -> str:
        """The name of a constant with contents ``data``: an equal added one's, or ``name``."""
        constant = Constant(data)
        same = next((n for n, c in self._added.items() if c == constant), None)
        found = same or self._names.fresh(name)
        self._added[found] = constant
        return found

    def with_items(self, items: Sequence[Item]) -> TensorProgram:
        """The program with ``items`` and all added constants."""
        types = {**self._program.types, **{n: c.type for n, c in self._added.items()}}
        constants = {**self._program.constants, **self._added}
        return replace(self._program, items=tuple(items), types=types, constants=constants)


def still_read(
    items: Sequence[Item], program: TensorProgram, constants: Mapping[str, Constant]
) -> dict[str, Constant]:
    """``constants`` without those that only replaced kernels of ``program`` read."""
    before = {t for i in program.items if isinstance(i, Kernel) for t in i.inputs}
    after = {t for i in items if isinstance(i, Kernel) for t in i.inputs}
    whole = {t for i in items if not isinstance(i, Kernel) for t in item_inputs(i)}
    gone = before - after - whole - set(program.outputs)
    return {n: c for n, c in constants.items() if n not in gone}
