"""Constants that nothing reads any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from modelcc.ir.constant import Constant
from modelcc.ir.tensor import Item, Kernel, TensorProgram, item_inputs


def still_read(
    items: Sequence[Item], program: TensorProgram, constants: Mapping[str, Constant]
) -> dict[str, Constant]:
    """``constants`` without those that kernels of ``program`` read, but none of ``items``."""
    before = {t for i in program.items if isinstance(i, Kernel) for t in i.inputs}
    after = {t for i in items if isinstance(i, Kernel) for t in i.inputs}
    whole = {t for i in items if not isinstance(i, Kernel) for t in item_inputs(i)}
    gone = before - after - whole - set(program.outputs)
    return {n: c for n, c in constants.items() if n not in gone}
