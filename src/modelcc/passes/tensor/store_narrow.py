"""Numbers are stored in the narrower of two types that they go through.

For where memory is scarce: elsewhere a conversion goes wherever it is cheapest to compute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from modelcc.ir.index import Sym
from modelcc.ir.scalar_tree import reads, substitute_indices, transform
from modelcc.ir.tensor import Cast, Item, Kernel, Read, Scalar, Stage, TensorProgram, item_inputs
from modelcc.ir.types import DType, TensorType


@dataclass(frozen=True)
class StoreNarrow:
    """A conversion to more bytes is done by whoever reads its result, one to fewer by what makes
    its operand.

    before::

        program @main(%x: i8[4, 8]) -> (%y) {
          kernel @Cast(%x: i8[4, 8]) -> (%w: i32[4, 8]) {
            %w: i32[4, 8] = [i < 4, j < 8] i32(%x[i, j])
          }
          kernel @ReduceSum(%w: i32[4, 8]) -> (%s: i32[4]) {
            %s: i32[4] = [i < 4] sum[k < 8] %w[i, k]
          }
          kernel @Clip(%s: i32[4]) -> (%c: i32[4]) {
            %c: i32[4] = [i < 4] min(%s[i], 127:i32)
          }
          kernel @Cast(%c: i32[4]) -> (%y: i8[4]) {
            %y: i8[4] = [i < 4] i8(%c[i])
          }
        }

    after::

        program @main(%x: i8[4, 8]) -> (%y) {
          kernel @ReduceSum(%x: i8[4, 8]) -> (%s: i32[4]) {
            %s: i32[4] = [i < 4] sum[k < 8] i32(%x[i, k])
          }
          kernel @Clip_Cast(%s: i32[4]) -> (%y: i8[4]) {
            %y: i8[4] = [i < 4] i8(min(%s[i], 127:i32))
          }
        }
    """

    def __call__(self, program: TensorProgram) -> TensorProgram:
        usage = _Usage.of(program)
        moved: dict[str, Kernel] = {}
        items: list[Item] = []
        for item in program.items:
            if not isinstance(item, Kernel):
                items.append(item)
                continue
            kernel = _inlined(item, moved)
            if usage.widens(item) or usage.is_narrowed(item):
                moved[item.outputs[0]] = kernel
            else:
                items.append(kernel)
        return program.with_items(tuple(items))


@dataclass(frozen=True)
class _Usage:
    """How often kernels read a tensor, which of them convert tensors to fewer bytes, and what must
    be stored as it is."""

    types: Mapping[str, TensorType]
    readers: Counter[str]
    writers: Counter[str]
    narrowed: frozenset[str]
    pinned: frozenset[str]

    @staticmethod
    def of(program: TensorProgram) -> _Usage:
        stages = [s for i in program.items if isinstance(i, Kernel) for s in i.stages]
        others = [i for i in program.items if not isinstance(i, Kernel)]
        conversions = (_converted(stage, program.types) for stage in stages)
        return _Usage(
            program.types,
            Counter(read.tensor for stage in stages for read in reads(stage.body)),
            Counter(stage.output for stage in stages),
            frozenset(read.tensor for read, kind, to in filter(None, conversions) if to < kind),
            frozenset((*program.outputs, *(n for item in others for n in item_inputs(item)))),
        )

    def widens(self, kernel: Kernel) -> bool:
        """Whether ``kernel`` is nothing but a conversion to more bytes."""
        found = _converted(kernel.stages[0], self.types)
        return found is not None and found[2] > found[1] and self._is_free(kernel)

    def is_narrowed(self, kernel: Kernel) -> bool:
        """Whether all that becomes of what ``kernel`` computes is a conversion to fewer bytes."""
        output = kernel.outputs[0]
        return output in self.narrowed and self.readers[output] == 1 and self._is_free(kernel)

    def _is_free(self, kernel: Kernel) -> bool:
        """Whether its result, each element computed by itself, need not be stored."""
        if len(kernel.stages) != 1 or len(kernel.outputs) != 1:
            return False
        stage = kernel.stages[0]
        known = self.readers[stage.output] > 0 and self.writers[stage.output] == 1
        return known and stage.output not in self.pinned and _is_plain(stage)


def _is_plain(stage: Stage) -> bool:
    return not stage.reduce and stage.write == tuple(Sym(a.name) for a in stage.axes)


def _converted(stage: Stage, types: Mapping[str, TensorType]) -> tuple[Read, int, int] | None:
    """The read that is all the stage converts, with the bytes of an element before and after."""
    body = stage.body
    if not isinstance(body, Cast) or not isinstance(body.value, Read) or not _is_plain(stage):
        return None
    before, after = types[body.value.tensor].dtype, body.dtype
    if not (_counts(before) and _counts(after)):
        return None
    return body.value, before.bytes, after.bytes


def _counts(dtype: DType) -> bool:
    return dtype.is_integer and dtype.bits >= 8


def _inlined(kernel: Kernel, moved: Mapping[str, Kernel]) -> Kernel:
    """``kernel`` with what it reads of ``moved`` computed where it is read."""
    found = [moved[name] for name in kernel.inputs if name in moved]
    if not found:
        return kernel
    stages = tuple(replace(s, body=_with(s.body, moved)) for s in kernel.stages)
    own = {s.output for s in stages}
    read = dict.fromkeys(r.tensor for s in stages for r in reads(s.body))
    sources = (*(name for k in found for name in k.source), *kernel.source)
    joined = [k.name for k in found if not isinstance(k.stages[0].body, Cast)]
    return replace(
        kernel,
        name="_".join((*joined, kernel.name)),
        stages=stages,
        inputs=tuple(name for name in read if name not in own),
        source=tuple(dict.fromkeys(sources)),
    )


def _with(body: Scalar, moved: Mapping[str, Kernel]) -> Scalar:
    def visit(node: Scalar) -> Scalar:
        if not isinstance(node, Read) or node.tensor not in moved:
            return node
        stage = moved[node.tensor].stages[0]
        places = {axis.name: index for axis, index in zip(stage.axes, node.indices, strict=True)}
        return substitute_indices(stage.body, places)

    return transform(body, visit)
