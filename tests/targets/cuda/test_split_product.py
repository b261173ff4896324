"""Products of f32 as three of TF32: as exact as f32, on tensor cores that cut sums off; infinities,
NaN and the ends of the range as f32 has them; and only where that is asked for and faster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cuda_products import code_as_planned, kernel_of
from group_products import program_of
from machine_code import loops_of
from ptx_emulator.fragments import multiplied_tf32
from ptx_emulator.kernels import run_ptx

from modelcc.driver import compile_model, target_of
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.types import F32, Array, TensorType
from modelcc.ops.matmul import MatMul
from modelcc.options import Options
from modelcc.report.in_artifact import report_in
from modelcc.report.report import Report
from modelcc.schedule.group_schedule import GroupProduct, TensorProduct
from modelcc.targets.cuda.chips import CHIPS, Chip, find_chip
from modelcc.targets.cuda.target import CudaTarget
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.cuda.tools import find_tool
from modelcc.targets.gpu.expected_time import contraction_seconds
from modelcc.targets.gpu.lower import default_schedule, lower_groups
from modelcc.targets.gpu.products.tensor_product import ROUNDED, SPLIT
from modelcc.verification.comparison import tolerance_of
from modelcc.verification.verification import Request, subject_of

pytest.importorskip("modelcc.runtime.streams.cuda_device")

assembling = pytest.mark.skipif(
    find_tool("ptxas") is None or find_tool("nvdisasm") is None, reason="there is no ptxas here"
)
THREE = TensorProduct(16, 32, 16, 1, 2, 3, SPLIT)


def program(m: int, n: int, k: int, by_rows: bool = True) -> TensorProgram:
    right, at = (f"{n}, {k}", "j, l") if by_rows else (f"{k}, {n}", "l, j")
    inputs, result = f"%a: f32[{m}, {k}], %b: f32[{right}]", f"%y: f32[{m}, {n}]"
    body = f"{result} = [i < {m}, j < {n}] sum[l < {k}] %a[i, l] * %b[{at}]"
    return program_of(f"{inputs}) -> ({result}) {{ {body} }}", {})


def computed(a: Array, b: Array, schedule: TensorProduct | GroupProduct, as_ptx: bool) -> Array:
    """``a b^T``, by PTX or as the loops say."""
    kernel = kernel_of(program(len(a), len(b), a.shape[1]))
    function, found = lower_groups(kernel, schedule), np.zeros((len(a), len(b)), np.float32)
    if as_ptx:
        chip = CHIPS["sm_80"]
        run_ptx(ptx_text(llvm_text([function], chip), chip), function, [a, b, found], {}, False)
    else:
        interpret_loops(function, [a, b, found], [])
    return found


def numbers(kind: str, count: int, terms: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(4)
    shape = (2, count, terms)
    if kind == "positive":
        found = rng.random(shape)
    elif kind == "wide":
        found = rng.standard_normal(shape) * 2.0 ** rng.integers(-20, 21, shape)
    else:
        found = rng.standard_normal(shape)
    a, b = found.astype(np.float32)
    if kind == "cancelling":
        half = terms // 2
        a[:, half:], b[:, half:] = a[:, :half], -b[:, :half] * np.float32(1 + 2**-12)
    return a, b


def error(found: Array, a: Array, b: Array) -> float:
    """As a part of what the products are without their signs."""
    wide = a.astype(np.float64), b.astype(np.float64).T
    return float((np.abs(found - wide[0] @ wide[1]) / (np.abs(wide[0]) @ np.abs(wide[1]))).max())


@pytest.mark.parametrize("kind", ["normal", "positive", "wide", "cancelling"])
def test_errors_are_those_of_f32(kind: str) -> None:
    """By PTX, and by the loops that say what it means; TF32's are a hundred times as large."""
    a, b = numbers(kind, 16, 512)
    threads = GroupProduct(16, 16, 16, 2, 2)
    f32 = error(computed(a, b, threads, False), a, b)
    assert error(computed(a, b, THREE, False), a, b) < max(f32, 2.5e-7)
    assert error(computed(a, b, THREE, True), a, b) < max(f32, 2.5e-7)
    assert error(computed(a, b, replace(THREE, instruction=ROUNDED), True), a, b) > 30 * f32


