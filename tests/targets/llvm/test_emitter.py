"""Loop functions compiled through LLVM text agree with NumPy, with and without a thread pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from loop_programs import CASES, Case, Runner, byte_dots, check, relu
from native_loops import call, compiled

from modelcc.ir.index import Sym
from modelcc.ir.loop import Buffer, Call, For, Function, Load, Parameter, Store
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.ir.types import F32, I4
from modelcc.runtime.pool import ThreadPool
from modelcc.targets.llvm.emitter import EmitOptions, emit_llvm


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


@pytest.mark.parametrize("widest", [0, 128, 256])
@pytest.mark.parametrize("lanes", [1, 4, 8, 16, 32])
def test_byte_dots_agree_on_processors_with_narrower_instructions(lanes: int, widest: int) -> None:
    def run(function: Function, arguments: dict[str, np.ndarray], sizes: Mapping[str, int]) -> None:
        call(compiled([function], None, widest), function, arguments, sizes)

    check(byte_dots(lanes), run)


def test_byte_dots_are_one_instruction_where_there_is_one() -> None:
    function = byte_dots(16).function
    assert "vpdpbusd.512" in emit_llvm([function], EmitOptions(byte_dots=512))
    assert "vpdpbusd" not in emit_llvm([function], EmitOptions(byte_dots=256))


@pytest.mark.parametrize("case", [c for c in CASES if parallel_loop(c.function)])
def test_agrees_with_numpy_on_a_pool(case: Case, pool: ThreadPool) -> None:
    check(case, execute(pool, True))


def test_text_is_deterministic() -> None:
    functions = [case.function for case in CASES]
    assert emit_llvm(functions[:1]) == emit_llvm(functions[:1])
    assert "; node of relu" in emit_llvm([relu(5).function])
    assert "; relu of 16 elements" in emit_llvm([relu(5).function])


def one_store(function: str, dtype=F32) -> Function:
    i = Sym("i")
    parameters = (Parameter(Buffer("x", dtype, 8)), Parameter(Buffer("y", dtype, 8), True))
    value = Call(function, (Load("x", i, dtype),), dtype)
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
