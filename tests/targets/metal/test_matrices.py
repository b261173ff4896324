"""Products by matrices of a SIMD-group: they mean what fragments do, and fit a threadgroup."""

from __future__ import annotations

from itertools import product as pairs

import numpy as np
import pytest
from cuda_products import kernel_of, product
from group_products import feeds_of
from kernel_runs import run_scheduled
from metal_kernels import by_metal, metal_device

from modelcc.ir.loop import Function
from modelcc.ir.loop_interpreter import compile_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.shared_layout import shared_layout
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.types import BF16, F16, F32, DType
from modelcc.schedule.group_schedule import TensorProduct
from modelcc.targets.base import TargetOptions
from modelcc.targets.gpu.lower import default_schedule, lower_groups
from modelcc.targets.gpu.schedule import schedule_groups
from modelcc.targets.isa.apple_simdgroup import MATRIX_INSTRUCTIONS
from modelcc.targets.isa.fragments import clear_c, depth, load_a, load_b, multiply, store_c
from modelcc.targets.metal.target import MACHINES, metal_target, metal_text

TYPES = (F16, BF16, F32)
TARGET = metal_target(TargetOptions())
BODY = """func @product(%x: {t}[416], %y: {t}[416], %z: mut f32[416]) {{
  grid g in 0 .. 1 {{
    shared %l: {t}[416]
    shared %r: {t}[416]
    shared %s: f32[416]
    thread lane in 0 .. 32 {{
      warp %fa: {t}[{f}]
      warp %fb: {t}[{f}]
      warp %fc: f32[512]
      for i in 0 .. 13 {{
        store %l[13*lane + i] = load %x[13*lane + i]
        store %r[13*lane + i] = load %y[13*lane + i]
        store %s[13*lane + i] = f32(0.0)
      }}
      barrier
      run @{clear}(%fc[256])
      run @{a}(%fa[0], %l[3]; 24)
      run @{b}(%fb[0], %r[5]; 25)
      run @{multiply}(%fc[256], %fa[0], %fb[0])
      run @{multiply}(%fc[256], %fa[0], %fb[0])
      run @{store}(%s[8], %fc[256]; 24)
      barrier
      for i in 0 .. 13 {{
        store %z[13*lane + i] = load %s[13*lane + i]
      }}
    }}
  }}
}}"""
"""Twice the product of two fragments anywhere in memory."""


def fragment_product(dtype: DType, turned: tuple[bool, bool]) -> Function:
    """Operands that are ``turned`` lie transposed."""
    used = {
        "clear": clear_c(F32),
        "a": load_a(dtype, turned[0]),
        "b": load_b(dtype, turned[1]),
        "multiply": multiply(dtype, exact=True),
        "store": store_c(F32, F32),
    }
    names = {role: routine.name for role, routine in used.items()}
    text = BODY.format(t=dtype, f=16 * depth(dtype), **names)
    routines = (print_function(r).replace("func ", "routine ", 1) for r in used.values())
    return parse_function("\n".join((*routines, text)))


@pytest.mark.parametrize(("dtype", "turned"), [*pairs(TYPES, pairs((False, True), repeat=2))])
def test_matrices_compute_what_fragments_mean(dtype: DType, turned: tuple[bool, bool]) -> None:
    """The loop interpreter runs what routines are, and the text whole matrices."""
    function = fragment_product(dtype, turned)
    verify_function(function)
    generator = np.random.default_rng(5)
    x, y = (generator.integers(-8, 9, 416).astype(dtype.numpy) for _ in range(2))
    wanted, found = np.zeros(416, np.float32), np.zeros(416, np.float32)
    compile_loops(function)([x, y, wanted], [])
    by_metal([function])("product", [x, y, found], [])
    assert np.count_nonzero(wanted) > 200
    np.testing.assert_array_equal(found, wanted)


SHAPES = [(70, 50, 100), (17, 300, 40), (129, 64, 64)]


