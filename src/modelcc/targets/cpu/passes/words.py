"""Words of two 16-bit integers, or four bytes: packing neighbours along a dimension."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeAlias

from modelcc.ir.index import Index, Sym, ceildiv, floordiv
from modelcc.ir.scalar_tree import cost, reads, substitute_indices, walk
from modelcc.ir.tensor import (
    Apply,
    Axis,
    Bind,
    Cast,
    Condition,
    Guard,
    Kernel,
    Number,
    Scalar,
    Stage,
    TensorProgram,
    item_inputs,
)
from modelcc.ir.types import I8, I16, I32, U8
from modelcc.passes.tensor.fused_kernel import kernel_of

HALF = 16
LOW = (1 << HALF) - 1
"""Bits of an integer in a word, and the mask of the lower one."""

BYTES = 4
"""Bytes in a word."""

CHEAP = 2
"""Maximum cost of a producer that is fused into packing rather than a kernel of its own."""


def pairs_of(extent: Index) -> Index:
    """Number of words of ``extent`` integers."""
    return ceildiv(extent, 2)


def word_of(number: int) -> int:
    """The word that holds ``number`` twice."""
    word = (number & LOW) | (number & LOW) << HALF
    return word - (1 << 2 * HALF) if word >> (2 * HALF - 1) else word


def paired(
    output: str, axes: Sequence[Axis], dim: int, source: Scalar, nodes: tuple[str, ...]
) -> Iterator[Kernel]:
    """Kernels that pack ``source``, a narrow integer for each point of ``axes``, into words along
    ``dim``; an odd last one has a word of its own."""
    name, extent = axes[dim].name, axes[dim].extent
    whole = floordiv(extent, 2)

    def word(place: Index, alone: bool) -> Scalar:
        low = Apply("and", (_number(source, name, place * 2), Number(LOW, I32)), I32)
        if alone:
            return low
        high = _number(source, name, place * 2 + 1)
        return Apply("or", (low, Apply("shl", (high, Number(HALF, I32)), I32)), I32)

    for start, count in ((0, whole), (whole, extent - whole * 2)):
        if count != 0:
            body = word(Sym(name) + start, start != 0)
            yield _packing(output, axes, dim, (start, count), body, nodes)


def bytes_of(
    output: str, axes: Sequence[Axis], dim: int, source: Scalar, nodes: tuple[str, ...]
) -> Iterator[Kernel]:
    """Kernels that make words of four bytes, the last padded with zeros."""
    name, extent = axes[dim].name, axes[dim].extent
    whole = floordiv(extent, BYTES)

    def part(place: Index, byte: int, last: bool) -> Scalar:
        at = place * BYTES + byte
        number: Scalar = Apply("and", (_number(source, name, at), Number(255, I32)), I32)
        if last:
            number = Guard((Condition(extent - at, ">", 0),), number, Number(0, I32), I32)
        return number if byte == 0 else Apply("shl", (number, Number(8 * byte, I32)), I32)

    for start, count in ((0, whole), (whole, ceildiv(extent, BYTES) - whole)):
        if count != 0:
            parts = (part(Sym(name) + start, byte, start != 0) for byte in range(BYTES))
            word = reduce(lambda a, b: Apply("or", (a, b), I32), parts)
            yield _packing(output, axes, dim, (start, count), word, nodes)


def _packing(
    output: str,
    axes: Sequence[Axis],
    dim: int,
    run: tuple[Index, Index],
    word: Scalar,
    nodes: tuple[str, ...],
) -> Kernel:
    """The kernel for a ``run`` (start, count) of words."""
    (start, count), name = run, axes[dim].name
    own = tuple(replace(a, extent=count) if a.name == name else a for a in axes)
    write = tuple(Sym(a.name) + (start if a.name == name else 0) for a in axes)
    return kernel_of("Pack", (Stage(output, own, write, word),), (output,), nodes)


def _number(source: Scalar, name: str, at: Index) -> Scalar:
    return Cast(substitute_indices(source, {name: at}), I32)


@dataclass(frozen=True)
class Maker:
    """A kernel that computes narrow integers elementwise, for one reader."""

    kernel: Kernel

    @property
    def source(self) -> tuple[str, ...]:
        """The user's nodes."""
        return self.kernel.source

    def at(self, point: Sequence[Index]) -> Scalar:
        """Its value at ``point``."""
        (stage,) = self.kernel.stages
        places = {a.name: i for a, i in zip(stage.axes, point, strict=True)}
        return substitute_indices(stage.body, places)


Makers: TypeAlias = Mapping[str, Maker]


def small_makers(program: TensorProgram) -> Makers:
    """Elementwise producers of tensors with a single reader."""
    others = [t for i in program.items if not isinstance(i, Kernel) for t in item_inputs(i)]
    kernels = [i for i in program.items if isinstance(i, Kernel)]
    read = Counter(r.tensor for k in kernels for s in k.stages for r in reads(s.body))
    pinned = frozenset((*others, *program.outputs))
    return {
        k.outputs[0]: Maker(k)
        for k in kernels
        if len(k.stages) == 1
        and _is_simple(k.stages[0])
        and read[k.outputs[0]] == 1
        and k.outputs[0] not in pinned
    }


def _is_simple(stage: Stage) -> bool:
    """Whether a stage computes narrow integers elementwise, at low cost."""
    small = stage.body.dtype == I16 or (stage.body.dtype in (I8, U8) and cost(stage.body) <= CHEAP)
    whole = stage.write == tuple(Sym(a.name) for a in stage.axes) and not stage.reduce
    return small and whole and not any(isinstance(node, Bind) for node in walk(stage.body))
