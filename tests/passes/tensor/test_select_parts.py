"""Which parts of a tensor become one stage, and that they mean what they meant."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np
import pytest

from modelcc.ir.index import evaluate
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.passes.tensor.inline import InlineStages
from modelcc.passes.tensor.select_parts import SelectParts

PRODUCT = """program @main(%x: f32[n, 4], %w: f32[4, 4], %v: f32[n, 3], %u: f32[11, 2]) -> (%y)
    dims(n in 1:) {{
  kernel @MatMul(%x: f32[n, 4], %w: f32[4, 4]) -> (%p: f32[n, 4]) {{
    %p: f32[n, 4] = [i < n, j < 4] sum[k < 4] %x[i, k] * %w[k, j]
  }}
  kernel @Relu(%p: f32[n, 4]) -> (%r: f32[n, 4]) {{
    %r: f32[n, 4] = [i < n, j < 4] max(%p[i, j], 0.0)
  }}
  kernel @Concat(%v: f32[n, 3]) -> (%c: f32[n, 11]) {{
    %c: f32[n, 11] = [i < n, j < 3] %v[i, j]
  }}
  kernel @Concat(%x: f32[n, 4]) -> (%c: f32[n, 11]) {{
    %c[i, j + 3]: f32[n, 11] = [i < n, j < 4] %x[i, j]
  }}
  kernel @Concat(%r: f32[n, 4]) -> (%c: f32[n, 11]) {{
    %c[i, j + 7]: f32[n, 11] = [i < n, j < 4] %r[i, j]
  }}
  {reader}
}}"""
POINTS = """kernel @Neg(%c: f32[n, 11]) -> (%y: f32[n, 11]) {
    %y: f32[n, 11] = [i < n, j < 11] -%c[i, j]
  }"""
SUMS = """kernel @MatMul(%c: f32[n, 11], %u: f32[11, 2]) -> (%y: f32[n, 2]) {
    %y: f32[n, 2] = [i < n, j < 2] sum[k < 11] %c[i, k] * %u[k, j]
  }"""


def kernels(program: TensorProgram) -> list[str]:
    """Of which stages each kernel is, inlined and fused as for a GPU."""
    fused = FuseKernels()(InlineStages(choices=False)(program))
    verify_tensor_program(fused)
    stages = [k.stages for k in fused.items if isinstance(k, Kernel)]
    return [" ".join(stage.output for stage in made) for made in stages]


def assert_same_meaning(before: TensorProgram, after: TensorProgram) -> None:
    verify_tensor_program(after)
    rng, env = np.random.default_rng(2), {"n": 3}
    shapes = {n: [evaluate(e, env) for e in before.types[n].shape] for n in before.inputs}
    feeds = {n: rng.integers(-4, 5, s).astype(np.float32) for n, s in shapes.items()}
    wanted, found = run_program(before, feeds, env), run_program(after, feeds, env)
    for name in before.outputs:
        np.testing.assert_array_equal(found[name], wanted[name])


@pytest.mark.parametrize(
    ("reader", "apart", "selected"),
    [
        (POINTS, ["p c", "c", "c", "y"], ["p", "y"]),
        (SUMS, ["p c", "c", "c", "y"], ["p c", "c", "y"]),
    ],
    ids=["points read it", "a product reads it"],
)
def test_sums_write_their_part_where_a_product_reads_the_whole(
    reader: str, apart: list[str], selected: list[str]
) -> None:
    before = parse_tensor_program(PRODUCT.format(reader=reader), {})
    after = SelectParts()(before)
    assert sorted(kernels(before)) == sorted(apart)
    assert sorted(kernels(after)) == sorted(selected)
    assert_same_meaning(before, InlineStages(choices=False)(after))


def concatenation(sizes: list[int], axis: int) -> TensorProgram:
    """Of one part of each size."""
    places = list(accumulate(sizes, initial=0))
    whole = ["n", "n"]
    whole[axis] = str(places[-1])
    parts: list[str] = []
    for number, (start, end) in enumerate(pairwise(places)):
        shape, write = ["n", "n"], ["i", "j"]
        shape[axis] = str(end - start)
        write[axis] += f" + {start}" if start else ""
        own = "" if not start else f"[{', '.join(write)}]"
        parts.append(
            f"kernel @Concat(%x{number}: f32[{', '.join(shape)}]) -> (%y: f32[{', '.join(whole)}])"
            f" {{ %y{own}: f32[{', '.join(whole)}] = [i < {shape[0]}, j < {shape[1]}]"
            f" %x{number}[i, j] }}"
        )
    inputs = ", ".join(
        f"%x{n}: f32[n, {s}]" if axis else f"%x{n}: f32[{s}, n]" for n, s in enumerate(sizes)
    )
    text = f"program @main({inputs}) -> (%y) dims(n in 1:) {{\n" + "\n".join(parts) + "\n}"
    return parse_tensor_program(text, {})


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("most", "stages"), [(16, 1), (4, 2), (3, 3), (2, 4), (1, 7)])
def test_many_parts_are_a_few_stages(axis: int, most: int, stages: int) -> None:
    before = concatenation([3, 1, 4, 1, 5, 9, 2], axis)
    after = SelectParts(most)(before)
    assert len(after.items) == stages
    assert_same_meaning(before, after)


def test_products_read_no_choice() -> None:
    """Vectors and copies of an operand would have to be of one tensor."""
    text = """program @main(%a: f32[n, 8], %b: f32[n, 8], %w: f32[16, 4]) -> (%y) dims(n in 1:) {
      kernel @Concat(%a: f32[n, 8], %b: f32[n, 8]) -> (%c: f32[n, 16]) {
        %c: f32[n, 16] = [i < n, j < 16] (%a[i, j] if [j < 8] else (%b[i, j - 8] if [j >= 8] else 0.0))
      }
      kernel @MatMul(%c: f32[n, 16], %w: f32[16, 4]) -> (%y: f32[n, 4]) {
        %y: f32[n, 4] = [i < n, j < 4] sum[k < 16] %c[i, k] * %w[k, j]
      }
    }"""  # noqa: E501
    program = parse_tensor_program(text, {})
    assert len(InlineStages(choices=False)(program).items) == 2
    assert len(InlineStages()(program).items) == 1


def test_what_is_gathered_stays_a_part() -> None:
    """An index out of range ends the run, whichever part is read."""
    text = """program @main(%t: f32[9, 4], %i: i64[n], %b: f32[n, 4]) -> (%y) dims(n in 1:) {
      kernel @Concat(%t: f32[9, 4], %i: i64[n]) -> (%y: f32[n, 8]) {
        %y: f32[n, 8] = [r < n, c < 4] (let p = %i[r] in %t[p, c])
      }
      kernel @Concat(%b: f32[n, 4]) -> (%y: f32[n, 8]) {
        %y[r, c + 4]: f32[n, 8] = [r < n, c < 4] %b[r, c]
      }
    }"""
    program = parse_tensor_program(text, {})
    assert SelectParts()(program) == program
