"""Loop functions compiled through C text agree with NumPy, with and without a thread pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from loop_programs import CASES, Case, Runner, check, relu
from native_loops import call

from modelcc.ir.index import Sym
from modelcc.ir.loop import Buffer, Call, For, Function, Load, Parameter, Store
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.ir.types import F32, I4, DType
from modelcc.runtime.loader import load_objects
from modelcc.runtime.pool import ThreadPool
from modelcc.targets.c.emitter import EmitOptions, emit_c
from modelcc.targets.c.toolchain import CCompiler, find_compiler


@pytest.fixture(scope="module")
def compiler() -> CCompiler:
    return find_compiler()


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


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_agrees_with_numpy(case: Case, compiler: CCompiler, pool: ThreadPool) -> None:
    check(case, execute(compiler, pool, False))


@pytest.mark.parametrize("case", [c for c in CASES if parallel_loop(c.function)])
def test_agrees_with_numpy_on_a_pool(case: Case, compiler: CCompiler, pool: ThreadPool) -> None:
    check(case, execute(compiler, pool, True))