def test_tensor_cores_would_cut_long_sums_off() -> None:
    """In one direction, even of products that are exact; so terms of a fragment are added alone."""
    a, b = numbers("positive", 16, 512)
    a, b = (np.rint(values * 1024).astype(np.float32) for values in (a, b))
    sums = np.zeros((1, 16, 8), np.float32)
    for k in range(0, a.shape[1], 8):
        sums = multiplied_tf32(a[None, :, k : k + 8], b[None, :8, k : k + 8], sums)
    exact = a.astype(np.float64) @ b[:8].astype(np.float64).T
    assert np.all(sums[0] < exact)
    assert error(sums[0], a, b[:8]) > 10 * error(computed(a, b, THREE, True), a, b)


MOST = np.finfo(np.float32).max
HOSTILE = {
    "infinity": (np.inf, 3.1415927),
    "infinity by what has no second part": (np.inf, 1.0),
    "infinity by a large number": (np.inf, -12345.678),
    "infinity by the largest number": (-np.inf, MOST),
    "infinity by infinity": (np.inf, -np.inf),
    "infinity by a small number": (np.inf, 1e-38),
    "infinity by 0": (np.inf, 0.0),
    "infinity by -0": (-np.inf, -0.0),
    "NaN": (np.nan, 1.0),
    "NaN by 0": (0.0, np.nan),
    "NaN of few bits": (np.uint32(0x7F800001).view(np.float32), 2.0),
    "the largest number": (MOST, 1.0),
    "the largest number by 0": (MOST, 0.0),
    "the largest number by a small one": (-MOST, 1.1754944e-38),
    "the largest number, halved": (MOST, 0.5),
    "beyond the largest number": (MOST, 2.0),
    "beyond the least number": (1e-30, 1e-30),
    "-0": (-0.0, 7.0),
    "-0 by -0": (-0.0, -0.0),
    "a subnormal number": (2.0**-130, 2.0**100),
}


@pytest.mark.parametrize("as_ptx", [False, True], ids=["loops", "ptx"])
@pytest.mark.parametrize("name", HOSTILE)
def test_ends_of_the_range_are_those_of_f32(name: str, as_ptx: bool) -> None:
    """Alone, and among other numbers; either way round.  Of the largest number 11 bits are left."""
    rng = np.random.default_rng(6)
    a, b = (rng.random((16, 24)).astype(np.float32) for _ in range(2))
    a[:8] = b[:8] = 0
    a[:, 5], b[:, 5] = HOSTILE[name]
    a[:, 19], b[:, 19] = HOSTILE[name][::-1]
    with np.errstate(all="ignore"):
        wanted = np.zeros((16, 16), np.float32)
        for k in range(24):
            wanted += np.outer(a[:, k], b[:, k])
    found = computed(a, b, THREE, as_ptx)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    bits = 5e-4 if any(abs(value) == MOST for value in HOSTILE[name]) else 5e-7
    np.testing.assert_allclose(found, wanted, rtol=bits, atol=10 * bits)
    assert not np.signbit(found[found == 0]).any()


def test_infinities_of_both_signs_are_no_number() -> None:
    a, b = (np.ones((16, 16), np.float32) for _ in range(2))
    a[:, 2], a[:, 3] = np.inf, -np.inf
    assert np.isnan(computed(a, b, THREE, True)).all()


