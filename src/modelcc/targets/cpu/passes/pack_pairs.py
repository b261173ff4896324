"""Products of narrow run-time integers: two packed in a word, or four.

Processors multiply and add pairs of 16-bit integers at once, if these are contiguous; some do so
with four bytes, signed in one factor and unsigned in the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from modelcc.ir.index import Sym, ceildiv, product, symbols
from modelcc.ir.scalar_tree import index_symbols
from modelcc.ir.tensor import Apply, Axis, Cast, Item, Kernel, Read, Stage, TensorProgram
from modelcc.ir.types import I8, I16, I32, U8, Layout, Part, TensorType
from modelcc.targets.cpu.passes.words import BYTES, Makers, bytes_of, paired, small_makers


@dataclass(frozen=True)
class PackPairs:
    """Neighbours along the reduction share a word, those of ``block`` vector lanes are contiguous.

    Products that read an operand fewer than ``reuse`` times stay, as do those by constants, which
    are packed at compile time.  An operand's elementwise producer is fused into the packing.  If
    there are instructions for ``bytes``, words of u8 by i8 have four.

    before::

        program @main(%a: u8[8, 6], %z: u8[], %b: i8[6, 24]) -> (%c) {
          kernel @Sub(%a: u8[8, 6], %z: u8[]) -> (%s: i16[8, 6]) {
            %s: i16[8, 6] = [i < 8, j < 6] i16(%a[i, j]) - i16(%z[])
          }
          kernel @MatMul(%s: i16[8, 6], %b: i8[6, 24]) -> (%c: i32[8, 24]) {
            %c: i32[8, 24] = [m < 8, n < 24] sum[k < 6] i32(%s[m, k]) * i32(%b[k, n])
          }
        }

    after::

        program @main(%a: u8[8, 6], %z: u8[], %b: i8[6, 24]) -> (%c) {
          kernel @Pack(%a: u8[8, 6], %z: u8[]) -> (%c.left: i32[8, 3]) {
            %c.left: i32[8, 3] = [m < 8, k < 3] or(
              and(i32(i16(%a[m, 2*k]) - i16(%z[])), 65535:i32),
              shl(i32(i16(%a[m, 2*k + 1]) - i16(%z[])), 16:i32))
          }
          kernel @Pack(%b: i8[6, 24]) -> (%c.right: i32[3, 24]<d1/16 d0 d1%16>) {
            %c.right: i32[3, 24]<d1/16 d0 d1%16> = [k < 3, n < 24] or(
              and(i32(%b[2*k, n]), 65535:i32), shl(i32(%b[2*k + 1, n]), 16:i32))
          }
          kernel @MatMul(%c.left: i32[8, 3], %c.right: i32[3, 24]<d1/16 d0 d1%16>)
            -> (%c: i32[8, 24]) {
            %c: i32[8, 24] = [m < 8, n < 24] sum[k < 3] dot_halves(%c.left[m, k], %c.right[k, n])
          }
        }
    """

    block: int = 16
    reuse: int = 4
    bytes: bool = False

    def __call__(self, program: TensorProgram) -> TensorProgram:
        makers = small_makers(program)
        types = dict(program.types)
        items: list[Item] = []
        gone: set[str] = set()
        for item in program.items:
            packing = self._packing(item, program) if isinstance(item, Kernel) else None
            if packing is None or not isinstance(item, Kernel):
                items.append(item)
                continue
            copies = [k for operand in packing.operands for k in packing.copy(operand, makers)]
            gone |= {r.tensor for r in packing.reads} & makers.keys()
            types |= {operand.name: operand.type for operand in packing.operands}
            items += [*copies, packing.product(item)]
        kept = [i for i in items if not (isinstance(i, Kernel) and set(i.outputs) <= gone)]
        types = {name: t for name, t in types.items() if name not in gone}
        return replace(program, items=tuple(kept), types=types)

    def _packing(self, kernel: Kernel, program: TensorProgram) -> _PairPacking | None:
        """The packing of a product's operands; None if it is no product, or does not pay."""
        stage = kernel.stages[0]
        found = _factors(stage)
        lane = next((a for a in stage.axes if stage.write and stage.write[-1] == Sym(a.name)), None)
        if len(kernel.stages) != 1 or found is None or lane is None:
            return None
        right = next((r for r in found if lane.name in index_symbols(r)), None)
        left = next((r for r in found if lane.name not in index_symbols(r)), None)
        if left is None or right is None or left.tensor == right.tensor:
            return None
        constant = left.tensor in program.constants or right.tensor in program.constants
        if constant or not self._worth(stage, left, right, lane):
            return None
        bytes = self.bytes and {left.dtype, right.dtype} == {I8, U8}
        return _PairPacking(stage, left, right, lane, self.block, bytes)

    def _worth(self, stage: Stage, left: Read, right: Read, lane: Axis) -> bool:
        """Whether vectors are filled, and packing an operand costs little compared with its
        uses."""
        depth = stage.reduce[0].extent
        wide = not isinstance(lane.extent, int) or lane.extent * 2 >= self.block
        deep = not isinstance(depth, int) or depth >= self.reuse
        uses = (
            product(a.extent for a in stage.axes if a.name not in index_symbols(read))
            for read in (left, right)
        )
        return wide and deep and all(not isinstance(n, int) or n >= self.reuse for n in uses)


