"""Long reductions of few results in parts, so that all SMs of a machine have some of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from modelcc.ir.index import Sym
from modelcc.ir.naming import Names
from modelcc.ir.scalar_tree import index_symbols, substitute_indices
from modelcc.ir.tensor import Apply, Axis, Item, Kernel, Read, Stage, TensorProgram
from modelcc.passes.pass_base import Pass
from modelcc.passes.tensor.gemm_pair import match_gemm_pair
from modelcc.passes.tensor.tile_chain import match_tile_chain
from modelcc.schedule.workload import plain_type

TILE = 64 * 64
"""Results of a product that one group has, if there are enough of them."""

FEW = 8
"""Rows or columns of a product that is bound by its loads."""

SHORTEST, SHORTEST_PRODUCT = 1 << 14, 256
"""Terms of a part: one group is as fast for fewer."""


@dataclass(frozen=True)
class SplitReductions:
    """Sums over equal parts of a reduction, and the sum of these, where ``units`` SMs would not all
    have results of their own.

    Products count by tiles; without ``products``, they stay whole.  The epilogue belongs to the
    last sum, and is fused with it.  Sums of a kernel of several products, such as attention and its
    gradients, stay whole, too, if the passes of ``fusion`` make one: its parts would not be
    recognised.

    before::

        program @main(%a: f32[4, 65536]) -> (%b) dims() {
          kernel @Sum(%a: f32[4, 65536]) -> (%b: f32[4]) {
            %b: f32[4] = [i < 4] sum[k < 65536] %a[i, k]
          }
        }

    after::

        program @main(%a: f32[4, 65536]) -> (%b) dims() {
          kernel @Sum(%a: f32[4, 65536]) -> (%b.parts: f32[4, 4]) {
            %b.parts: f32[4, 4] = [k.part < 4, i < 4] sum[k < 16384] %a[i, k + 16384*k.part]
          }
          kernel @Sum(%b.parts: f32[4, 4]) -> (%b: f32[4]) {
            %b: f32[4] = [i < 4] sum[k.part < 4] %b.parts[k.part, i]
          }
        }
    """

    units: int
    products: bool = True
    fusion: tuple[Pass[TensorProgram], ...] = ()

    def __call__(self, program: TensorProgram) -> TensorProgram:
        kernels = [item for item in program.items if isinstance(item, Kernel)]
        cuts = {id(k): cut for k in kernels if (cut := self._cut(k)) is not None}
        whole = self._in_pairs(program) if cuts else frozenset[str]()
        items: list[Item] = []
        types, names = dict(program.types), Names(program.types)
        for item in program.items:
            cut = cuts.get(id(item))
            if cut is None or not isinstance(item, Kernel) or whole.intersection(item.outputs):
                items.append(item)
                continue
            (stage,) = item.stages
            first, last = _in_parts(stage, *cut, names.fresh(f"{stage.output}.parts"))
            types[first.output] = plain_type(first)
            items.append(replace(item, outputs=(first.output,), stages=(first,)))
            items.append(replace(item, inputs=(first.output,), stages=(last,)))
        return replace(program, types=types).with_items(tuple(items))

    def _in_pairs(self, program: TensorProgram) -> frozenset[str]:
        """Tensors that kernels of two products would make as intermediate results."""
        for step in self.fusion:
            program = step(program)
        dims = frozenset(program.dims)
        kernels = [k for k in program.items if isinstance(k, Kernel)]
        pairs = [
            k
            for k in kernels
            if match_gemm_pair(k.stages, dims, single=True)
            or match_tile_chain(k.stages, k.outputs, dims)
        ]
        return frozenset(s.output for k in pairs for s in k.stages)

    def _cut(self, kernel: Kernel) -> tuple[Axis, int] | None:
        """The axis to split, and the number of parts; None if that is no gain.

        Kernels that write a part of a tensor have parts of their own.
        """
        if len(kernel.stages) != 1:
            return None
        (stage,) = kernel.stages
        extents = [a.extent for a in (*stage.axes, *stage.reduce)]
        if stage.combine is None or not all(isinstance(e, int) for e in extents):
            return None
        axis = max(stage.reduce, key=lambda a: _number(a), default=None)
        count = None if axis is None else self._parts(stage, axis)
        return None if axis is None or count is None else (axis, count)

    def _parts(self, stage: Stage, axis: Axis) -> int | None:
        """The number of parts of ``axis``, a divisor of it."""
        results, terms = prod(map(_number, stage.axes)), prod(map(_number, stage.reduce))
        product = _is_product(stage)
        groups = -(-results // TILE) if product else results
        shortest = SHORTEST_PRODUCT if product else SHORTEST
        if not 0 < groups < self.units or (product and not self.products):
            return None
        most = min(-(-2 * self.units // groups), terms // shortest)
        return next((n for n in range(most, 1, -1) if _number(axis) % n == 0), None)


def _number(axis: Axis) -> int:
    assert isinstance(axis.extent, int)
    return axis.extent


def _is_product(stage: Stage) -> bool:
    """Whether it is a product of matrices with several rows and columns."""
    body = stage.body
    if stage.combine != "sum" or not (isinstance(body, Apply) and body.function == "mul"):
        return False
    first, second = map(index_symbols, body.args)
    sides = (first - second, second - first)
    return all(prod(_number(a) for a in stage.axes if a.name in side) >= FEW for side in sides)


def _in_parts(stage: Stage, axis: Axis, count: int, name: str) -> tuple[Stage, Stage]:
    length = _number(axis) // count
    part = Axis(f"{axis.name}.part", count)
    moved = {axis.name: Sym(axis.name) + Sym(part.name) * length}
    own = tuple(Sym(a.name) for a in (part, *stage.axes))
    first = Stage(
        name,
        (part, *stage.axes),
        own,
        substitute_indices(stage.body, moved),
        tuple(Axis(axis.name, length) if a is axis else a for a in stage.reduce),
        stage.combine,
    )
    body = Read(first.output, own, stage.body.dtype)
    return first, replace(stage, body=body, reduce=(part,))
