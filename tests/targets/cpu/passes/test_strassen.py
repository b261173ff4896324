"""Strassen's algorithm: the same results as the plain product, before and after scheduling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from kernel_runs import interpreted, native, run_scheduled
from machines import chosen_cpu

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.constant import Constant
from modelcc.ir.index import Sym
from modelcc.ir.loop_text import print_functions
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_text import print_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import F32, Array, TensorType
from modelcc.ops.activation import Relu
from modelcc.ops.arithmetic import Add
from modelcc.ops.matmul import Gemm, MatMul
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.passes.strassen import Strassen
from modelcc.targets.cpu.passes.strassen_cost import Split, StrassenCost
from modelcc.targets.cpu.passes.strassen_weights import QuadrantConstant
from modelcc.targets.cpu.processors import COMMON, PROCESSORS
from modelcc.targets.cpu.schedule import schedule_program


@dataclass(frozen=True)
class Always(StrassenCost):
    """Strassen's algorithm wherever it is possible."""

    def strassen(self, split: Split, others: int, n: int, k: int) -> float:
        return 0.0


@dataclass(frozen=True)
class Case:
    """Rows of ``k`` elements by ``n`` columns, ``products`` times, each plus a residual."""

    rows: tuple[int | Sym, ...]
    k: int
    n: int
    products: int = 1


CASES = {
    "whole": Case((1, 64), 64, 96),
    "blocks of 32 columns": Case((1, 64), 64, 128),
    "an odd row": Case((1, 67), 64, 192),
    "odd rows of rows": Case((9, 9), 32, 96),
    "row blocks": Case((1, 1040), 32, 64),
    "batches": Case((4, 129), 32, 64),
    "the second axis is even": Case((3, 22), 32, 96),
    "shared sums": Case((1, 64), 64, 96, products=3),
}
KERNELS = {"shared sums": 4}
"""Kernels of a case, where it is not one of sums and one of products."""


@cache
def program_of(case: Case) -> TensorProgram:
    rng = np.random.default_rng(0)
    make = GraphBuilder()
    x = make.input("x", TensorType((*case.rows, case.k), F32))
    r = make.input("r", TensorType((*case.rows, case.n), F32))
    results: list[str] = []
    for _ in range(case.products):
        w = make.constant(rng.standard_normal((case.k, case.n)).astype(np.float32))
        b = make.constant(rng.standard_normal(case.n).astype(np.float32))
        y = make.emit(Add(), make.emit(MatMul(), x, w), b)
        results.append(make.emit(Relu(), make.emit(Add(), y, r)))
    return FuseKernels()(lower_graph(make.build(results)))


