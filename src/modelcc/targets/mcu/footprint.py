"""A model's use of a microcontroller's memories: exact, except for code that was not built."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from modelcc.ir.loop_traversal import statements
from modelcc.targets.mcu.cross_compiler import Built, CrossCompiler
from modelcc.targets.mcu.delivery.files import embedded_files
from modelcc.targets.mcu.delivery.model import ConstantArray, EmbeddedModel

STATEMENT_BYTES = 14
"""Average bytes of code per statement of a loop function, of the kernels of DS-CNN and ResNet-8
compiled by GCC for a Cortex-M4 with -O2."""


@dataclass(frozen=True)
class Footprint:
    """Bytes.  Of RAM: the ``arena``, ``states``, and the ``stack`` of a call (None: unknown).
    Of flash: ``weights`` are constants with several extents, ``tables`` the others (multipliers,
    biases, functions of bytes), ``code`` the model's own, ``library`` that of linked libraries.

    ``compiler`` has built it (empty: code is estimated, libraries are not counted); the stack of
    functions ``beside`` it is unknown.
    """

    arena: int
    states: int
    stack: int | None
    weights: int
    tables: int
    code: int
    library: int
    compiler: str = ""
    beside: tuple[str, ...] = ()

    @property
    def ram(self) -> int:
        """Total RAM."""
        return self.arena + self.states + (self.stack or 0)

    @property
    def flash(self) -> int:
        """Total flash."""
        return self.weights + self.tables + self.code + self.library


def footprint(model: EmbeddedModel, compiler: CrossCompiler | None) -> Footprint:
    """The footprint of ``model``; without a compiler its code is estimated."""
    states = [state.type.bytes for state in model.states]
    kept = sum(size for size in states if isinstance(size, int))
    if compiler is None:
        count = sum(len(statements(function.body)) for function in model.program.functions)
        weights, tables = _constants(model.arrays)
        return Footprint(model.arena, kept, None, weights, tables, count * STATEMENT_BYTES, 0)
    built = compiler.measure(embedded_files(model), model.name)
    weights, tables = _constants(one for one in model.arrays if one.field in built.arrays)
    code = sum(built.functions.values()) + _own_tables(model, built)
    return Footprint(
        model.arena, kept, built.stack, weights, tables, code, built.library,
        built.version, built.unknown,
    )  # fmt: skip


def _constants(arrays: Iterable[ConstantArray]) -> tuple[int, int]:
    """Bytes of weights and of tables."""
    weights = tables = 0
    for one in arrays:
        if one.is_weight:
            weights += one.bytes
        else:
            tables += one.bytes
    return weights, tables


def _own_tables(model: EmbeddedModel, built: Built) -> int:
    """Bytes of constants that the compiler has generated."""
    fields = {one.field for one in model.arrays}
    return sum(size for name, size in built.arrays.items() if name not in fields)
