"""Sums by parts, of kernels that write to some of a tensor each, and not those of attention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from attention_programs import attention

from modelcc.ir.tensor import Kernel, TensorProgram, item_outputs
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.passes.tensor.fuse_contractions import FuseContractions
from modelcc.passes.tensor.fused_kernel import kernel_of
from modelcc.schedule.workload import plain_type
from modelcc.targets.gpu.passes.split_reductions import SplitReductions

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
