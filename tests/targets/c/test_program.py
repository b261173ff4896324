"""A host program through C: in separate files, and as one file that is complete in itself."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from c_library import CLibrary
from loop_programs import aligned
from program_cases import small_program

from modelcc.runtime.loader import load_objects
from modelcc.runtime.pool import ThreadPool, pool_c
from modelcc.targets.c.emitter import EmitOptions, emit_c
from modelcc.targets.c.program import emit_program_c, entry_name, program_head
from modelcc.targets.c.toolchain import CCompiler, ToolchainError, find_compiler

WHOLE = EmitOptions(static=True, head=program_head(small_program()))


@pytest.fixture(scope="module")
def compiler() -> CCompiler:
    return find_compiler()


def addresses(*arrays: np.ndarray) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))


def run_small(address: int, batch: int, pool: int) -> None:
    """Call the entry point of the small program and check what it computes."""
    x = aligned(np.random.default_rng(0).standard_normal((batch, 7)).astype(np.float32))
    y, same = aligned(np.zeros_like(x)), aligned(np.zeros_like(x))
    weights = [aligned(constant.data) for constant in small_program().constants.values()]
    arena = aligned(np.zeros(2 * 64 * batch, np.uint8))
    run = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 6)(address)
    sizes = (ctypes.c_int64 * 1)(batch)
    buffers = (addresses(x), addresses(y, same), addresses(*weights), arena.ctypes.data)
    assert run(*buffers, sizes, pool) == 0
    np.testing.assert_allclose(y, (x + x) * np.float32(3.5) - x, 1e-5)
    np.testing.assert_array_equal(same, x)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch", [1, 5])
def test_separate_files(threads: int, batch: int, compiler: CCompiler) -> None:
    program = small_program()
    texts = [emit_program_c(program), *(emit_c([f]) for f in program.functions)]
    objects = [compiler.compile_object(text) for text in texts]
    with ThreadPool(threads) as pool:
        code = load_objects(objects, {"mcc_parallel_for": pool.parallel_for_address})
        run_small(code.address(entry_name(program)), batch, pool.address)


def test_one_file_without_a_pool(compiler: CCompiler, tmp_path: Path) -> None:
    text = "#define MCC_SERIAL\n" + emit_program_c(small_program(), WHOLE)
    run_small(CLibrary([text], compiler, tmp_path).address("small_run"), 5, 0)


def test_one_file_with_the_pool_in_c(compiler: CCompiler, tmp_path: Path) -> None:
    texts = [emit_program_c(small_program(), WHOLE), pool_c()]
    code = CLibrary(texts, compiler, tmp_path)
    create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32)(code.address("mcc_pool_create"))
    destroy = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address("mcc_pool_destroy"))
    handle = create(2)
    assert handle
    run_small(code.address("small_run"), 5, handle)
    destroy(handle)


def test_the_file_says_how_to_call_it() -> None:
    text = emit_program_c(small_program(), WHOLE)
    head = text[: text.index("*/")]
    assert " *   0: x, f32[batch, 7]\n" in head
    assert " *   1: same, f32[batch, 7]\n" in head
    assert " *   0: w, f32[1]\n" in head
    assert " * sizes: batch\n" in head
    assert "static void add(" in text
    assert "    /* Mul_1 */\n    scale(h, w, g, 7 * batch);" in text
    assert text == emit_program_c(small_program(), WHOLE)


def test_names_that_c_cannot_spell(compiler: CCompiler, tmp_path: Path) -> None:
    program = replace(small_program(), name="main-graph/1")
    text = "#define MCC_SERIAL\n" + emit_program_c(program, WHOLE)
    code = CLibrary([text], compiler, tmp_path)
    run_small(code.address(entry_name(program)), 1, 0)


def test_refused_files_show_the_compilers_words(compiler: CCompiler) -> None:
    with pytest.raises(ToolchainError, match=r"cannot compile the generated C:(.|\n)*expected"):
        compiler.compile_object("int f(")


def test_a_compiler_that_is_not_there() -> None:
    with pytest.raises(ToolchainError, match=r"looked for no-such-cc\); install gcc or clang"):
        find_compiler("no-such-cc")
    with pytest.raises(ToolchainError, match="false does not run"):
        find_compiler("false")
