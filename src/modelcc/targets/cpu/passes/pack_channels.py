"""Convolutions of narrow integers: two channels packed in a word.

Processors multiply and add pairs of 16-bit integers at once, if these are contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from modelcc.ir.constant import Constant
from modelcc.ir.index import Index, Sym, coefficient, floordiv, product, substitute, symbols
from modelcc.ir.scalar_tree import depends_on
from modelcc.ir.tensor import (
    Apply,
    Axis,
    Cast,
    Guard,
    Item,
    Kernel,
    Number,
    Read,
    Scalar,
    Stage,
    TensorProgram,
)
from modelcc.ir.types import I8, I16, I32, U8, Layout, Part, TensorType
from modelcc.passes.tensor.added_constants import still_read
from modelcc.targets.cpu.passes.paired_constant import PairedConstant
from modelcc.targets.cpu.passes.words import Makers, paired, pairs_of, small_makers, word_of

WORDS = ".pairs"
"""Suffix of the names of tensors of words."""


@dataclass(frozen=True)
class PackChannels:
    """Neighbouring channels of images and of weights share a word.

    Run-time weights are laid out in blocks of ``block`` outputs, as constants will be.  Images of
    which each element is used fewer than ``reuse`` times stay, as do those of u8 by i8 if there are
    instructions for ``bytes``.  An operand's elementwise producer is fused into the packing.

    before::

        program @main(%x: u8[1, 6, 9], %z: u8[], %w: i8[16, 6, 3]) -> (%y) {
          kernel @Sub(%x: u8[1, 6, 9], %z: u8[]) -> (%s: i16[1, 6, 9]) {
            %s: i16[1, 6, 9] = [n < 1, c < 6, h < 9] i16(%x[n, c, h]) - i16(%z[])
          }
          kernel @Conv(%s: i16[1, 6, 9], %w: i8[16, 6, 3]) -> (%y: i32[1, 16, 9]) {
            %y: i32[1, 16, 9] = [n < 1, o < 16, h < 9] sum[i < 6, a < 3]
              i32((%s[n, i, a + h - 1] if [a + h >= 1, a + h < 10] else 0:i16)) * i32(%w[o, i, a])
          }
        }

    after::

        program @main(%x: u8[1, 6, 9], %z: u8[], %w: i8[16, 6, 3]) -> (%y) {
          kernel @Pack(%x: u8[1, 6, 9], %z: u8[]) -> (%s.pairs: i32[1, 3, 9]) {
            %s.pairs: i32[1, 3, 9] = [c0 < 1, c1 < 3, c2 < 9] or(
              and(i32(i16(%x[c0, 2*c1, c2]) - i16(%z[])), 65535:i32),
              shl(i32(i16(%x[c0, 2*c1 + 1, c2]) - i16(%z[])), 16:i32))
          }
          kernel @Pack(%w: i8[16, 6, 3]) -> (%w.pairs: i32[16, 3, 3]<d0/16 d1 d2 d0%16>) {
            %w.pairs: i32[16, 3, 3]<d0/16 d1 d2 d0%16> = [c0 < 16, c1 < 3, c2 < 3] or(
              and(i32(%w[c0, 2*c1, c2]), 65535:i32), shl(i32(%w[c0, 2*c1 + 1, c2]), 16:i32))
          }
          kernel @Conv(%s.pairs: i32[1, 3, 9], %w.pairs: i32[16, 3, 3]<d0/16 d1 d2 d0%16>)
            -> (%y: i32[1, 16, 9]) {
            %y: i32[1, 16, 9] = [n < 1, o < 16, h < 9] sum[i < 3, a < 3] dot_halves(
              (%s.pairs[n, i, a + h - 1] if [a + h >= 1, a + h < 10] else 0:i32),
              %w.pairs[o, i, a])
          }
        }
    """

    block: int = 16
    reuse: int = 16
    bytes: bool = False

    def __call__(self, program: TensorProgram) -> TensorProgram:
        packing = _Packing(program, self.block, small_makers(program))
        items: list[Item] = []
        for item in program.items:
            found = _convolution(item, program) if isinstance(item, Kernel) else None
            if found is None or not isinstance(item, Kernel) or not self._worth(found):
                items.append(item)
                continue
            items += packing.kernels(found, item)
        kept = [i for i in items if not (isinstance(i, Kernel) and set(i.outputs) <= packing.gone)]
        constants = still_read(kept, program, {**program.constants, **packing.constants})
        gone = packing.gone | (program.constants.keys() - constants.keys())
        types = {n: t for n, t in {**program.types, **packing.types}.items() if n not in gone}
        return replace(program, items=tuple(kept), types=types, constants=constants)

    def _worth(self, found: _Convolution) -> bool:
        kinds = found.image.read.dtype, found.weights.read.dtype
        return found.uses >= self.reuse and not (self.bytes and kinds == (U8, I8))


@dataclass(frozen=True)
class _Operand:
    """A factor and its dimension along which the reduced channels run."""

    read: Read
    dim: int


@dataclass(frozen=True)
class _Convolution:
    """A sum of products of ``image`` by ``weights`` along ``depth`` and other axes.

    The image is ``outside`` where the ``guards`` do not hold.
    """

    stage: Stage
    depth: Axis
    image: _Operand
    weights: _Operand
    guards: Guard | None
    channels: int

    @property
    def uses(self) -> int:
        """Products in which an element of the image takes part, disregarding strides."""
        own = {n for i in self.weights.read.indices for n in symbols(i)}
        extents = product(a.extent for a in (*self.stage.axes, *self.stage.reduce) if a.name in own)
        return extents // self.channels if isinstance(extents, int) else self.channels

    @property
    def pairs(self) -> Axis:
        """The loop over pairs of channels."""
        return Axis(self.depth.name, pairs_of(self.depth.extent))

    def product(self, kernel: Kernel, image: str, weights: str) -> Kernel:
        """The convolution of words."""
        left: Scalar = Read(image, self._indices(self.image), I32)
        if self.guards is not None:
            assert isinstance(self.guards.outside, Number)
            word = word_of(int(self.guards.outside.value))
            left = Guard(self.guards.conditions, left, Number(word, I32), I32)
        right = Read(weights, self._indices(self.weights), I32)
        reduce = tuple(self.pairs if a == self.depth else a for a in self.stage.reduce)
        body = Apply("dot_halves", (left, right), I32)
        stage = replace(self.stage, reduce=reduce, body=body)
        return replace(kernel, inputs=(image, weights), stages=(stage,))

    def _indices(self, operand: _Operand) -> tuple[Index, ...]:
        """Indices of the words: the first channel is even."""
        first = substitute(operand.read.indices[operand.dim], {self.depth.name: 0})
        word = floordiv(first, 2) + Sym(self.depth.name)
        return tuple(word if d == operand.dim else i for d, i in enumerate(operand.read.indices))


@dataclass(frozen=True)
class _Packing:
    """Tensors of words; equal ones are shared."""

    program: TensorProgram
    block: int
    makers: Makers
    known: dict[tuple[Scalar, int], str] = field(default_factory=dict[tuple[Scalar, int], str])
    types: dict[str, TensorType] = field(default_factory=dict[str, TensorType])
    constants: dict[str, Constant] = field(default_factory=dict[str, Constant])
    gone: set[str] = field(default_factory=set[str])

    def kernels(self, found: _Convolution, kernel: Kernel) -> list[Item]:
        """``kernel`` on words, after the kernels that make these."""
        image, made = self._packed(found.image, None)
        weights = self._constant(found.weights)
        if weights is None:
            weights, copies = self._packed(found.weights, found)
            made += copies
        return [*made, found.product(kernel, image, weights)]

    def _constant(self, operand: _Operand) -> str | None:
        source = self.program.constants.get(operand.read.tensor)
        if source is None:
            return None
        key = operand.read.tensor, operand.dim
        name = f"{key[0]}{WORDS}{key[1] if key[1] != 1 else ''}"
        self.constants[name] = PairedConstant(source, operand.dim)
        self.types[name] = self.constants[name].type
        return name

    def _packed(self, operand: _Operand, weights: _Convolution | None) -> tuple[str, list[Kernel]]:
        """The words of a tensor, and the kernels that make them; ``weights`` get a blocked
        layout."""
        name, dim = operand.read.tensor, operand.dim
        maker = self.makers.get(name)
        shape = self.program.types[name].shape
        axes = tuple(Axis(f"c{d}", e) for d, e in enumerate(shape))
        point = tuple(Sym(a.name) for a in axes)
        read = Read(name, point, self.program.types[name].dtype)
        source = read if maker is None else maker.at(point)
        if maker is not None:
            self.gone.add(name)
        known = self.known.get((source, dim)) if weights is None else None
        if known is not None:
            return known, []
        words = f"{name}{WORDS}"
        self.known[source, dim] = words
        extents = tuple(pairs_of(e) if d == dim else e for d, e in enumerate(shape))
        layout = None if weights is None else self._layout(operand, weights)
        self.types[words] = TensorType(extents, I32, layout)
        nodes = () if maker is None else maker.source
        return words, list(paired(words, axes, dim, source, nodes))

    def _layout(self, operand: _Operand, found: _Convolution) -> Layout | None:
        """Blocks of outputs innermost."""
        read, outputs = operand.read, {a.name for a in found.stage.axes}
        along = [d for d, i in enumerate(read.indices) if symbols(i) & outputs]
        if len(along) != 1:
            return None
        (dim,) = along
        others = [Part(d) for d in range(len(read.indices)) if d != dim]
        parts = (Part(dim, self.block), *others, Part(dim, 1, self.block))
        return Layout(parts, ((0, 0),) * len(read.indices))


def _convolution(kernel: Kernel, program: TensorProgram) -> _Convolution | None:
    """The convolution that ``kernel`` computes, if channels of its image are not contiguous; else
    None."""
    stage = kernel.stages[0]
    factors = _factors(stage)
    if len(kernel.stages) != 1 or factors is None or len(stage.write) < 3:
        return None
    inner = next((a for a in reversed(stage.axes) if a.extent != 1), None)
    for (image, guards), (weights, other) in (factors, factors[::-1]):
        fits = other is None and image.tensor not in program.constants
        moves = (
            inner is not None
            and depends_on(image, inner.name)
            and not depends_on(weights, inner.name)
        )
        plain = all(isinstance(i, Sym | int) for i in weights.indices)
        # A factor that also moves along rows or a batch is an operand of a product, not weights.
        outputs = [a for a in stage.axes if depends_on(weights, a.name)]
        if not (fits and moves and plain and len(outputs) == 1):
            continue
        for depth in stage.reduce:
            found = _along(depth, image, weights, guards)
            channels = found and program.types[image.tensor].shape[found[0].dim]
            if found is not None and isinstance(channels, int):
                return _Convolution(stage, depth, *found, guards, channels)
    return None


def _along(
    depth: Axis, image: Read, weights: Read, guards: Guard | None
) -> tuple[_Operand, _Operand] | None:
    """The operands if pairs along ``depth`` are pairs of both, and strided in the image."""
    places = [d for d, i in enumerate(image.indices) if depth.name in symbols(i)]
    own = [d for d, i in enumerate(weights.indices) if i == Sym(depth.name)]
    guarded = guards is not None and any(depth.name in symbols(c.left) for c in guards.conditions)
    if len(places) != 1 or len(own) != 1 or guarded or not isinstance(depth.extent, int):
        return None
    index = image.indices[places[0]]
    first = substitute(index, {depth.name: 0})
    even = depth.extent % 2 == 0 and floordiv(first, 2) * 2 == first
    whole = coefficient(index, depth.name) == 1 and (even or first == 0)
    apart = places[0] != len(image.indices) - 1
    if not whole or not apart or depth.extent < 2:
        return None
    return _Operand(image, places[0]), _Operand(weights, own[0])


_Factor = tuple[Read, Guard | None]


def _factors(stage: Stage) -> tuple[_Factor, _Factor] | None:
    """The operands of a sum of products of integers of 16 bits or fewer, and their guards."""
    if stage.combine != "sum" or not stage.reduce or stage.body.dtype != I32:
        return None
    match stage.body:
        case Apply(function="mul", args=(Cast(value=a), Cast(value=b))):
            x, y = _guarded(a), _guarded(b)
            return None if x is None or y is None else (x, y)
        case _:
            return None


def _guarded(scalar: Scalar) -> _Factor | None:
    match scalar:
        case Read() if scalar.dtype in (I8, U8, I16):
            return scalar, None
        case Guard(inside=Read() as read, outside=Number()) if scalar.dtype in (I8, U8, I16):
            return read, scalar
        case _:
            return None
