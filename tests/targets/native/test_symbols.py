"""Compiled code needs nothing of the system but what is listed, on any processor.

Every function of the loop level on every element type and every sample of every op is compiled for
every level of x86-64 and for aarch64, of which this machine need not run any: what an object needs
is read from it.  Op by op that takes minutes: a run takes a few of them, ``--all-ops`` all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from op_kernels import graph_of

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Sym
from modelcc.ir.instructions import DOT4
from modelcc.ir.loop import (
    Buffer,
    Convert,
    Expr,
    For,
    Function,
    Intrinsic,
    Load,
    MulAdd,
    Parameter,
    Reduce,
    ScalarCall,
    Store,
    VectorGather,
)
from modelcc.ir.loop_traversal import operands, walk
from modelcc.ir.loop_typing import type_fault
from modelcc.ir.loop_verifier import verify_functions
from modelcc.ir.op import Op
from modelcc.ir.scalar import COMBINE_FUNCTION, FUNCTIONS
from modelcc.ir.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType
from modelcc.ops.catalog import MCC
from modelcc.ops.samples import arrays
from modelcc.passes.loop.expand_instructions import expand_instructions
from modelcc.passes.loop.expand_math import expand_math
from modelcc.passes.loop.expand_narrow import expand_narrow
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.runtime.linking.elf import read_object
from modelcc.runtime.linking.symbols import MEMORY, PARALLEL_FOR, ROUNDING, needed
from modelcc.targets.c.emitter import emit_c
from modelcc.targets.c.toolchain import find_compiler
from modelcc.targets.cpu.algorithms import capacity_of
from modelcc.targets.cpu.schedule import schedule_program
from modelcc.targets.isa.table import lanes_of
from modelcc.targets.llvm.emitter import emit_llvm
from modelcc.targets.native.closed import check_closed
from modelcc.targets.native.emission import emission
from modelcc.targets.native.host import BASELINES, cpu_model
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.toolchain import CodegenOptions, compile_llvm
from tests.shares import turn_of

LEVELS = {
    name: Machine("x86_64-unknown-linux-gnu", name, level.features, level.vector_bits)
    for name, level in BASELINES.items()
}
MACHINES = {**LEVELS, "aarch64": Machine("aarch64-unknown-linux-gnu", vector_bits=128)}
KERNELS = {*MEMORY, PARALLEL_FOR}

FLOATS = (F16, BF16, F32, F64)
INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)
TYPES = (*FLOATS, *INTEGERS, BOOL)


def expressions(dtype: DType, lanes: int) -> Iterator[Expr]:
    """Every function, conversion and memory access that the type has."""
    x, y, z = (Load(f"{name}_{dtype}", lanes * Sym("i"), dtype, lanes) for name in "xyz")
    for function in FUNCTIONS.values():
        result = BOOL if function.result == "bool" else dtype
        yield ScalarCall(function.name, (x, y)[: function.arity], result, lanes)
    for target in TYPES:
        yield Convert(x, target)
        yield Convert(ScalarCall("round", (x,), dtype, lanes), target)
    yield from (Reduce(combine, x) for combine in COMBINE_FUNCTION.values())
    if dtype != BOOL:
        yield MulAdd(x, y, z)
    yield VectorGather(f"x_{dtype}", 0, Load("x_i32", 0, I32, lanes), dtype)
    yield Load(f"x_{dtype}", 0, dtype, lanes, stride=5)
    yield Load(f"x_{dtype}", 0, dtype, lanes, active=Sym("n"))


def is_defined(e: Expr) -> bool:
    """Whether the loop level has the function for the type; bits are no numbers."""
    function = e.function if isinstance(e, ScalarCall | Reduce) else ""
    bits = e.dtype.is_float and function in ("and", "or", "xor", "not")
    bits |= e.dtype == BOOL and isinstance(e, Reduce) and function in ("add", "mul")
    return not bits and not any(type_fault(inner, operands(inner)) for inner in walk(e))


def scalar_functions(lanes: int) -> list[Function]:
    """A function for each type, with a store of every expression."""
    inputs = {(f"{name}_{dtype}", dtype) for name in "xyz" for dtype in TYPES}
    found: list[Function] = []
    for dtype in TYPES:
        stores: list[Store] = []
        outputs: dict[str, DType] = {}
        for number, value in enumerate(filter(is_defined, expressions(dtype, lanes))):
            outputs[f"out{number}"] = value.dtype
            stores.append(Store(f"out{number}", value.lanes * Sym("i"), value))
        if lanes > 1 and dtype == I32:
            factors = Load("x_u8", 0, U8, 4 * lanes), Load("x_i8", 0, I8, 4 * lanes)
            outputs["dots"] = I32
            dots = Intrinsic(DOT4, (*factors, Load("x_i32", 0, I32, lanes)))
            stores.append(Store("dots", 0, dots))
        parameters = [Parameter(Buffer(name, kind, 1 << 12)) for name, kind in sorted(inputs)]
        parameters += [Parameter(Buffer(n, kind, 1 << 12), True) for n, kind in outputs.items()]
        body = (For("i", 0, 64, tuple(stores)),)
        found.append(Function(f"all_{dtype}_{lanes}", tuple(parameters), ("n",), body))
    verify_functions(found)
    return [expand_math(function) for function in found]


def legalized(functions: list[Function], machine: Machine) -> list[Function]:
    """With the instructions of ``machine`` and no others."""
    table = emission(machine).instructions.encodings
    return [expand_instructions(function, lanes_of(table)) for function in functions]


def needs(functions: list[Function], machine: Machine) -> set[str]:
    """What the machine code of ``functions`` wants from elsewhere."""
    text = emit_llvm(legalized(functions, machine), emission(machine))
    return set(needed([read_object(compile_llvm(text, machine, CodegenOptions(optimize=1)))]))


@pytest.mark.parametrize(("name", "lanes"), [(m, n) for m in MACHINES for n in (1, 8)])
def test_every_function_on_every_type_needs_no_library(name: str, lanes: int) -> None:
    assert needs(scalar_functions(lanes), MACHINES[name]) <= KERNELS


@pytest.mark.parametrize("arch", ["x86-64", "x86-64-v3"])
def test_every_function_in_c_needs_no_compilers_library(arch: str) -> None:
    text = emit_c(scalar_functions(4))
    compiled = find_compiler(arch=arch, optimize=1).compile_object(text)
    allowed = {*KERNELS, *(ROUNDING if arch == "x86-64" else ())}
    assert set(needed([read_object(compiled)])) <= allowed


def kernels(op: type[Op], machine: Machine) -> list[Function]:
    """The kernels of all samples of an op, as this machine is given them."""
    found: list[Function] = []
    for number, sample in enumerate(op.samples):
        own = op(**sample.attributes)
        graph, cpu = graph_of(own, sample, arrays(own, sample), False), cpu_model(machine, 1)
        program = FuseKernels()(lower_graph(graph, capacity_of(cpu)))
        found += [
            expand_math(expand_narrow(replace(f, name=f"{f.name}_{number}")))
            for f in schedule_program(program, cpu).functions
        ]
    return found


OPS = [op for op in MCC.ops if op.has("compute") or op.has("algorithm")]
SHARE = 16
"""Without ``--all-ops`` every level gets one op of so many, each level others."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "sampled" in metafunc.fixturenames:
        turn = turn_of(metafunc.config)
        cases = [
            pytest.param((op, machine), id=f"{op.__name__}-{machine}")
            for first, machine in enumerate(MACHINES)
            for op in turn.of(OPS, SHARE, first)
        ]
        metafunc.parametrize("sampled", cases)


def test_every_op_needs_no_library(sampled: tuple[type[Op], str]) -> None:
    op, name = sampled
    functions = kernels(op, MACHINES[name])
    if functions:
        assert needs(functions, MACHINES[name]) <= KERNELS


def test_code_that_needs_a_library_is_refused_when_it_is_built() -> None:
    text = """
        declare float @expf(float)
        define float @kernel(float %x) {
          %y = call float @expf(float %x)
          ret float %y
        }"""
    with pytest.raises(ModelError, match="needs expf, which artifacts do not bring along"):
        check_closed([compile_llvm(text, LEVELS["x86-64"])])
