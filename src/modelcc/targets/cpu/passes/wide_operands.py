"""Operands of bf16 stored as f32 if no instruction multiplies them directly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from modelcc.ir.index import Sym, product
from modelcc.ir.scalar_tree import index_symbols, reads, transform
from modelcc.ir.tensor import (
    Apply,
    Cast,
    Guard,
    Kernel,
    Number,
    Read,
    Scalar,
    Stage,
    TensorProgram,
    item_inputs,
    item_outputs,
)
from modelcc.ir.types import BF16, F32, Array
from modelcc.passes.tensor.added_constants import still_read
from modelcc.passes.tensor.made_constant import MadeConstant

WIDE = ".wide"
"""Suffix of the names of constants of f32."""


@dataclass(frozen=True)
class WideOperands:
    """Producers of an operand round it, and store it as f32: frequent reads need no conversion.  A
    product by a constant with a multiple of ``whole`` terms (0: none) along an axis has an
    instruction.  Constants that are used fewer than ``reuse`` times stay, as their reads are
    memory-bound; so do run-time operands, if either is."""

    whole: int = 0
    reuse: int = 8

    def __call__(self, program: TensorProgram) -> TensorProgram:
        makers = frozenset(_made_by_elements(program))
        wide: dict[str, str] = {}
        for kernel in (i for i in program.items if isinstance(i, Kernel)):
            wide.update(self._wanted(kernel, program, makers))
        if not wide:
            return program
        constants = {wide[n]: WideConstant(c) for n, c in program.constants.items() if n in wide}
        items = [_widened(i, wide) if isinstance(i, Kernel) else i for i in program.items]
        changed = {n: replace(program.types[o], dtype=F32) for o, n in wide.items()}
        kept = still_read(items, program, {**program.constants, **constants})
        gone = program.constants.keys() - kept.keys()
        types = {n: t for n, t in {**program.types, **changed}.items() if n not in gone}
        return replace(program, items=tuple(items), types=types, constants=kept)

    def _wanted(
        self, kernel: Kernel, program: TensorProgram, makers: frozenset[str]
    ) -> Iterator[tuple[str, str]]:
        """Operands of a sum of products to widen, and their names afterwards."""
        stage = kernel.stages[0]
        factors = _factors(stage)
        constants = [r for r in factors if r.tensor in program.constants]
        if len(factors) != 2 or (constants and self._multiplied(stage, factors)):
            return
        if not all(self._often(stage, r) for r in constants or factors):
            return
        for read in factors:
            if read in constants:
                yield read.tensor, f"{read.tensor}{WIDE}"
            elif read.tensor in makers:
                yield read.tensor, read.tensor

    def _multiplied(self, stage: Stage, factors: tuple[Read, ...]) -> bool:
        """Whether an instruction multiplies along an axis."""
        along = [a for a in stage.reduce if all(Sym(a.name) in r.indices for r in factors)]
        known = (a.extent for a in along if isinstance(a.extent, int))
        return self.whole > 0 and any(n % self.whole == 0 for n in known)

    def _often(self, stage: Stage, read: Read) -> bool:
        uses = product(a.extent for a in stage.axes if a.name not in index_symbols(read))
        return not isinstance(uses, int) or uses >= self.reuse


class WideConstant(MadeConstant):
    """A constant's values as f32."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the source."""
        return self._data.shape

    def fill(self, made: Array) -> None:
        """Converts all values into ``made``."""
        made[...] = self._data


def _made_by_elements(program: TensorProgram) -> Iterator[str]:
    """Tensors of bf16 that only kernels access, computed without a reduction."""
    others = {t for i in program.items if not isinstance(i, Kernel)
              for t in (*item_inputs(i), *item_outputs(i))}  # fmt: skip
    pinned = {*program.inputs, *program.outputs, *others}
    stages = [s for i in program.items if isinstance(i, Kernel) for s in i.stages]
    summed = {s.output for s in stages if s.reduce}
    made = {s.output for s in stages if s.body.dtype == BF16} - pinned - summed
    yield from sorted(made)


def _factors(stage: Stage) -> tuple[Read, ...]:
    """The operands of bf16 of a sum of products in f32."""
    if stage.combine != "sum" or not stage.reduce:
        return ()
    match _unguarded(stage.body):
        case Apply(function="mul", args=(Cast(value=a), Cast(value=b))):
            found = [r for r in map(_unguarded, (a, b)) if isinstance(r, Read) and r.dtype == BF16]
            return tuple(found) if len(found) == 2 and stage.body.dtype == F32 else ()
        case _:
            return ()


def _unguarded(scalar: Scalar) -> Scalar:
    return _unguarded(scalar.inside) if isinstance(scalar, Guard) else scalar


def _widened(kernel: Kernel, wide: dict[str, str]) -> Kernel:
    """``kernel`` with reads and stores of ``wide`` tensors, under their new names."""

    def visit(node: Scalar) -> Scalar:
        match node:
            case Read() if node.tensor in wide:
                return Cast(replace(node, tensor=wide[node.tensor], dtype=F32), BF16)
            case Guard(inside=Cast(value=Read() as r), outside=Number(value=value)) if (
                r.tensor in names and node.dtype == BF16
            ):
                return Cast(Guard(node.conditions, r, Number(value, F32), F32), BF16)
            case Cast(value=Cast(value=Read() | Guard() as inner), dtype=dtype) if (
                dtype == F32 and all(r.tensor in names for r in reads(inner))
            ):
                return inner
            case _:
                return node

    names = frozenset(wide.values())
    stages = [replace(s, body=transform(s.body, visit)) for s in kernel.stages]
    stages = [replace(s, body=Cast(s.body, F32)) if s.output in wide else s for s in stages]
    read = dict.fromkeys(r.tensor for s in stages for r in reads(s.body))
    made = {s.output for s in stages}
    return replace(kernel, stages=tuple(stages), inputs=tuple(n for n in read if n not in made))
