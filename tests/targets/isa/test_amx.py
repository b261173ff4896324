"""Products of tiles: processors' text does what the routine means."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import pytest

from modelcc.ir.index import evaluate
from modelcc.ir.loop import Argument, Function, RoutineCall
from modelcc.ir.loop_interpreter import compile_loops
from modelcc.runtime.loader import load_objects
from modelcc.targets.isa.amx import FEATURES, TileProduct, routine_text, tile_product
from modelcc.targets.llvm.emitter import emit_llvm
from modelcc.targets.native.emission import emission
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.toolchain import CodegenOptions, compile_llvm, host_machine

PRODUCTS = {
    "two by two": TileProduct(16, ((2, 1024),), 64, 2, 1024, ((2, 32),), 32),
    "odd numbers": TileProduct(7, ((3, 100),), 80, 3, 2048, ((2, 300), (2, 32)), 32),
    "half steps": TileProduct(14, ((2, 640), (1, 0)), 40, 1, 768, ((3, 40),), 16),
    "a row": TileProduct(1, ((1, 0),), 32, 1, 512, ((1, 32),), 32),
}


def caller(p: TileProduct) -> Function:
    routine = tile_product(p)
    given = tuple(Argument(name, 0) for name in "cab")
    return Function("f", routine.parameters, (), (RoutineCall(routine, given),))


@pytest.mark.skipif(
    not {*FEATURES} <= {*host_machine().features}, reason="this processor has no AMX"
)
@pytest.mark.parametrize("name", PRODUCTS)
def test_tiles_are_what_is_meant(name: str) -> None:
    function, machine = caller(PRODUCTS[name]), host_machine()
    rng = np.random.default_rng(0)
    sizes = [evaluate(p.buffer.size, {}) for p in function.parameters]
    a, b = (rng.integers(-3, 4, n).astype(ml_dtypes.bfloat16) for n in sizes[1:])
    c, wanted = (np.full(sizes[0], np.nan, np.float32) for _ in range(2))
    compile_loops(function)([wanted, a, b], [])
    text = emit_llvm([function], emission(machine))
    code = load_objects([compile_llvm(text, machine, CodegenOptions(optimize=1))], {})
    places = [ctypes.c_void_p(x.ctypes.data) for x in (c, a, b)]
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(code.address("f"))(*places)
    np.testing.assert_array_equal(c, wanted)


def test_a_routine_is_known_by_its_name_and_what_it_does() -> None:
    routine = tile_product(PRODUCTS["odd numbers"])
    found = routine_text(routine)
    assert found is not None and found.features == FEATURES
    other = Function(routine.name, routine.parameters, (), ())
    assert routine_text(other) is None


def test_processors_without_tiles_refuse() -> None:
    older = Machine("x86_64-unknown-linux-gnu", "x86-64-v4", ("+avx512f",), 512)
    with pytest.raises(NotImplementedError, match="no instructions for @tile_product"):
        emit_llvm([caller(PRODUCTS["a row"])], emission(older))
