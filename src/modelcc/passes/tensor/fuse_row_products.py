"""Products of rows that a kernel makes for them alone, as one kernel with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from modelcc.ir.tensor import Item, Kernel, TensorProgram, View, item_inputs, item_outputs
from modelcc.passes.tensor.fused_kernel import fused_kernel
from modelcc.passes.tensor.read_through_views import through_views
from modelcc.passes.tensor.row_product import match_row_product


@dataclass(frozen=True)
class FuseRowProducts:
    """A product with the stages that make its operand, which walk the rows that it sums (norms,
    softmax), if nothing else reads that and the kernel ``fits`` whoever runs it.

    Whoever computes a part of the product makes all rows that it needs again.  Views on the way may
    differ in axes of one element.

    before::

        program @main(%x: f32[1, 64], %w: f32[64, 96]) -> (%y) dims() {
          kernel @Norm(%x: f32[1, 64]) -> (%n: f32[1, 64]) {
            %s: f32[1] = [i < 1] sum[k < 64] %x[i, k] * %x[i, k]
            %n: f32[1, 64] = [i < 1, j < 64] %x[i, j] * rsqrt(%s[i])
          }
          view %v: f32[1, 1, 64] = %n
          kernel @MatMul(%v: f32[1, 1, 64], %w: f32[64, 96]) -> (%y: f32[1, 96]) {
            %y: f32[1, 96] = [i < 1, o < 96] sum[k < 64] %v[0, i, k] * %w[k, o]
          }
        }

    after::

        program @main(%x: f32[1, 64], %w: f32[64, 96]) -> (%y) dims() {
          kernel @Norm_MatMul(%x: f32[1, 64], %w: f32[64, 96]) -> (%y: f32[1, 96]) {
            %s: f32[1] = [i < 1] sum[k < 64] %x[i, k] * %x[i, k]
            %n: f32[1, 64] = [i < 1, j < 64] %x[i, j] * rsqrt(%s[i])
            %y: f32[1, 96] = [i < 1, o < 96] sum[k < 64] %n[0, k] * %w[k, o]
          }
        }
    """

    fits: Callable[[Kernel, TensorProgram], bool] = lambda kernel, program: True

    def __call__(self, program: TensorProgram) -> TensorProgram:
        alone = _Alone.of(program)
        merged: dict[int, Kernel] = {}
        gone: set[int] = set()
        for item in program.items:
            if not isinstance(item, Kernel) or not item.stages[0].reduce:
                continue
            for name in item.inputs:
                chain = alone.chain(name)
                if not chain or id(chain[0]) in merged:
                    continue  # rows that themselves contain a product stay in their kernel
                kernel = _merged(chain, item, program)
                if kernel is not None and self.fits(kernel, program):
                    merged[id(item)] = kernel
                    gone.update(map(id, chain))
                    break
        items = [
            merged.get(id(item), item) if isinstance(item, Kernel) else item
            for item in program.items
            if id(item) not in gone
        ]
        return program.with_items(tuple(items)) if merged else program


@dataclass(frozen=True)
class _Alone:
    """By tensor: the kernel or view that makes nothing else, for a single reader."""

    makers: Mapping[str, Kernel | View]

    @staticmethod
    def of(program: TensorProgram) -> _Alone:
        items = program.items
        readers = Counter([*(n for i in items for n in item_inputs(i)), *program.outputs])
        written = Counter(n for i in items for n in item_outputs(i))
        return _Alone(
            {
                item.outputs[0] if isinstance(item, Kernel) else item.output: item
                for item in items
                if isinstance(item, Kernel | View) and _is_alone(item, readers, written)
            }
        )

    def chain(self, name: str) -> tuple[Kernel | View, ...]:
        """The kernel that ``name`` comes from, and views of that; none if there is no such."""
        found: list[Kernel | View] = []
        while name in self.makers:
            maker = self.makers[name]
            found.append(maker)
            if isinstance(maker, Kernel):
                return tuple(reversed(found))
            name = maker.input
        return ()


def _is_alone(item: Kernel | View, readers: Mapping[str, int], written: Mapping[str, int]) -> bool:
    (name, *others) = item_outputs(item)
    return not others and readers.get(name, 0) == 1 and written[name] == 1


def _merged(chain: Sequence[Item], product: Kernel, program: TensorProgram) -> Kernel | None:
    """``product`` with what makes its operand, if these are rows that it sums."""
    rows, *views = chain
    assert isinstance(rows, Kernel)
    through = {view.output: view for view in views if isinstance(view, View)}
    stages = through_views(product.stages, through, program.types)
    if stages is None:
        return None
    found = match_row_product((*rows.stages, *stages))
    if found is None or found.rows != rows.stages:
        return None
    return fused_kernel((rows, product), (*rows.stages, *stages), product.outputs)
