"""What kernels become for NVIDIA's GPUs computes what they mean: PTX, thread by thread, with copies
and products beside threads as early and as late as they may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from attention_programs import CAUSAL, attention, few_rows
from attention_programs import feeds_of as numbers_of
from cuda_products import product
from group_kernels import grouped
from group_products import feeds_of, program_of
from kernel_runs import run_scheduled
from op_kernels import CASES, check
from ptx_emulator.driver import PtxDriver
from ptx_emulator.kernels import emulated
from ptx_emulator.traffic import Traffic
from scatters import ON_DEVICES, check_on_device
from transformer_models import attention_block
from transpositions import CASES as TURNED
from transpositions import check_turned

from modelcc.driver import compile_model
from modelcc.ir.op import Op, Sample
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ops.samples import arrays, sizes
from modelcc.options import Options
from modelcc.runtime.devices.device_program import DeviceCode
from modelcc.runtime.session import Session
from modelcc.schedule.group_schedule import (
    FlashDecoding,
    GroupAttention,
    GroupProduct,
    TensorAttention,
    TensorProduct,
)
from modelcc.schedule.schedule import Schedule
from modelcc.targets.cuda.chips import CHIPS
from modelcc.targets.gpu.schedule import schedule_groups
from tests.targets.gpu.products.test_persistent_product import PRODUCTS as PERSISTENT
from tests.targets.gpu.products.test_tensor_product import PRODUCTS as FRAGMENTS
from tests.targets.gpu.products.test_warpgroup_product import PRODUCTS as TILES

cuda_device = pytest.importorskip("modelcc.runtime.streams.cuda_device")

EARLY = pytest.mark.parametrize("early", [False, True], ids=["late", "early"])


def computes(
    program: TensorProgram, schedule: Schedule, chip: str, early: bool, sizes: Mapping[str, int]
) -> None:
    """The same bits as the tensor level, of numbers whose sums are exact."""
    feeds, env = feeds_of(program, sizes), {d: sizes[d] for d in program.dims}
    scheduled = schedule_groups(program, schedule, CHIPS[chip].gpu)
    found = run_scheduled(scheduled, emulated(scheduled, CHIPS[chip], early), feeds, env)
    wanted = run_program(program, feeds, env)
    for output in program.outputs:
        np.testing.assert_array_equal(found[output], wanted[output])


@pytest.mark.parametrize("name", ON_DEVICES)
def test_updates_by_lists(name: str) -> None:
    chip = CHIPS["sm_90a"]
    check_on_device(name, lambda program: emulated(program, chip), chip.gpu, warp=32)


@pytest.mark.parametrize("lanes", [2, 4])
def test_updates_by_lists_of_vectors(lanes: int) -> None:
    chip = CHIPS["sm_90a"]
    columns = 32 // lanes
    given = {"warp": 32, "lanes": lanes, "columns": columns}
    check_on_device("blocks", lambda program: emulated(program, chip), chip.gpu, **given)


@EARLY
@pytest.mark.share(4, "name", "early")
@pytest.mark.parametrize("name", PERSISTENT)
def test_groups_that_have_several_tiles(name: str, early: bool) -> None:
    schedule, kernel = PERSISTENT[name]
    computes(program_of(kernel, {"m": 19}), replace(schedule, groups=2), "sm_90a", early, {"m": 19})


@EARLY
@pytest.mark.share(8, "name", "early")
@pytest.mark.parametrize("name", TILES)
def test_tiles(name: str, early: bool) -> None:
    schedule, kernel = TILES[name]
    named = {"m": 19, "n": 24, "k": 21}
    computes(program_of(kernel, named), schedule, "sm_90a", early, named)


@EARLY
@pytest.mark.share(8, "name", "early")
@pytest.mark.parametrize("name", FRAGMENTS)
def test_fragments(name: str, early: bool) -> None:
    schedule, kernel = FRAGMENTS[name]
    named = {"m": 19, "n": 24, "k": 21}
    computes(program_of(kernel, named), schedule, "sm_80", early, named)


F32_PRODUCT = """%a: f32[19, 40], %b: f32[40, 36]) -> (%y: f32[19, 36]) {
  %y: f32[19, 36] = [i < 19, j < 36] sum[l < 40] %a[i, l] * %b[l, j] }"""
THREADS = {
    "interleaved": GroupProduct(8, 16, 4, 2, 2, buffers=4, interleaved=True),
    "side by side": GroupProduct(8, 16, 4, 2, 2, buffers=3),
    "parts": GroupProduct(8, 16, 4, 2, 2, parts=2),
}


@EARLY
@pytest.mark.parametrize("name", THREADS)
def test_products_of_threads(name: str, early: bool) -> None:
    computes(program_of(F32_PRODUCT, {}), THREADS[name], "sm_80", early, {})


INTERLEAVED = GroupAttention(8, 8, 32, 2, lanes=4, warp=32, interleaved=True)
ATTENTION: Mapping[str, tuple[TensorProgram, Schedule, float]] = {
    "interleaved": (attention(2, 2, 17, 35, 8, 16, "f32", CAUSAL), INTERLEAVED, 3e-6),
    "a step": (few_rows(2, 1, 40, 16, 16, "bf16"), FlashDecoding(16, 2, 4, 4, 3, 2), 1e-2),
    "sums of threads": (attention(2, 2, 17, 35, 8, 16, "f32", CAUSAL, sums=True),
                        GroupAttention(8, 8, 32, 2, 4, 32), 3e-6),
    "sums of warps": (attention(1, 2, 17, 35, 16, 32, "f16", CAUSAL, "f16", sums=True),
                      TensorAttention(16, 16), 2e-3),
    "sums of four warps": (attention(1, 1, 70, 70, 64, 64, "bf16", CAUSAL, "bf16", sums=True),
                           TensorAttention(64, 64, "wgmma"), 2e-2),
    "few rows": (few_rows(2, 2, 33, 16, 16, "f16"), FlashDecoding(8, 3, 2, 4, 2, 3), 2e-3),
}  # fmt: skip


@EARLY
@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str, early: bool) -> None:
    """And, where they are asked for, the logarithms of rows' sums by the same kernel."""
    program, schedule, tolerance = ATTENTION[name]
    chip, feeds = CHIPS["sm_90a"], numbers_of(program)
    scheduled = schedule_groups(program, schedule, chip.gpu)
    execute = emulated(scheduled, chip, early)
    found, wanted = run_scheduled(scheduled, execute, feeds, {}), run_program(program, feeds, {})
    for name in program.outputs:
        pair = found[name].astype(np.float64), wanted[name].astype(np.float64)
        np.testing.assert_allclose(*pair, rtol=tolerance, atol=tolerance)


