"""What kernels become for AMD's GPUs computes what they mean: LLVM text, thread by thread, the
first ones first and the last ones first."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from amd_code import HAS_LINKER
from amd_emulator.kernels import emulated
from amd_emulator.models import emulated_session
from attention_programs import CAUSAL, attention, few_rows
from attention_programs import feeds_of as numbers_of
from group_kernels import grouped
from group_products import feeds_of, program_of
from kernel_runs import run_scheduled
from op_kernels import CASES, check
from scatters import ON_DEVICES, check_on_device
from transformer_models import attention_block
from transpositions import ON_DEVICES as TURNED
from transpositions import check_turned

from modelcc.ir.op import Op, Sample
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ops.samples import arrays, sizes
from modelcc.options import Options
from modelcc.schedule.group_schedule import GroupProduct, TensorAttention, TensorProduct
from modelcc.schedule.schedule import Schedule
from modelcc.targets.amdgpu.chips import CHIPS
from modelcc.targets.gpu.attention.wave_attention import LAYOUTS
from modelcc.targets.gpu.products.tensor_product import (
    DEEP,
    EXACT,
    ROUNDED,
    SPLIT,
    UNSIGNED,
    WHOLE_ROWS,
)
from modelcc.targets.gpu.schedule import schedule_groups
from tests.targets.gpu.attention.test_wave_attention import CASES as ATTENTION
from tests.targets.gpu.products.test_tensor_product import ALTERNATING, held
from tests.targets.gpu.products.test_tensor_product import PRODUCTS as FRAGMENTS

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")

BACKWARDS = pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
SIZES = {"m": 19, "n": 24, "k": 21}


def computes(program: TensorProgram, schedule: Schedule, chip: str, backwards: bool) -> None:
    """The same bits as the tensor level, of numbers whose sums are exact."""
    feeds, env = feeds_of(program, SIZES), {d: SIZES[d] for d in program.dims}
    scheduled = schedule_groups(program, schedule, CHIPS[chip])
    found = run_scheduled(scheduled, emulated(scheduled, chip, backwards), feeds, env)
    wanted = run_program(program, feeds, env)
    for output in program.outputs:
        np.testing.assert_array_equal(found[output], wanted[output])


def held_on(chip: str, schedule: TensorProduct) -> TensorProduct:
    """By the waves of a chip, whose operands pass through registers."""
    schedule = replace(held(schedule, 1), warp=CHIPS[chip].warp)
    whole = schedule.instruction == "mma" and WHOLE_ROWS in CHIPS[chip].matrix
    return replace(schedule, instruction=WHOLE_ROWS) if whole else schedule


@BACKWARDS
@pytest.mark.parametrize("name", ON_DEVICES)
def test_updates_by_lists(name: str, backwards: bool) -> None:
    gpu = CHIPS["gfx942"]
    check_on_device(name, lambda p: emulated(p, "gfx942", backwards), gpu, warp=gpu.warp)


@BACKWARDS
@pytest.mark.share(4, "name", "chip", "backwards")
@pytest.mark.parametrize("chip", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
@pytest.mark.parametrize(
    "name",
    [n for n, (s, _) in FRAGMENTS.items() if s.instruction not in (ROUNDED, SPLIT, UNSIGNED)],
)
def test_products_of_fragments(name: str, chip: str, backwards: bool) -> None:
    schedule, kernel = FRAGMENTS[name]
    if schedule.instruction == EXACT and EXACT not in CHIPS[chip].matrix:
        pytest.skip("there is no such instruction")
    computes(program_of(kernel, SIZES), held_on(chip, schedule), chip, backwards)


@pytest.mark.parametrize("name", ["rows by columns", "columns by columns", "bytes", "convolution"])
def test_products_of_two_fragments_at_once(name: str) -> None:
    one, kernel = FRAGMENTS[name]
    schedule = replace(held(one, 1), terms=2 * one.terms, instruction=DEEP)
    computes(program_of(kernel, SIZES), schedule, "gfx950", False)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100", "gfx1201"])
def test_products_of_alternating_fragments(chip: str) -> None:
    one = replace(FRAGMENTS["few terms"][0], rows=32, columns=64, warp_columns=2)
    program = program_of(ALTERNATING.replace("24", "48"), SIZES)
    computes(program, held_on(chip, one), chip, False)


PRODUCT = """%a: f32[19, 40], %b: f32[40, 36]) -> (%y: f32[19, 36]) {
  %y: f32[19, 36] = [i < 19, j < 36] sum[l < 40] %a[i, l] * %b[l, j] }"""


@BACKWARDS
def test_products_of_threads(backwards: bool) -> None:
    computes(program_of(PRODUCT, {}), GroupProduct(8, 16, 4, 2, 2), "gfx942", backwards)


CHOSEN: Mapping[str, tuple[TensorProgram, Schedule | None, float]] = {
    **{name: (program, schedule, error) for name, (program, schedule, error) in ATTENTION.items()},
    "f32": (attention(2, 2, 17, 35, 8, 16, "f32", CAUSAL), None, 3e-6),
    "a step": (few_rows(2, 1, 40, 16, 16, "bf16"), None, 1e-2),
    "few rows": (few_rows(2, 2, 33, 16, 16, "f16"), None, 2e-3),
}


@BACKWARDS
@pytest.mark.share(3, "name", "chip", "backwards")
@pytest.mark.parametrize("chip", ["gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("name", CHOSEN)
def test_attention(name: str, chip: str, backwards: bool) -> None:
    program, schedule, tolerance = CHOSEN[name]
    feeds = numbers_of(program)
    if isinstance(schedule, TensorAttention):
        (family,) = LAYOUTS.keys() & CHIPS[chip].matrix
        schedule = replace(schedule, instruction=family)
    scheduled = schedule_groups(program, schedule, CHIPS[chip])
    execute = emulated(scheduled, chip, backwards)
    found = run_scheduled(scheduled, execute, feeds, {})["y"].astype(np.float64)
    wanted = run_program(program, feeds, {})["y"].astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.share(24, "op", "chip")
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("op", "sample"), CASES)
def test_every_op(op: Op, sample: Sample, chip: str) -> None:
    """As it is scheduled for each machine."""
    program = grouped(op, sample, None, CHIPS[chip])
    check(op, program, emulated(program, chip), arrays(op, sample), sizes(op, sample))


@pytest.mark.skipif(not HAS_LINKER, reason="there is no lld here")
@pytest.mark.parametrize(
    ("chip", "precision", "backwards"),
    [("gfx942", "f32", False), ("gfx942", "f16", True), ("gfx90a", "bf16", False),
     ("gfx950", "f16", False), ("gfx1100", "f32", True), ("gfx1201", "f16", False)],
)  # fmt: skip
def test_a_model_runs_as_its_library_would(
    tmp_path: Path, chip: str, precision: str, backwards: bool
) -> None:
    """Against ONNX Runtime."""
    path = tmp_path / "block.onnx"
    path.write_bytes(attention_block(2).SerializeToString())
    session = emulated_session(path, chip, Options(precision=precision), backwards)
    peer = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(5)
    feeds = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in peer.get_inputs()}
    wanted = [np.asarray(result) for result in peer.run(None, feeds)]
    for _ in range(2):
        found = session.run(feeds)
        for output, result in zip(peer.get_outputs(), wanted, strict=True):
            most = float(np.abs(result).max())
            tolerance = {"f32": 5e-6, "f16": 6e-3, "bf16": 7e-2}[precision] * most
            np.testing.assert_allclose(found[output.name], result, atol=tolerance, rtol=0)


@BACKWARDS
@pytest.mark.parametrize("name", TURNED)
def test_operands_across_by_tiles(name: str, backwards: bool) -> None:
    check_turned(name, lambda p: emulated(p, "gfx942", backwards), CHIPS["gfx942"])