def inputs_of(program: TensorProgram) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    shapes = {name: program.types[name].static_shape() for name in program.inputs}
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def assert_near(actual: Array, wanted: Array) -> None:
    assert np.abs(actual - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("name", CASES)
def test_tensor_level_keeps_its_meaning(name: str) -> None:
    before = program_of(CASES[name])
    after = Strassen(Always())(before)
    verify_tensor_program(after)
    data = inputs_of(before)
    wanted, actual = (run_program(p, data, {}) for p in (before, after))
    for output in before.outputs:
        assert_near(actual[output], wanted[output])
    assert len(after.items) == KERNELS.get(name, 2)


@pytest.mark.parametrize("name", CASES)
def test_schedules_keep_their_meaning(name: str) -> None:
    before = program_of(CASES[name])
    data = inputs_of(before)
    wanted = run_program(before, data, {})
    program = schedule_program(Strassen(Always())(before), chosen_cpu())
    for executor in (interpreted, native) if name == "an odd row" else (native,):
        actual = run_scheduled(program, executor(program), data, {})
        for output in before.outputs:
            assert_near(actual[output], wanted[output])


def test_weights_may_be_transposed() -> None:
    rng = np.random.default_rng(0)
    make = GraphBuilder()
    x = make.input("x", TensorType((64, 64), F32))
    w = make.constant(rng.standard_normal((96, 64)).astype(np.float32))
    b = make.constant(rng.standard_normal(96).astype(np.float32))
    y = make.emit(Gemm(trans_b=True), x, w, b)
    before = FuseKernels()(lower_graph(make.build([y])))
    after = Strassen(Always())(before)
    assert len(after.items) == 2
    data = inputs_of(before)
    assert_near(run_program(after, data, {})[y], run_program(before, data, {})[y])


BLOCKED = """
program @main(%x: f32[1, 64, 64], %r: f32[1, 96, 64]) -> (%z) {
  constant %w: f32[64, 96] = "w"
  kernel @Copy(%r: f32[1, 96, 64]) -> (%b: f32[1, 96, 64]<d0 d1/16 d2 d1%16 halo0:0,0:0,3:3>) {
    %b: f32[1, 96, 64]<d0 d1/16 d2 d1%16 halo0:0,0:0,3:3> =
      [c0 < 1, c1 < 96, c2 < 64] %r[c0, c1, c2]
  }
  kernel @MatMul(%x: f32[1, 64, 64], %w: f32[64, 96],
                 %b: f32[1, 96, 64]<d0 d1/16 d2 d1%16 halo0:0,0:0,3:3>)
    -> (%y: f32[1, 96, 64]<d0 d1/16 d2 d1%16 halo0:0,0:0,3:3>) {
    %c: f32[1, 96, 64] = [i < 1, n < 96, m < 64] sum[k < 64] %x[i, m, k] * %w[k, n]
    %y: f32[1, 96, 64]<d0 d1/16 d2 d1%16 halo0:0,0:0,3:3> =
      [i < 1, n < 96, m < 64] %c[i, n, m] + %b[i, n, m]
  }
  kernel @Copy(%y: f32[1, 96, 64]<d0 d1/16 d2 d1%16 halo0:0,0:0,3:3>) -> (%z: f32[1, 96, 64]) {
    %z: f32[1, 96, 64] = [c0 < 1, c1 < 96, c2 < 64] %y[c0, c1, c2]
  }
}
"""


def test_results_may_be_in_blocks_of_channels() -> None:
    """Their vectors run within the blocks."""
    w = np.random.default_rng(2).standard_normal((64, 96)).astype(np.float32)
    before = parse_tensor_program(BLOCKED, {"w": Constant(w)})
    after = Strassen(Always())(before)
    assert len(after.items) == len(before.items) + 1
    data = inputs_of(before)
    wanted = run_program(before, data, {})["z"]
    assert_near(run_program(after, data, {})["z"], wanted)
    scheduled = schedule_program(after, chosen_cpu())
    assert_near(run_scheduled(scheduled, native(scheduled), data, {})["z"], wanted)
    text = print_functions(scheduled.functions)
    assert not [s for s in text.splitlines() if "muladd" in s and "splat" not in s]


def test_text_of_rewritten_programs_parses_back() -> None:
    program = Strassen(Always())(program_of(CASES["an odd row"]))
    text = print_tensor_program(program)
    known = {c.digest: c for c in program.constants.values()}
    assert print_tensor_program(parse_tensor_program(text, known)) == text


@pytest.mark.parametrize(
    "case",
    [
        Case((1, 64), 64, 40),
        Case((1, 64), 40, 96),
        Case((Sym("rows"), 64), 64, 96),
        Case((1,), 64, 96),
        Case((1, 2), 64, 96),
    ],
    ids=str,
)
def test_others_are_left_alone(case: Case) -> None:
    program = program_of(case)
    assert Strassen(Always())(program) == program


def test_shared_weights_are_left_alone() -> None:
    """Quadrants beside the original would be a second copy."""
    make = GraphBuilder()
    x = make.input("x", TensorType((64, 96), F32))
    w = make.constant(np.ones((96, 96), np.float32))
    program = FuseKernels()(
        lower_graph(make.build([make.emit(MatMul(), make.emit(MatMul(), x, w), w)]))
    )
    assert Strassen(Always())(program) == program


def test_the_original_weights_are_not_kept() -> None:
    program = Strassen(Always())(program_of(CASES["whole"]))
    shapes = [c.data.shape for c in program.constants.values() if c.data.ndim > 1]
    assert shapes == [(1, 4, 32, 48)]
    assert all(isinstance(i, Kernel) for i in program.items)


@pytest.mark.parametrize("transposed", [False, True])
def test_quadrants_are_written_as_they_are_read(transposed: bool) -> None:
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    constant = QuadrantConstant(Constant(w), 32, transposed)
    place = np.zeros(constant.nbytes, np.uint8)
    constant.write(place)
    assert np.array_equal(place.view(np.float32), constant.data.ravel())
    assert constant.data.nbytes == w.nbytes and constant.type.static_shape() == (1, 4, 32, 32)


def test_products_fetch_the_next_block_once() -> None:
    """All lines of it, and few others."""
    program = Strassen(Always())(program_of(Case((1, 128), 256, 768)))
    text = print_functions(schedule_program(program, CpuModel()).functions)
    blocks = [line for line in text.splitlines() if "prefetch %x1[" in line]
    assert len(blocks) == 7, "each of the products fetches a share"


def test_error_bound_in_the_documentation() -> None:
    rng = np.random.default_rng(0)
    make = GraphBuilder()
    x = make.input("x", TensorType((64, 3072), F32))
    w = rng.standard_normal((3072, 96)).astype(np.float32)
    y = make.emit(MatMul(), x, make.constant(w))
    program = Strassen(Always())(FuseKernels()(lower_graph(make.build([y]))))
    data = inputs_of(program)
    scheduled = schedule_program(program, chosen_cpu())
    actual = run_scheduled(scheduled, native(scheduled), data, {})[y]
    assert_near(actual, data["x"].astype(np.float64) @ w)


def test_cost_prefers_what_is_faster() -> None:
    cost = StrassenCost()
    assert cost.choose(128, 1, 768, 768) == Split(64, 64, 0, 48)
    assert cost.choose(197, 1, 3072, 768) == Split(98, 98, 1, 48)
    assert cost.choose(4, 49, 1536, 384) == Split(2, 2, 0, 48)
    assert cost.choose(8, 128, 768, 768) == Split(4, 2, 0, 48)
    assert cost.choose(784, 1, 192, 768) == Split(392, 196, 0, 48)
    for halved, others, n, k in ((2, 1, 768, 768), (3136, 1, 96, 96), (784, 1, 96, 192)):
        assert cost.choose(halved, others, n, k) is None


PRODUCTS = {
    "bert": ((128, 1, 768, 768), (128, 1, 3072, 768), (128, 1, 768, 3072)),
    "bert of 8": ((8, 128, 768, 768), (8, 128, 3072, 768), (8, 128, 768, 3072)),
    "vit": ((197, 1, 768, 768), (197, 1, 3072, 768), (197, 1, 768, 3072)),
    "gpt2": ((64, 1, 768, 768), (64, 1, 3072, 768), (64, 1, 768, 3072)),
    "llama": ((64, 1, 1024, 1024), (64, 1, 2816, 1024), (64, 1, 1024, 2816)),
}
"""Rows that are halved, other rows, columns and summands of products."""


@pytest.mark.parametrize("products", PRODUCTS.values(), ids=PRODUCTS)
def test_who_reads_slowly_does_without(products: Sequence[tuple[int, int, int, int]]) -> None:
    """Measured: Zen 5 gains; Skylake-SP loses 4 to 16 %, Zen 3 14 to 29 %; SSE gains nothing."""
    for product in products:
        assert StrassenCost(PROCESSORS["znver5"].model).choose(*product) is not None
        for name in ("skylake-avx512", "cascadelake", "znver3", "haswell"):
            assert StrassenCost(PROCESSORS[name].model).choose(*product) is None
        assert StrassenCost(COMMON["x86-64-v2"]).choose(*product) is None


def test_constants_in_the_first_cache_cost_no_reading() -> None:
    sizes = (48 << 10, 2 << 20)
    small, large = (CpuModel(l1_bytes=n, l2_bandwidth=24.0, l3_bandwidth=24.0) for n in sizes)
    assert StrassenCost(large).direct(64, 768, 768) < StrassenCost(small).direct(64, 768, 768)
    assert StrassenCost(large).choose(64, 1, 768, 768) is not None
    assert StrassenCost(small).choose(64, 1, 768, 768) is None