@assembling
@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("name", ["sm_80", "sm_90a"])
def test_tensor_cores_have_what_is_planned(name: str, by_rows: bool) -> None:
    """Three times the products; parts take fewer instructions than products take cycles."""
    chip = _asked(name)
    schedule, code = code_as_planned(program(4096, 4096, 4096, by_rows), chip)
    assert schedule.instruction == SPLIT
    loop = max(loops_of(code), key=lambda counts: counts["HMMA"])
    pairs = schedule.rows * schedule.columns * schedule.terms // (16 * 16 * 8)
    assert loop["HMMA"] == 6 * pairs // (schedule.warp_rows * schedule.warp_columns)
    assert loop.total() < (0.7 if by_rows else 0.8) * 8 * loop["HMMA"]
    assert loop["LDGSTS"] and not loop["LDG"]


@pytest.mark.parametrize("name", ["sm_80", "sm_90a"])
def test_products_and_convolutions_are_expected_to_take_less_time(name: str) -> None:
    chip = _asked(name)
    for m, n, k in ((4096, 4096, 4096), (128, 768, 768), (6304, 3072, 768)):
        kernel = kernel_of(program(m, n, k))
        split, plain = (default_schedule(kernel.kernel, c.gpu) for c in (chip, CHIPS[name]))
        assert isinstance(split, TensorProduct) and isinstance(plain, GroupProduct)
        times = (contraction_seconds(kernel, s, chip.gpu) for s in (split, plain))
        mine, theirs = (t for t in times if t is not None)
        assert mine < theirs


@pytest.mark.parametrize("name", ["sm_86", "sm_89", "sm_120"])
def test_where_tensor_cores_are_no_faster_threads_multiply(name: str) -> None:
    kernel = kernel_of(program(4096, 4096, 4096))
    assert isinstance(default_schedule(kernel.kernel, _asked(name).gpu), GroupProduct)
    notes = _notes(name, "tf32x3")
    assert notes == (f"f32 is multiplied by threads: on {CHIPS[name].gpu.name} three products of "
                     "tf32 take longer",)  # fmt: skip


def test_the_report_says_how_kernels_round() -> None:
    assert _notes("sm_80", "f32") == ()
    (note,) = _notes("sm_80", "tf32x3")
    assert note.startswith(
        "1 of 1 kernels multiply f32 as sums of two tf32 each, by three products"
    )


def test_what_is_accepted_is_what_is_of_f32() -> None:
    model = GraphBuilder()
    names = (model.input(name, TensorType((64, 64), F32)) for name in "ab")
    graph = model.build([model.emit(MatMul(), *names)])
    subject = subject_of(Request(graph, Options(target="cuda:sm_80", precision="tf32x3")))
    assert subject.tolerance in (None, tolerance_of(np.zeros(1, np.float32)))


def _asked(name: str) -> Chip:
    """The architecture as it is when products of split operands are asked for."""
    target = target_of(Options(target=f"cuda:{name}", precision="tf32x3"))
    assert isinstance(target, CudaTarget)
    return replace(find_chip(name), gpu=target.gpu)


@pytest.mark.parametrize(("precision", "rate"), [("f32", 19.5), ("tf32", 156), ("tf32x3", 156)])
def test_roofs_are_those_of_the_instructions(precision: str, rate: float) -> None:
    """1e12 operations a second of an A100, of which three products are three times as many."""
    device = _report("sm_80", precision).device
    assert device is not None
    (use,) = device.uses
    assert use.flops == pytest.approx(rate * 1e12)
    (row,) = (row for row in _report("sm_80", precision).kernels if row.function == use.function)
    products = 2 * 64**3 * (3 if precision == "tf32x3" else 1)
    assert products <= row.flops < 1.1 * products


def _notes(name: str, precision: str) -> tuple[str, ...]:
    return _report(name, precision).notes


def _report(name: str, precision: str) -> Report:
    """Of a product."""
    model = GraphBuilder()
    names = (model.input(name, TensorType((64, 64), F32)) for name in "ab")
    graph = model.build([model.emit(MatMul(), *names)])
    options = Options(target=f"cuda:{name}", precision=precision)
    report = report_in(compile_model(graph, options).artifact)
    assert report is not None
    return report
