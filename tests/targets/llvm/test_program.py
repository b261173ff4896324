"""A host program compiled through LLVM: symbolic offsets, views, constants, copies."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from loop_programs import aligned
from machines import chosen_machine
from program_cases import small_program

from modelcc.runtime.loader import load_objects
from modelcc.runtime.pool import ThreadPool
from modelcc.targets.llvm.emitter import emit_llvm
from modelcc.targets.llvm.program import emit_entry_points, entry_name
from modelcc.targets.native.emission import emission
from modelcc.targets.native.toolchain import compile_llvm


def addresses(*arrays: np.ndarray) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch", [1, 5])
def test_runs_all_steps(threads: int, batch: int) -> None:
    program, machine = small_program(), chosen_machine()
    options = emission(machine)
    texts = [
        emit_entry_points(program, options)[0],
        *(emit_llvm([f], options) for f in program.functions),
    ]
    objects = [compile_llvm(text, machine) for text in texts]
    x = aligned(np.random.default_rng(0).standard_normal((batch, 7)).astype(np.float32))
    y, same = aligned(np.zeros_like(x)), aligned(np.zeros_like(x))
    weights = [aligned(constant.data) for constant in program.constants.values()]
    arena = np.zeros(2 * 64 * batch + 64, np.uint8)
    start = arena.ctypes.data + -arena.ctypes.data % 64
    with ThreadPool(threads) as pool:
        code = load_objects(objects, {"mcc_parallel_for": pool.parallel_for_address})
        run = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 6)(
            code.address(entry_name(program))
        )
        sizes = (ctypes.c_int64 * 1)(batch)
        arguments = (addresses(x), addresses(y, same), addresses(*weights), start, sizes)
        status = run(*arguments, pool.address)
    assert status == 0
    np.testing.assert_allclose(y, (x + x) * np.float32(3.5) - x, 1e-5)
    np.testing.assert_array_equal(same, x)
