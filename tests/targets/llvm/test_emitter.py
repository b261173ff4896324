"""Loop functions compiled through LLVM text agree with NumPy, with and without a thread pool."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import llvmlite.binding as llvm
import numpy as np
import pytest
from loop_programs import CASES, Case, check, relu

from modelcc.ir.index import Sym
from modelcc.ir.loop import Buffer, Call, For, Function, Load, Parameter, Store
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.ir.types import F32, I4
from modelcc.targets.llvm.emitter import emit_llvm

POOL = """
define void @mcc_parallel_for(ptr %pool, ptr %body, ptr %context, i64 %extent, i64 %grain) {
  %half = sdiv i64 %extent, 2
  call void %body(ptr %context, i64 %half, i64 %extent, i32 1)
  call void %body(ptr %context, i64 0, i64 %half, i32 0)
  ret void
}
"""


def engine_of(text: str) -> llvm.ExecutionEngine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    declaration = "declare void @mcc_parallel_for(ptr, ptr, ptr, i64, i64)"
    text = text.replace(declaration, POOL)
    module = llvm.parse_assembly(text, llvm.create_context())
    module.verify()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    module.data_layout = str(machine.target_data)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(2))
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


def aligned(array: np.ndarray) -> np.ndarray:
    raw = np.zeros(array.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    result = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    result[...] = array
    return result


def execute(
    function: Function, arguments: dict[str, np.ndarray], sizes: Mapping[str, int], pool: int
) -> None:
    engine = engine_of(emit_llvm([function]))
    address = engine.get_function_address(function.name)
    buffers = {p.buffer.name: aligned(arguments[p.buffer.name]) for p in function.parameters}
    values = [ctypes.c_void_p(b.ctypes.data) for b in buffers.values()]
    values += [ctypes.c_int64(sizes[name]) for name in function.sizes]
    if parallel_loop(function):
        values.append(ctypes.c_void_p(pool))
    ctypes.CFUNCTYPE(None, *(type(v) for v in values))(address)(*values)
    for name, buffer in buffers.items():
        arguments[name][...] = buffer


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_agrees_with_numpy(case: Case) -> None:
    check(case, lambda f, arguments, sizes: execute(f, arguments, sizes, 0))


@pytest.mark.parametrize("case", [c for c in CASES if parallel_loop(c.function)])
def test_agrees_with_numpy_on_a_pool(case: Case) -> None:
    check(case, lambda f, arguments, sizes: execute(f, arguments, sizes, 1))


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