BANKS: Mapping[str, tuple[TensorProgram, Schedule]] = {
    "terms one by one": (
        program_of(F32_PRODUCT.replace("19", "64").replace("40", "64").replace("36", "64"), {}),
        GroupProduct(32, 64, 32, 4, 4, buffers=4, lanes=4, interleaved=True),
    ),
    "sums of few rows": (
        product(8, 128, 128, "bf16"),
        TensorProduct(8, 64, 64, 1, 1, 2, "wgmma"),
    ),
    "rounded sums": (
        product(128, 128, 128, "f16"),
        TensorProduct(64, 64, 64, 1, 1, 2, "wgmma", groups=2),
    ),
}


@pytest.mark.parametrize("name", BANKS)
def test_what_a_warp_stores_has_banks_of_its_own(name: str) -> None:
    program, schedule = BANKS[name]
    chip, traffic = CHIPS["sm_90a"], Traffic()
    scheduled = schedule_groups(program, schedule, chip.gpu)
    execute = emulated(scheduled, chip, traffic=traffic)
    run_scheduled(scheduled, execute, feeds_of(program, {}), {})
    stores = [row for (_, space, text), row in traffic.requests.items()
              if space == "shared" and text.startswith(("st.", "cp."))]  # fmt: skip
    assert stores
    assert not any(row.more for row in stores)


@pytest.mark.share(24, "op", "chip")
@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("op", "sample"), CASES)
def test_every_op(op: Op, sample: Sample, chip: str) -> None:
    """As it is scheduled for an A100 and an H100."""
    program = grouped(op, sample, None, CHIPS[chip].gpu)
    check(op, program, emulated(program, CHIPS[chip]), arrays(op, sample), sizes(op, sample))


@pytest.mark.parametrize(
    ("target", "precision", "early"),
    [("sm_90a", "bf16", False), ("sm_90a", "f16", True), ("sm_80", "f16", False),
     ("sm_80", "f32", True)],
)  # fmt: skip
def test_a_model_runs_as_its_driver_would(
    tmp_path: Path, target: str, precision: str, early: bool
) -> None:
    """Against ONNX Runtime; recorded by the second call, whose kernels begin ahead of each other's
    ends: nothing that a kernel before may write is read before the wait."""
    path = tmp_path / "block.onnx"
    path.write_bytes(attention_block(2).SerializeToString())
    artifact = compile_model(path, Options(target=f"cuda:{target}", precision=precision)).artifact
    device = cuda_device.CudaDevice(PtxDriver(early), 0)
    session = Session(artifact, 1, DeviceCode(artifact, device))
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


@EARLY
@pytest.mark.parametrize("name", TURNED)
def test_operands_across_by_tiles(name: str, early: bool) -> None:
    chip = CHIPS["sm_90a"]
    check_turned(name, lambda program: emulated(program, chip, early), chip.gpu)


@pytest.mark.parametrize(("name", "most"), [("whole vectors", 1), ("f16", 2)])
def test_rows_and_columns_of_tiles_have_banks_of_their_own(name: str, most: int) -> None:
    """Of numbers of 16 bits columns take two answers; global memory is asked for whole sectors."""
    chip, traffic = CHIPS["sm_90a"], Traffic()
    check_turned(name, lambda program: emulated(program, chip, traffic=traffic), chip.gpu)
    spaces = {space for _, space, _ in traffic.requests}
    assert spaces == {"global", "shared"}
    for (_, space, text), row in traffic.requests.items():
        assert row.taken <= row.least * (most if space == "shared" else 1), text
