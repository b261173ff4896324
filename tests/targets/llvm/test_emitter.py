"""Loop functions compiled through LLVM text agree with NumPy, with and without a thread pool."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest
from loop_programs import (
    CASES,
    Case,
    Runner,
    aligned,
    byte_dots,
    check,
    relu,
)
from machines import chosen_machine
from native_loops import build, call, compiled
from rounding_loops import (
    check_all_halves,
    check_rounding,
    check_rounding_to_halves,
    elementwise,
)

from modelcc.ir.condition import Condition
from modelcc.ir.index import Sym
from modelcc.ir.loop import (
    Buffer,
    Convert,
    For,
    Function,
    Load,
    Parameter,
    Reduce,
    ScalarCall,
    Store,
)
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.ir.types import BF16, F16, F32, F64, I4, DType
from modelcc.runtime.loader import load_objects
from modelcc.runtime.pool import ThreadPool
from modelcc.targets.llvm.emitter import emit_llvm
from modelcc.targets.llvm.parallel import PARALLEL_FOR
from modelcc.targets.native.emission import emission


def execute(pool: ThreadPool, threaded: bool) -> Runner:
    def run(function: Function, arguments: dict[str, np.ndarray], sizes: Mapping[str, int]) -> None:
        code = compiled([function], pool)
        call(code, function, arguments, sizes, pool if threaded else None)

    return run


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPool]:
    with ThreadPool(2) as threads:
        yield threads


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_agrees_with_numpy(case: Case, pool: ThreadPool) -> None:
    check(case, execute(pool, False))


@pytest.mark.parametrize("steps", [1, 99])
@pytest.mark.parametrize("bits", [0, 128, 256])
@pytest.mark.parametrize("lanes", [1, 4, 8, 16, 32])
def test_byte_dots_agree_on_processors_with_narrower_instructions(
    lanes: int, bits: int, steps: int
) -> None:
    own = emission(chosen_machine()).instructions
    fewer = tuple(e for e in own.encodings if e.steps <= steps and 32 * e.lanes <= bits)

    def run(function: Function, arguments: dict[str, np.ndarray], sizes: Mapping[str, int]) -> None:
        call(compiled([function], None, replace(own, encodings=fewer)), function, arguments, sizes)

    check(byte_dots(lanes), run)


def test_instructions_that_a_processor_lacks_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="no instruction 'dot4' for 16 lanes"):
        emit_llvm([byte_dots(16).function])


def without(name: str) -> Runner:
    """Runs a function compiled without an instruction, or (empty) with all there are."""
    own = emission(chosen_machine()).instructions
    chosen = replace(own, **{name: False}) if name else own

    def run(function: Function, arguments: dict[str, np.ndarray], sizes: Mapping[str, int]) -> None:
        call(compiled([function], None, chosen), function, arguments, sizes)

    return run


@pytest.mark.parametrize("lacking", ["", "half_conversions"])
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("lanes", [1, 2, 16])
def test_halves_are_exact(dtype: DType, lanes: int, lacking: str) -> None:
    check_all_halves(dtype, lanes, without(lacking))
    check_rounding_to_halves(dtype, lanes, without(lacking))


@pytest.mark.parametrize("lanes", [2, 4, 16])
def test_brain_floats_are_widened_exactly_from_registers_of_two(lanes: int) -> None:
    own = replace(emission(chosen_machine()).instructions, brain_rounding=True)
    wide = Store("w", Sym("i"), Convert(Load("h", Sym("i"), BF16, lanes), F32))
    function = elementwise("wide", {"h": BF16, "w": F32}, (wide,), 1 << 16, lanes)
    values = np.arange(1 << 16, dtype=np.uint16).view(BF16.numpy)
    found = np.zeros(1 << 16, np.float32)
    call(compiled([function], None, own), function, {"h": values, "w": found}, {})
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(found, values.astype(np.float32))


@pytest.mark.parametrize("lacking", ["", "rounding"])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("lanes", [1, 2, 8])
def test_rounding_is_exact(dtype: DType, lanes: int, lacking: str) -> None:
    check_rounding(dtype, lanes, without(lacking))


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_sums_of_halves_are_rounded_once(dtype: DType) -> None:
    total = Reduce("add", Load("x", 0, dtype, 16))
    parameters = (Parameter(Buffer("x", dtype, 16)), Parameter(Buffer("y", dtype, 1), True))
    function = Function("total", parameters, (), (Store("y", 0, total),))
    x = np.full(16, 1 + 2.0**-7, np.float32).astype(dtype.numpy)
    arguments = {"x": x, "y": np.zeros(1, dtype.numpy)}
    call(compiled([function]), function, arguments, {})
    assert arguments["y"][0] == np.float32(16 + 2.0**-3).astype(dtype.numpy)


@pytest.mark.parametrize("case", [c for c in CASES if parallel_loop(c.function)])
def test_agrees_with_numpy_on_a_pool(case: Case, pool: ThreadPool) -> None:
    check(case, execute(pool, True))


def test_text_is_deterministic() -> None:
    functions = [case.function for case in CASES]
    assert emit_llvm(functions[:1]) == emit_llvm(functions[:1])
    assert "; node of relu" in emit_llvm([relu(5).function])
    assert "; relu of 16 elements" in emit_llvm([relu(5).function])


def test_threads_share_a_loop_only_where_its_condition_holds() -> None:
    asked: list[int] = []
    entry = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2)
    fork = entry(lambda pool, body, context, extent, grain: asked.append(extent))
    address = ctypes.cast(fork, ctypes.c_void_p).value or 0
    function = relu(5, Condition(Sym("n"), ">=", 64)).function
    code = load_objects(build([function]), {PARALLEL_FOR: address})
    for size in (63, 64):
        x, y = (aligned(np.full(size, value, np.float32)) for value in (-1, 1))
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, y)]
        run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, ctypes.c_int64, ctypes.c_void_p)
        run(code.address("relu"))(*pointers, size, 1)
        assert y.any() == (size == 64)  # the fork is not made here
    assert asked == [4]


def one_store(function: str, dtype: DType = F32) -> Function:
    i = Sym("i")
    parameters = (Parameter(Buffer("x", dtype, 8)), Parameter(Buffer("y", dtype, 8), True))
    value = ScalarCall(function, (Load("x", i, dtype),), dtype)
    return Function("f", parameters, (), (For("i", 0, 8, (Store("y", i, value),)),))


def test_elementary_functions_have_to_be_expanded_first() -> None:
    with pytest.raises(NotImplementedError, match="'tanh' on f32; run the expand_math pass"):
        emit_llvm([one_store("tanh")])


def test_packed_types_are_refused() -> None:
    with pytest.raises(TypeError, match="cannot compute with i4"):
        emit_llvm([one_store("neg", I4)])


def test_known_active_lanes_need_no_mask() -> None:
    n, i = Sym("n"), Sym("i")
    parameters = (Parameter(Buffer("x", F32, 16 * n)), Parameter(Buffer("y", F32, 16 * n), True))
    store = Store("y", i, Load("x", i, F32, 16, active=16 * n - i), active=16 * n - i)
    function = Function("f", parameters, ("n",), (For("i", 0, 16 * n, (store,), 16),))
    text = emit_llvm([function])
    assert "masked" not in text
    assert "load <16 x float>, ptr %p, align 64" in text
