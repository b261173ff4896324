"""Sums by parts, of kernels that write to some of a tensor each, and not those of attention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from attention_programs import attention
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.index import Index
from modelcc.ir.loop_text import print_function
from modelcc.ir.tensor import Kernel, TensorProgram, item_outputs
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.passes.tensor.fuse_contractions import FuseContractions
from modelcc.passes.tensor.fused_kernel import kernel_of
from modelcc.schedule.workload import plain_type
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.passes.split_reductions import SplitReductions
from modelcc.targets.gpu.product_times import ProductTimes
from modelcc.targets.gpu.schedule import schedule_groups

HALVES = """program @main(%a: f32[2, 65536]) -> (%b) dims() {
  kernel @Even(%a: f32[2, 65536]) -> (%b: f32[4]) {
    %b[2*i]: f32[4] = [i < 2] sum[k < 65536] %a[i, k]
  }
  kernel @Odd(%a: f32[2, 65536]) -> (%b: f32[4]) {
    %b[2*i + 1]: f32[4] = [i < 2] max[k < 65536] %a[i, k]
  }
}"""

FUSION = (FuseKernels(), FuseContractions(block=1, cache_bytes=0, rows=0))


def test_kernels_that_write_to_one_tensor_have_parts_of_their_own() -> None:
    program = parse_tensor_program(HALVES, {})
    split = SplitReductions(units=16)(program)
    verify_tensor_program(split)
    outputs = [item_outputs(item) for item in split.items]
    assert outputs == [("b.parts",), ("b",), ("b.parts_1",), ("b",)]
    a = np.random.default_rng(5).standard_normal((2, 65536)).astype(np.float32)
    wanted = np.stack([a.sum(1, dtype=np.float64), a.max(1)], 1).ravel()
    np.testing.assert_allclose(run_program(split, {"a": a}, {})["b"], wanted, rtol=1e-4)


def by_stages(program: TensorProgram) -> TensorProgram:
    """A kernel for each stage, as there is before fusion."""
    kernels = [item for item in program.items if isinstance(item, Kernel)]
    stages = [s for k in kernels for s in k.stages]
    types = {**{s.output: plain_type(s) for s in stages}, **program.types}
    items = tuple(kernel_of("Attention", (s,), (s.output,), ()) for s in stages)
    return replace(program, types=types).with_items(items)


@pytest.mark.parametrize(
    ("rows", "keys", "of"), [(512, 512, "u"), (1, 1 << 15, "t")], ids=["values", "largest score"]
)
def test_sums_of_attention_stay_whole(rows: int, keys: int, of: str) -> None:
    """Those of values, with few heads, and the largest of many scores."""
    program = by_stages(attention(8, 1, rows, keys, 64, 64, "f16", "{} * 0.125", "f16"))
    verify_tensor_program(program)
    outputs = [name for i in SplitReductions(132)(program).items for name in item_outputs(i)]
    assert f"{of}.parts" in outputs
    whole = SplitReductions(132, fusion=FUSION)(program)
    assert whole.items == program.items
    for step in FUSION:
        whole = step(whole)
    assert len(whole.items) == 1


def test_sums_beside_attention_are_split() -> None:
    """The same product, where weights are given."""
    program = by_stages(attention(8, 1, 512, 512, 64, 64, "f16", "{} * 0.125", "f16"))
    product = program.items[-2]
    assert isinstance(product, Kernel)
    alone = replace(program, inputs=product.inputs, outputs=product.outputs)
    split = SplitReductions(132, fusion=FUSION)(alone.with_items((product,)))
    verify_tensor_program(split)
    assert [item_outputs(item) for item in split.items] == [("u.parts",), ("u",)]


# --- products whose time is known

UNITS = find_chip("sm_90a").gpu


def convolved(side: int, channels: int, results: int) -> TensorProgram:
    """3 by 3 pixels of an image with borders."""
    x, w = f"1, {side}, {side}, {channels}", f"3, 3, {channels}, {results}"
    y, inputs = f"1, {side}, {side}, {results}", f"%x: bf16[{x}], %w: bf16[{w}]"
    inside = f"h + a >= 1, h + a < {side + 1}, w + b >= 1, w + b < {side + 1}"
    return parse_tensor_program(
        f"""program @main({inputs}) -> (%y) dims() {{
          kernel @Conv({inputs}) -> (%y: f32[{y}]) {{
            %y: f32[{y}] = [n < 1, h < {side}, w < {side}, j < {results}]
              sum[c < {channels}, a < 3, b < 3]
              f32((%x[n, h + a - 1, w + b - 1, c] if [{inside}] else 0.0:bf16))
              * f32(%w[a, b, c, j]) }} }}""",
        {},
    )


def cut(program: TensorProgram, machine: GpuModel) -> tuple[Index, ...]:
    """Shape of the sums that are made first."""
    split = SplitReductions(machine.units, times=ProductTimes(machine))(program)
    verify_tensor_program(split)
    (first, *_) = split.items
    assert isinstance(first, Kernel)
    return split.types[first.outputs[0]].shape


@pytest.mark.parametrize(
    ("side", "channels", "shape"),
    [(56, 64, (1, 56, 56, 64)), (14, 256, (4, 1, 14, 14, 256)), (7, 512, (8, 1, 7, 7, 512))],
)
def test_products_are_cut_where_that_takes_less(
    side: int, channels: int, shape: tuple[int, ...]
) -> None:
    """Into blocks of 64 channels, as boxes have; tiles of fewer rows are enough for some."""
    assert cut(convolved(side, channels, channels), UNITS) == shape


def test_where_reading_takes_longer_nothing_is_cut() -> None:
    program = parse_tensor_program(
        """program @main(%a: f16[32, 8192], %b: f16[8192, 8192]) -> (%y) dims() {
          kernel @MatMul(%a: f16[32, 8192], %b: f16[8192, 8192]) -> (%y: f32[32, 8192]) {
            %y: f32[32, 8192] = [i < 32, j < 8192] sum[k < 8192] f32(%a[i, k]) * f32(%b[k, j])
          } }""",
        {},
    )
    slow = replace(UNITS, bandwidth=UNITS.bandwidth / 4)
    assert cut(program, slow) == (32, 8192)


def test_parts_on_matrix_units_are_what_numpy_sums() -> None:
    program = convolved(4, 512, 64)
    split = SplitReductions(UNITS.units, times=ProductTimes(UNITS))(program)
    assert len(split.items) > 1
    scheduled = schedule_groups(split, None, UNITS)
    text = print_function(scheduled.functions[0])
    assert "run beside @multiply_tiles_bf16" in text
    rng = np.random.default_rng(2)
    x, w = rng.integers(-4, 5, (1, 4, 4, 512)), rng.integers(-4, 5, (3, 3, 512, 64))
    types = program.types
    feeds = {"x": x.astype(types["x"].dtype.numpy), "w": w.astype(types["w"].dtype.numpy)}
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, {})["y"]
    wide = np.pad(x[0].astype(np.float64), ((1, 1), (1, 1), (0, 0)))
    places = [(a, b) for a in range(3) for b in range(3)]
    wanted = sum(wide[a : a + 4, b : b + 4] @ w[a, b] for a, b in places)
    np.testing.assert_array_equal(found[0], wanted)
