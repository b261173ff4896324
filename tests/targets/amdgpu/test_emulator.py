"""The emulator of AMD's GPUs finds what they would not do, or not the same each time."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest
from amd_emulator.kernels import GpuFaultError, run_kernel
from wave_kernels import PITCH, wave_product

from modelcc.ir.loop_parser import parse_function
from modelcc.ir.types import F16, F32, I8, I32, Array
from modelcc.targets.amdgpu.chips import CHIPS
from modelcc.targets.amdgpu.target import kernels_of
from modelcc.targets.isa.fragments import SIDE
from modelcc.targets.native.toolchain import assembly

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")

TURNED = """func @turned(%x: f32[128], %y: mut f32[128]) {
  grid g in 0 .. 1 {
    shared %held: f32[128]
    thread t in 0 .. 128 {
      store %held[t] = load %x[t]
      barrier
      store %y[t] = load %held[127 - t]
    }
  }
}
"""

SUMS = """func @sums(%x: f32[128], %y: mut f32[128]) {
  grid g in 0 .. 1 {
    thread t in 0 .. 128 {
      register %other = load %x[t]
      exchange %other across 1
      store %y[t] = %other
    }
  }
}
"""


def text_of(function: str) -> str:
    kernels = kernels_of("gfx942")
    legal = kernels.legal(parse_function(function))
    return kernels.text([legal], CHIPS["gfx942"].limits)


def arrays() -> list[Array]:
    return [np.arange(128, dtype=np.float32), np.zeros(128, np.float32)]


@pytest.mark.parametrize("backwards", [False, True])
def test_sound_kernels_compute_what_they_should(backwards: bool) -> None:
    x, y = arrays()
    run_kernel(text_of(TURNED), [x, y], backwards)
    np.testing.assert_array_equal(y, x[::-1])
    run_kernel(text_of(SUMS), [x, y], backwards)
    np.testing.assert_array_equal(y, x.reshape(64, 2)[:, ::-1].reshape(-1))


@pytest.mark.parametrize("across", [1, 16])
@pytest.mark.parametrize("chip", ["gfx942", "gfx1100", "gfx1201"])
def test_registers_come_from_threads_of_the_same_row_and_of_others(chip: str, across: int) -> None:
    kernels, (x, y) = kernels_of(chip), arrays()
    legal = kernels.legal(parse_function(SUMS.replace("across 1", f"across {across}")))
    text = kernels.text([legal], CHIPS[chip].limits)
    run_kernel(text, [x, y], wave=CHIPS[chip].warp)
    np.testing.assert_array_equal(y, x[np.arange(128) ^ across])
    rows = across == 16 and CHIPS[chip].warp == 32
    code = assembly(text, kernels.machine)
    assert ("v_permlanex16_b32" in code, "ds_bpermute_b32" in code) == (rows, not rows)


def test_what_nobody_orders_differs() -> None:
    """From what is right, or from one order of threads to the other."""
    text = re.sub(BARRIER, "", text_of(TURNED), count=1)
    found: list[Array] = []
    for backwards in (False, True):
        x, y = arrays()
        run_kernel(text, [x, y], backwards)
        found.append(y)
    assert not np.array_equal(*found, equal_nan=True)


SOME = (
    r"  %odd = trunc i64 %t to i1\n  br i1 %odd, label %one, label %two\n"
    r"one:\n\g<0>  br label %two\ntwo:\n"
)
BARRIER = r"  call void @llvm\.amdgcn\.s\.barrier\(\)\n"
FAULTS = {
    "a load behind the end": (TURNED, r"(ptr %v, i64 )%t", r"\g<1>128", "not given"),
    "a store behind what is shared": (TURNED, r"(ptr %held.1, i64 )%t", r"\g<1>128", "not given"),
    "no multiple of the alignment": (TURNED, "(load float, ptr %p, align )4", r"\g<1>8", "aligned"),
    "a barrier of some": (TURNED, BARRIER, SOME, "ended: call void @llvm"),
    "registers of others": (SUMS, r"  .*ds\.bpermute.*\n  store.*\n", SOME, "elsewhere: %other"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str) -> None:
    function, found, other, message = FAULTS[fault]
    text = text_of(function)
    broken = re.sub(found, other, text, count=1)
    assert broken != text
    with pytest.raises(GpuFaultError, match=message):
        run_kernel(broken, arrays())


def test_threads_of_rdna_3_have_the_same_of_a_row() -> None:
    kernels = kernels_of("gfx1100")
    legal = kernels.legal(wave_product(F16, F32, (False, True), wave=32))
    text = kernels.text([legal], CHIPS["gfx1100"].limits)
    given = [np.ones((SIDE, SIDE), np.float16) for _ in range(2)]
    given[0][3] = 2
    data = [*given, np.ones(SIDE, np.float32), np.zeros((SIDE, PITCH), np.float32)]
    run_kernel(text, data, wave=32)
    assert data[-1][3, 5] == 2 * SIDE
    other = re.sub(r"(urem i64 %lane, )16", r"\g<1>15", text, count=1)
    with pytest.raises(GpuFaultError, match="other numbers in threads that have the same row"):
        run_kernel(other, data, wave=32)


@pytest.mark.parametrize("chip", ["gfx1100", "gfx1201"])
def test_bytes_have_the_signs_that_an_instruction_says(chip: str) -> None:
    kernels, rng = kernels_of(chip), np.random.default_rng(1)
    legal = kernels.legal(wave_product(I8, I32, (False, True), wave=32))
    text = kernels.text([legal], CHIPS[chip].limits)
    x, y = (rng.integers(-128, 128, (SIDE, 2 * SIDE)).astype(np.int8) for _ in range(2))
    data = [x, y, np.ones(SIDE, np.float32), np.zeros((SIDE, PITCH), np.int32)]
    unsigned, changed = re.subn(r"(call .*iu8.*\()i1 true", r"\g<1>i1 false", text)
    assert changed == 2
    run_kernel(unsigned, data, wave=32)
    wanted = x.astype(np.int32) @ y.view(np.uint8).T.astype(np.int32)
    np.testing.assert_array_equal(data[-1][:, :SIDE], wanted)