@pytest.mark.share(3, "dtype", "turned", "shape")
@pytest.mark.parametrize(
    ("dtype", "turned", "shape"), [*pairs(("f16", "bf16", "f32"), (False, True), SHAPES)]
)
def test_products_agree_with_the_tensor_level(
    dtype: str, turned: bool, shape: tuple[int, int, int]
) -> None:
    """With rows, columns and terms that fill no tile; they are exact, as all are whole numbers."""
    program = product(*shape, dtype, turned)
    scheduled = schedule_groups(program, None, MACHINES["apple"])
    (function,) = scheduled.functions
    assert TARGET.lacks(function) == ""
    assert "simdgroup_multiply_accumulate" in metal_text([TARGET.legalize_groups(function)])
    feeds = feeds_of(program, {})
    found = run_scheduled(scheduled, by_metal(scheduled.functions), feeds, {})
    np.testing.assert_array_equal(found["y"], run_program(program, feeds, {})["y"])


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_what_threads_share_lies_over_tiles(dtype: str) -> None:
    """So that large tiles fit a threadgroup."""
    program = product(1024, 1024, 1024, dtype)
    schedule = default_schedule(kernel_of(program).kernel, MACHINES["apple"])
    assert isinstance(schedule, TensorProduct)
    function = lower_groups(kernel_of(program), schedule)
    layout, text = shared_layout(function), metal_text([TARGET.legalize_groups(function)])
    assert layout.overlaid and layout.size <= 32 << 10
    assert f"threadgroup int64_t room[{layout.size // 8}];" in text
    assert text.count(" = (threadgroup ") == 3


def test_macs_without_matrices_multiply_in_threads() -> None:
    program = product(70, 50, 100, "f16")
    (function,) = schedule_groups(program, None, MACHINES["integrated"]).functions
    target = metal_target(TargetOptions(variant="integrated"))
    assert "simdgroup" not in metal_text([target.legalize_groups(function)])


def test_fragments_that_threads_take_apart_are_not_printed() -> None:
    function = fragment_product(F16, (True, True))
    text = "\n".join(map(print_function, (load_a(F16, True, 2),))).replace("func", "routine", 1)
    text += "\n" + BODY.format(
        t=F16, f=256, clear=clear_c(F32).name, a=load_a(F16, True, 2).name,
        b=load_b(F16, True).name, multiply=multiply(F16).name, store=store_c(F32, F32).name,
    )  # fmt: skip
    others = (clear_c(F32), load_b(F16, True), multiply(F16), store_c(F32, F32))
    text = "\n".join([*(print_function(r).replace("func", "routine", 1) for r in others), text])
    with pytest.raises(NotImplementedError, match="Metal has no 'run @load_a_f16_t_2"):
        metal_text([TARGET.legalize_groups(parse_function(text))])
    assert metal_text([TARGET.legalize_groups(function)])


def test_all_routines_are_known_by_what_they_mean() -> None:
    assert len(MATRIX_INSTRUCTIONS) == 3 * 5 + 2


def test_threads_of_a_simdgroup_do_the_same() -> None:
    """What stands for Metal finds out if some of them do not take part."""
    text = """#include <metal_stdlib>
using namespace metal;
#define restrict __restrict

[[kernel, max_total_threads_per_threadgroup(32 * 1 * 1)]] void some(
    device float *restrict y [[buffer(0)]],
    uint3 mcc_group [[threadgroup_position_in_grid]],
    uint3 mcc_thread [[thread_position_in_threadgroup]])
{
    threadgroup float s[64];
    simdgroup_matrix<float, 8, 8> m = make_filled_simdgroup_matrix<float, 8, 8>(1);
    if (mcc_thread.x < 16) simdgroup_store(m, (threadgroup float *)s, 8);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[mcc_thread.x] = s[mcc_thread.x];
}
"""
    device = metal_device()
    device.load(text.encode(), {"some": (32, 1, 1)})
    device.launch("some", [(device.allocate(128), 0)], [], (1, 1, 1))
    with pytest.raises(AssertionError, match="threads of some wait at different barriers"):
        device.synchronize()
