"""The emulator of PTX finds what a GPU would not do, do otherwise, or never end."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from cuda_products import kernel_of, product
from ptx_emulator.kernels import run_ptx
from ptx_emulator.memory import GpuFaultError
from tile_kernels import COLUMNS, ROWS, TERMS
from tile_kernels import product as tile_product

from modelcc.ir.loop import Function
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.types import F16, Array
from modelcc.schedule.group_schedule import TensorProduct
from modelcc.targets.cuda.chips import CHIPS
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.gpu.lower import lower_groups

pytest.importorskip("modelcc.runtime.streams.cuda_device")

_WAIT = r"\{ \.reg \.pred done; again: .*?\}"


def tiles() -> tuple[Function, list[Array], Array]:
    """A product of tiles that are copied as boxes, its arguments, and its result."""
    rng = np.random.default_rng(2)
    x, y = (rng.integers(-4, 5, (n, TERMS)).astype(np.float16) for n in (ROWS, COLUMNS))
    wanted = np.zeros((64, 64), np.float32)
    wanted[:ROWS, :COLUMNS] = x.astype(np.float32) @ y.astype(np.float32).T
    return tile_product(F16), [x, y, np.zeros((64, 64), np.float32)], wanted


def copied() -> tuple[Function, list[Array], Array]:
    """A product of rows that threads copy ahead."""
    schedule = TensorProduct(32, 32, 32, 1, 1, 3, "mma")
    function = lower_groups(kernel_of(product(64, 48, 160, "f16")), schedule)
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((64, 160), (160, 48)))
    c = rng.integers(-4, 5, 48).astype(np.float32)
    wanted = np.maximum(a.astype(np.float32) @ b.astype(np.float32) + c, c[0])
    return function, [a, b, c, np.zeros((64, 48), np.float16)], wanted.astype(np.float16)


def text_of(function: Function, chip: str) -> str:
    return ptx_text(llvm_text([function], CHIPS[chip]), CHIPS[chip])


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(("case", "chip"), [(tiles, "sm_90a"), (copied, "sm_80")])
def test_sound_kernels_compute_what_they_should(
    case: Callable[[], tuple[Function, list[Array], Array]], chip: str, early: bool
) -> None:
    function, arrays, wanted = case()
    run_ptx(text_of(function, chip), function, arrays, {}, early)
    np.testing.assert_array_equal(arrays[-1], wanted)


TILE_FAULTS = {
    "sums are read before they are there": (r"wgmma\.wait_group\.sync\.aligned 0;", "", "touched"),
    "bytes are not expected": (r"mbarrier\.arrive\.expect_tx[^;]*;", "", "nobody goes on"),
    "too many bytes are expected": (r"mov\.b32 (\t%r\d+), 16384;", r"mov.b32 \1, 16400;",
                                    "nobody goes on"),
    "there is no barrier": (r"@first mbarrier\.init[^;]*;", "", "no barrier"),
    "a thread has written where a tile goes": (
        r"(cvt\.u32\.u64 \t(%r\d+), %rd\d+;\n\tmov\.b32 \t%r\d+, 0;)",
        r"\1 st.shared.b32 [\2], \2;", "without fence"),
    "a map is another's": (r"_param_4;", "_param_3;", None),
    "tiles are not waited for": (_WAIT, "", "more threads arrive"),
    "rows are at another step": (r"4611686293305294848", "4611686293305163776", None),
}  # fmt: skip


@pytest.mark.parametrize("fault", TILE_FAULTS)
def test_faults_of_tiles_are_found(fault: str) -> None:
    """By an error, or by another result."""
    found, other, message = TILE_FAULTS[fault]
    function, arrays, wanted = tiles()
    sound = text_of(function, "sm_90a")
    broken = re.sub(found, other, sound)
    assert broken != sound
    if message:
        with pytest.raises(GpuFaultError, match=message):
            run_ptx(broken, function, arrays, {}, early=False)
    else:
        run_ptx(broken, function, arrays, {}, early=False)
        assert not np.array_equal(arrays[-1], wanted)


def test_copies_of_threads_come_when_they_are_waited_for() -> None:
    function, arrays, wanted = copied()
    broken = re.sub(r"cp\.async\.wait_group[^;]*;", "", text_of(function, "sm_80"))
    run_ptx(broken, function, arrays, {}, early=False)
    assert not np.array_equal(arrays[-1], wanted)


ADD = """//
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)
.reqntid 32, 1, 1
{{
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.b64 %rd1, [k_param_0];
  ld.param.b64 %rd2, [k_param_1];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd1, %rd1, %rd3;
  add.s64 %rd2, %rd2, %rd3;
  {body}
  ret;
}}
"""
BODIES = {
    "behind memory": ("ld.global.b32 %r2, [%rd1+4096];", "was not given"),
    "between words": ("ld.global.b32 %r2, [%rd1+2];", "4 bytes at an address that is no multiple"),
    "a vector between its multiples": ("ld.global.v2.b32 {%r2, %r3}, [%rd1];", "no multiple of"),
    "a barrier of some": ("setp.lt.u32 %p1, %r1, 8; @%p1 bra $L; bar.sync 0; bar.sync 0; ret; "
                          "$L: bar.sync 1;", "nobody goes on"),
    "barriers of different numbers": ("shr.u32 %r2, %r1, 4; bar.sync %r2, 32;", "nobody goes on"),
    "a value of nobody": ("setp.lt.u32 %p1, %r1, 8; @%p1 ret; "
                          "shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1;", "does not take part"),
    "what is prefetched ends behind memory": (
        "mov.u32 %r2, %tid.x; setp.ne.u32 %p1, %r2, 0; @%p1 bra $L; "
        "cp.async.bulk.prefetch.L2.global [%rd1], 4096; $L: bar.sync 0;", "was not given"),
    "what is prefetched begins between": (
        "add.s64 %rd1, %rd1, 8; cp.async.bulk.prefetch.L2.global [%rd1], 16;", "multiple of 16"),
    "ahead of another kernel": ("st.global.b32 [%rd2], %r1; griddepcontrol.wait;", "before grid"),
}  # fmt: skip


@pytest.mark.parametrize("fault", BODIES)
def test_faults_of_threads_are_found(fault: str) -> None:
    body, message = BODIES[fault]
    _run(body, message)


def test_threads_add_numbers() -> None:
    """What they read and write without a fault, and meet."""
    body = ("ld.global.b32 %r2, [%rd1]; add.f32 %r3, %r2, 0f3F800000; st.global.b32 [%rd2], %r3; "
            "shr.u32 %r2, %r1, 5; add.s32 %r2, %r2, 3; bar.sync %r2, 32;")  # fmt: skip
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    run_ptx(ADD.format(body=body), _function(), [x, y], {}, early=False)
    np.testing.assert_array_equal(y, x + 1)


def _run(body: str, message: str) -> None:
    arrays = [np.zeros(32, np.float32), np.zeros(32, np.float32)]
    with pytest.raises(GpuFaultError, match=message):
        run_ptx(ADD.format(body=body), _function(), arrays, {}, early=False)


def _function() -> Function:
    return parse_function(
        """func @k(%x: f32[32], %y: mut f32[32]) {
          grid g in 0 .. 1 { thread t in 0 .. 32 { store %y[t] = load %x[t] } } }"""
    )