@dataclass(frozen=True)
class _PairOperand:
    """A factor packed in words: ``name`` of ``type``, made along ``axes`` from the tensor of
    ``read``."""

    name: str
    type: TensorType
    axes: tuple[Axis, ...]
    read: Read

    @property
    def packed(self) -> Read:
        """The word at a point."""
        return Read(self.name, tuple(Sym(a.name) for a in self.axes), I32)


@dataclass(frozen=True)
class _PairPacking:
    """A product of ``left`` by ``right``, whose vectors move along ``lane``."""

    stage: Stage
    left: Read
    right: Read
    lane: Axis
    block: int
    bytes: bool

    @property
    def reads(self) -> tuple[Read, Read]:
        return self.left, self.right

    @property
    def words(self) -> Axis:
        """The loop over words along the reduction."""
        depth = self.stage.reduce[0]
        return Axis(depth.name, ceildiv(depth.extent, BYTES if self.bytes else 2))

    @property
    def operands(self) -> tuple[_PairOperand, _PairOperand]:
        name = self.stage.output
        return self._operand(f"{name}.left", self.left), self._operand(f"{name}.right", self.right)

    def _operand(self, name: str, read: Read) -> _PairOperand:
        known = {a.name: a for a in (*self.stage.axes, self.words)}
        order = dict.fromkeys(n for i in read.indices for n in sorted(symbols(i)) if n in known)
        axes = tuple(known[n] for n in order)
        layout = self._layout(axes) if self.lane in axes else None
        return _PairOperand(
            name, TensorType(tuple(a.extent for a in axes), I32, layout), axes, read
        )

    def _layout(self, axes: tuple[Axis, ...]) -> Layout:
        """Blocks of lanes innermost, the words along the reduction contiguous."""
        lane, words = axes.index(self.lane), axes.index(self.words)
        others = [Part(n) for n in range(len(axes)) if n not in (lane, words)]
        parts = (*others, Part(lane, self.block), Part(words), Part(lane, 1, self.block))
        return Layout(parts, ((0, 0),) * len(axes))

    def copy(self, operand: _PairOperand, makers: Makers) -> Iterator[Kernel]:
        """Kernels that pack ``operand``, with its elementwise producer."""
        maker = makers.get(operand.read.tensor)
        source = operand.read if maker is None else maker.at(operand.read.indices)
        nodes = () if maker is None else maker.source
        (depth,) = self.stage.reduce
        dim = operand.axes.index(self.words)
        axes = tuple(depth if a == self.words else a for a in operand.axes)
        pack = bytes_of if self.bytes else paired
        return pack(operand.name, axes, dim, source, nodes)

    def product(self, kernel: Kernel) -> Kernel:
        """The product of words."""
        left, right = (o.packed for o in self.operands)
        body = Apply("dot_halves", (left, right), I32)
        if self.bytes:
            unsigned_first = (left, right) if self.left.dtype == U8 else (right, left)
            body = Apply("dot_bytes", unsigned_first, I32)
        stage = replace(self.stage, reduce=(self.words,), body=body)
        return replace(kernel, inputs=(left.tensor, right.tensor), stages=(stage,))


def _factors(stage: Stage) -> tuple[Read, Read] | None:
    """The operands of a sum of products of integers of 16 bits or fewer, read at the axes
    themselves."""
    if stage.combine != "sum" or len(stage.reduce) != 1:
        return None
    match stage.body:
        case Apply(function="mul", args=(Cast(value=Read() as a), Cast(value=Read() as b))):
            depth = Sym(stage.reduce[0].name)
            small = stage.body.dtype == I32 and {a.dtype, b.dtype} <= {I8, U8, I16}
            plain = all(len(symbols(i)) <= 1 for r in (a, b) for i in r.indices)
            whole = all(isinstance(i, Sym | int) for r in (a, b) for i in r.indices)
            deep = all(r.indices.count(depth) == 1 for r in (a, b))
            return (a, b) if small and plain and whole and deep else None
        case _:
            return None
