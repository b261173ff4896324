"""What a wave's instructions on fragments compute, by the register layouts that AMD publishes, and
the code that they become."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from amd_emulator.kernels import run_kernel
from wave_kernels import PITCH, own_product, wave_product

from modelcc.ir.errors import ModelError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, I8, Array, DType
from modelcc.targets.amdgpu.chips import CHIPS
from modelcc.targets.amdgpu.target import kernels_of
from modelcc.targets.isa.fragments import SIDE, depth, sums_of
from modelcc.targets.llvm.dialect import AMDGPU_CHIPS
from modelcc.targets.native.toolchain import assembly

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")

INSTRUCTIONS = {
    ("gfx90a", BF16): "v_mfma_f32_16x16x16bf16_1k",
    ("gfx90a", F32): "v_mfma_f32_16x16x4f32",
    ("gfx942", F32): "v_mfma_f32_16x16x4_f32",
    ("gfx950", F32): "v_mfma_f32_16x16x4_f32",
    ("gfx90a", I8): "v_mfma_i32_16x16x16i8",
    ("gfx942", F16): "v_mfma_f32_16x16x16_f16",
    ("gfx942", BF16): "v_mfma_f32_16x16x16_bf16",
    ("gfx942", I8): "v_mfma_i32_16x16x32_i8",
    ("gfx950", F16): "v_mfma_f32_16x16x16_f16",
    ("gfx950", BF16): "v_mfma_f32_16x16x16_bf16",
    ("gfx950", I8): "v_mfma_i32_16x16x32_i8",
    ("gfx950", F8E4M3FN): "v_mfma_f32_16x16x32_fp8_fp8",
    ("gfx950", F8E5M2): "v_mfma_f32_16x16x32_bf8_bf8",
    ("gfx1100", F16): "v_wmma_f32_16x16x16_f16",
    ("gfx1100", BF16): "v_wmma_f32_16x16x16_bf16",
    ("gfx1100", I8): "v_wmma_i32_16x16x16_iu8",
    ("gfx1201", F16): "v_wmma_f32_16x16x16_f16",
    ("gfx1201", BF16): "v_wmma_f32_16x16x16_bf16",
    ("gfx1201", I8): "v_wmma_i32_16x16x16_iu8",
    ("gfx1201", F8E4M3FN): "v_wmma_f32_16x16x16_fp8_fp8",
    ("gfx1201", F8E5M2): "v_wmma_f32_16x16x16_bf8_bf8",
}
ROUNDED = [("gfx942", F16), ("gfx942", BF16), ("gfx1100", F16), ("gfx1100", BF16),
           ("gfx1201", F16), ("gfx1201", BF16)]  # fmt: skip


def operands(dtype: DType, transposed: tuple[bool, bool], together: int = 1) -> dict[str, Array]:
    """Matrices of so many fragments, as they lie in memory, and factors of rows."""
    rng, terms = np.random.default_rng(3), depth(dtype) * together
    shapes = ((terms, SIDE) if transposed[0] else (SIDE, terms),
              (SIDE, terms) if transposed[1] else (terms, SIDE))  # fmt: skip
    if dtype.is_float:
        x, y = (rng.standard_normal(shape).astype(dtype.numpy) for shape in shapes)
    else:
        x, y = (rng.integers(-128, 128, shape).astype(dtype.numpy) for shape in shapes)
    return {"x": x, "y": y, "f": rng.standard_normal(SIDE).astype(np.float32)}


def wanted(dtype: DType, data: dict[str, Array], transposed: tuple[bool, bool]) -> Array:
    """By NumPy in f64."""
    x, y = (data[name].astype(np.float64) for name in "xy")
    product = (x.T if transposed[0] else x) @ (y.T if transposed[1] else y)
    return product * data["f"][:, None] if dtype.is_float else product


@pytest.mark.parametrize("transposed", [(False, True), (True, False)], ids=str)
@pytest.mark.parametrize(("chip", "dtype"), INSTRUCTIONS, ids=str)
def test_a_wave_multiplies_as_numpy_does(
    chip: str, dtype: DType, transposed: tuple[bool, bool]
) -> None:
    to = F16 if dtype == F16 else sums_of(dtype)
    function = wave_product(dtype, to, transposed, wave=CHIPS[chip].warp)
    kernels, data = kernels_of(chip), operands(dtype, transposed)
    found = np.zeros((SIDE, PITCH), to.numpy)
    text = kernels.text([kernels.legal(function)], CHIPS[chip].limits)
    wave = found.copy()
    run_kernel(text, [*data.values(), wave], wave=CHIPS[chip].warp)
    right, near = wanted(dtype, data, transposed), 2e-3 if to == F16 else 1e-5
    np.testing.assert_allclose(wave[:, :SIDE], right, rtol=near, atol=near)
    assert not wave[:, SIDE:].any()
    interpret_loops(function, [*data.values(), found], [])
    np.testing.assert_allclose(found[:, :SIDE], right, rtol=near, atol=near)
    code = assembly(text, kernels.machine)
    assert INSTRUCTIONS[chip, dtype] in code
    assert ".private_segment_fixed_size: 0" in code


DEEP = {
    F16: "v_mfma_f32_16x16x32_f16",
    BF16: "v_mfma_f32_16x16x32_bf16",
    I8: "v_mfma_i32_16x16x64_i8",
}


@pytest.mark.parametrize("transposed", [(False, True), (True, False)], ids=str)
@pytest.mark.parametrize("dtype", DEEP, ids=str)
def test_two_fragments_are_multiplied_at_once(dtype: DType, transposed: tuple[bool, bool]) -> None:
    kernels, data = kernels_of("gfx950"), operands(dtype, transposed, 2)
    function = wave_product(dtype, sums_of(dtype), transposed, together=2)
    text = kernels.text([kernels.legal(function)], CHIPS["gfx950"].limits)
    found = np.zeros((SIDE, PITCH), sums_of(dtype).numpy)
    wave = found.copy()
    run_kernel(text, [*data.values(), wave])
    right = wanted(dtype, data, transposed)
    np.testing.assert_allclose(wave[:, :SIDE], right, rtol=1e-5, atol=1e-5)
    interpret_loops(function, [*data.values(), found], [])
    np.testing.assert_allclose(found[:, :SIDE], right, rtol=1e-5, atol=1e-5)
    assert DEEP[dtype] in assembly(text, kernels.machine)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("every", [2, 4])
def test_columns_of_fragments_may_alternate(every: int, chip: str) -> None:
    rng, found = np.random.default_rng(4), np.zeros((SIDE, PITCH), np.float32)
    x, y = (rng.standard_normal((16, n)).astype(np.float16) for n in (16, 16 * every))
    f = np.ones(16, np.float32)
    kernels, gpu = kernels_of(chip), CHIPS[chip]
    function = kernels.legal(wave_product(F16, F32, (False, False), every, wave=gpu.warp))
    text = kernels.text([function], gpu.limits)
    wave = found.copy()
    run_kernel(text, [x, y, f, wave], wave=gpu.warp)
    wanted = x.astype(np.float64) @ y.astype(np.float64)[:, ::every]
    np.testing.assert_allclose(wave[:, : SIDE * every : every], wanted, rtol=1e-5, atol=1e-5)
    interpret_loops(function, [x, y, f, found], [])
    np.testing.assert_allclose(found[:, : SIDE * every : every], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("chip", "dtype"), ROUNDED, ids=str)
def test_threads_have_their_own_elements(chip: str, dtype: DType) -> None:
    """What they put into sums, which become an operand, and what they take of them."""
    rng, found = np.random.default_rng(4), np.zeros((SIDE, PITCH), np.float32)
    x, y = (rng.standard_normal((16, n)).astype(dtype.numpy) for n in (16, 64))
    f = np.ones(16, np.float32)
    kernels, gpu, waves = kernels_of(chip), CHIPS[chip], AMDGPU_CHIPS[chip].waves
    assert waves is not None
    function = kernels.legal(own_product(dtype, waves.layout))
    text = kernels.text([function], gpu.limits)
    wave = found.copy()
    run_kernel(text, [x, y, f, wave], wave=gpu.warp)
    wanted = 2 * x.astype(np.float64) @ y.astype(np.float64)[:, ::4]
    np.testing.assert_allclose(wave[:, :SIDE], wanted, rtol=1e-5, atol=1e-5)
    interpret_loops(function, [x, y, f, found], [])
    np.testing.assert_allclose(found[:, :SIDE], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("chip", "dtype"),
    [("gfx90a", F16), ("gfx942", F8E4M3FN), ("gfx1100", F8E4M3FN), ("gfx1201", F32)],
    ids=str,
)
def test_what_matrix_cores_do_not_multiply_exactly_they_do_not_multiply(
    chip: str, dtype: DType
) -> None:
    """Numbers below the normal range would be 0, or formats be others."""
    kernels = kernels_of(chip)
    legal = kernels.legal(wave_product(dtype, F32, (False, True), wave=CHIPS[chip].warp))
    with pytest.raises((NotImplementedError, ModelError), match="have no instruction for"):
        kernels.text([legal], CHIPS[chip].limits)
