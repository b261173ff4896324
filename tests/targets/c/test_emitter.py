"""Loop functions compiled through C text agree with NumPy, with and without a thread pool."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest
from loop_programs import (
    CASES,
    Case,
    Runner,
    check,
    gemm,
    padded_shift,
    relu,
)
from native_loops import call, compiled
from rounding_loops import check_all_halves, check_rounding, check_rounding_to_halves

from modelcc.ir.index import Sym
from modelcc.ir.loop import (
    Buffer,
    Comment,
    Const,
    For,
    Function,
    Load,
    Parameter,
    ScalarCall,
    Store,
    Var,
)
from modelcc.ir.loop import Let as LetStatement
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.ir.types import BF16, F16, F32, F64, I4, DType
from modelcc.runtime.loader import load_objects
from modelcc.runtime.pool import ThreadPool
from modelcc.targets.c.emitter import EmitOptions, emit_c
from modelcc.targets.c.names import symbol
from modelcc.targets.c.toolchain import CCompiler, ToolchainError, find_compiler

i, n = Sym("i"), Sym("n")


@pytest.fixture(scope="module")
def compiler() -> CCompiler:
    return find_compiler()


@pytest.fixture(scope="module", params=["gcc", "clang", "python-zig cc"])
def each_compiler(request: pytest.FixtureRequest) -> CCompiler:
    try:
        return find_compiler(request.param)
    except ToolchainError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPool]:
    with ThreadPool(2) as threads:
        yield threads


def execute(compiler: CCompiler, pool: ThreadPool, threaded: bool) -> Runner:
    def run(function: Function, arguments: dict[str, np.ndarray], sizes: Mapping[str, int]) -> None:
        symbols = {"mcc_parallel_for": pool.parallel_for_address}
        code = load_objects([compiler.compile_object(emit_c([function]))], symbols)
        call(code, function, arguments, sizes, pool if threaded else None)

    return run


def by_c(compiler: CCompiler) -> Runner:
    def run(function: Function, arguments: dict[str, np.ndarray], sizes: Mapping[str, int]) -> None:
        code = load_objects([compiler.compile_object(emit_c([function]))])
        call(code, function, arguments, sizes)

    return run


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_agrees_with_numpy(case: Case, each_compiler: CCompiler, pool: ThreadPool) -> None:
    check(case, execute(each_compiler, pool, False))


@pytest.mark.parametrize("case", [c for c in CASES if parallel_loop(c.function)])
def test_agrees_with_numpy_on_a_pool(case: Case, compiler: CCompiler, pool: ThreadPool) -> None:
    check(case, execute(compiler, pool, True))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_agrees_with_llvm(case: Case, compiler: CCompiler, pool: ThreadPool) -> None:
    by_llvm, by_c = (case.arguments(np.random.default_rng(1)) for _ in range(2))
    call(compiled([case.function], pool), case.function, by_llvm, case.sizes)
    execute(compiler, pool, False)(case.function, by_c, case.sizes)
    for name, want in by_llvm.items():
        wide = np.float64 if want.dtype.kind not in "iub" else want.dtype
        got, want = by_c[name].astype(wide), want.astype(wide)
        np.testing.assert_allclose(got, want, case.tolerance, case.tolerance, err_msg=name)


def test_compilers_find_nothing_to_warn_of(compiler: CCompiler) -> None:
    text = emit_c([case.function for case in unlike_named()])
    flags = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-xc", "-"]
    command = [*compiler.command, *compiler.flags, *flags]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def unlike_named() -> list[Case]:
    """The cases, of those with one name the first."""
    return list({case.name: case for case in reversed(CASES)}.values())


def test_text_is_readable_and_deterministic() -> None:
    functions = [case.function for case in unlike_named()]
    text = emit_c(functions)
    assert text == emit_c(functions)
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "/* node of relu */\nvoid relu(const float *restrict x, float *restrict y" in text
    assert "/* relu of 16 elements */" in text
    assert "c00 = a0 * b0 + c00;" in emit_c([gemm().function])
    assert "static void relu(" in emit_c([relu(5).function], EmitOptions(static=True))


def test_quotients_round_down_where_they_may_be_negative() -> None:
    text = emit_c([padded_shift().function])
    assert "t[i] = 2 * mcc_mod(i - 3, n);" in text
    assert "q[i] = (i + 2) / 5 - 1;" in text


def one_store(function: str, dtype: DType = F32, lanes: int = 1) -> Function:
    parameters = (Parameter(Buffer("x", dtype, 8)), Parameter(Buffer("y", dtype, 8), True))
    value = ScalarCall(function, (Load("x", i, dtype, lanes),), dtype, lanes)
    return Function("f", parameters, (), (For("i", 0, 8, (Store("y", i, value),), lanes),))


def test_elementary_functions_have_to_be_expanded_first() -> None:
    with pytest.raises(NotImplementedError, match="'tanh' on f32; run the expand_math pass"):
        emit_c([one_store("tanh")])


def test_packed_types_are_refused() -> None:
    with pytest.raises(TypeError, match="cannot compute with i4"):
        emit_c([one_store("neg", I4)])


def test_odd_vectors_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="no vectors of 3 elements"):
        emit_c([one_store("neg", F32, 3)])


def test_known_active_lanes_need_no_mask() -> None:
    parameters = (Parameter(Buffer("x", F32, 16 * n)), Parameter(Buffer("y", F32, 16 * n), True))
    store = Store("y", i, Load("x", i, F32, 16, active=16 * n - i), active=16 * n - i)
    function = Function("f", parameters, ("n",), (For("i", 0, 16 * n, (store,), 16),))
    assert "_first" not in emit_c([function])


def test_names_that_c_cannot_spell(compiler: CCompiler) -> None:
    """Keywords, names of the emitter's own, foreign letters, and two that are spelled alike."""
    names = ("int", "f32x16", "a/b", "a.b", "1st")
    parameters = tuple(Parameter(Buffer(x, F32, 1)) for x in names)
    total = Load(names[0], 0, F32)
    for x in names[1:]:
        total = ScalarCall("add", (total, Load(x, 0, F32)), F32)
    result = Parameter(Buffer("çæ", F32, 1), True)
    body = (
        Comment("ends */ here"),
        LetStatement("for", total),
        Store("çæ", 0, Var("for", F32)),
    )
    function = Function("the sum.1", (*parameters, result), (), body, ("/node*/",))
    arguments = {x: np.full(1, 2.0**k, np.float32) for k, x in enumerate(names)}
    arguments["çæ"] = np.zeros(1, np.float32)
    code = load_objects([compiler.compile_object(emit_c([function]))])
    call(code, replace(function, name=symbol(function.name)), arguments, {})
    assert arguments["çæ"] == 31


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("lanes", [1, 16])
def test_halves_are_exact(dtype: DType, lanes: int, compiler: CCompiler) -> None:
    check_all_halves(dtype, lanes, by_c(compiler))
    check_rounding_to_halves(dtype, lanes, by_c(compiler))


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("lanes", [1, 8])
def test_rounding_is_exact(dtype: DType, lanes: int, compiler: CCompiler) -> None:
    check_rounding(dtype, lanes, by_c(compiler))


def test_constants_keep_their_values(compiler: CCompiler) -> None:
    values = (0.1, -0.0, float("inf"), float("-inf"), 1e-45, 3.4028234663852886e38, -1.5)
    stores = tuple(Store("y", k, Const(value, F32)) for k, value in enumerate(values))
    function = Function("f", (Parameter(Buffer("y", F32, len(values)), True),), (), stores)
    arguments = {"y": np.zeros(len(values), np.float32)}
    call(load_objects([compiler.compile_object(emit_c([function]))]), function, arguments, {})
    np.testing.assert_array_equal(
        arguments["y"].view(np.uint32), np.array(values, np.float32).view(np.uint32)
    )
