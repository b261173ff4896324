"""Branches and loops of host programs: text, verifier, interpreter, and both emitters."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from c_library import CLibrary
from loop_programs import aligned
from machines import chosen_machine
from program_cases import nested_program, nested_result, with_tensor

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, Sym
from modelcc.ir.program import Program, Step, leaves
from modelcc.ir.program_cost import step_work
from modelcc.ir.program_interpreter import interpret_program
from modelcc.ir.program_parser import constants_by_digest, parse_program
from modelcc.ir.program_text import print_program
from modelcc.ir.program_verifier import verify_program
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.types import BOOL, F32, Array, TensorType
from modelcc.runtime.loader import load_objects
from modelcc.targets.c.emitter import EmitOptions as COptions
from modelcc.targets.c.program import emit_program_c
from modelcc.targets.c.toolchain import find_compiler
from modelcc.targets.llvm.emitter import emit_llvm
from modelcc.targets.llvm.program import emit_entry_points
from modelcc.targets.native.emission import emission
from modelcc.targets.native.toolchain import compile_llvm

CASES = [(1, True), (1, False), (2, True), (5, False), (6, True)]


def example(batch: int) -> Array:
    return np.random.default_rng(batch).uniform(1, 3, (batch, 7)).astype(np.float32)


def test_text_reads_back() -> None:
    program = nested_program()
    text = print_program(program)
    assert '  repeat step < batch from "Loop_1" {\n    launch @add_row(' in text
    assert "    repeat i while %more {\n" in text
    assert parse_program(text, constants_by_digest(program)) == program


def test_accepts_and_counts() -> None:
    program = nested_program()
    verify_program(program)
    assert len(list(leaves(program.steps))) == 6
    assert [row[3] for row in step_work(program, {"batch": 3})] == [0, 21, 7]


@pytest.mark.parametrize("batch, go", CASES)
def test_interpreter(batch: int, go: bool) -> None:
    x = example(batch)
    results = interpret_program(nested_program(), {"x": x, "go": np.array([go])})
    np.testing.assert_allclose(results["y"], nested_result(x, go), 1e-5)


@pytest.mark.parametrize("emitter", ["llvm", "c"])
def test_native_code(emitter: str, tmp_path: Path) -> None:
    address = _compiled_c(tmp_path) if emitter == "c" else _compiled_llvm()
    run = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 6)(address[0])
    weights = [aligned(constant.data) for constant in nested_program().constants.values()]
    arena = aligned(np.full(192, 0xFF, np.uint8))
    for batch, go in CASES:
        x, y = aligned(example(batch)), aligned(np.zeros(7, np.float32))
        flag, sizes = np.array([go]), (ctypes.c_int64 * 1)(batch)
        buffers = (_addresses(x, flag), _addresses(y), _addresses(*weights))
        assert run(*buffers, arena.ctypes.data, sizes, None) == 0
        np.testing.assert_allclose(y, nested_result(x, go), 1e-5)


def _addresses(*arrays: Array) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))


def _compiled_llvm() -> tuple[int, object]:
    """Address of the entry point, and what has to live as long as it is used."""
    program, machine = nested_program(), chosen_machine()
    options = emission(machine)
    texts = [
        emit_entry_points(program, options)[0],
        *(emit_llvm([f], options) for f in program.functions),
    ]
    code = load_objects([compile_llvm(text, machine) for text in texts], {})
    return code.address("nested_run"), code


def _compiled_c(folder: Path) -> tuple[int, object]:
    text = "#define MCC_SERIAL\n" + emit_program_c(nested_program(), COptions(static=True))
    code = CLibrary([text], find_compiler(), folder)
    return code.address("nested_run"), code


def with_steps(*changed: Step) -> Program:
    program = nested_program()
    return replace(program, steps=(*program.steps[: 3 - len(changed)], *changed))


def with_binding(name: str, type: TensorType, offset: Index) -> Program:
    return with_tensor(nested_program(), name, type, offset)


ROW = TensorType((7,), F32)
LOOP, LAST = nested_program().steps[1:]
assert isinstance(LOOP, Repeat)
assert isinstance(LAST, Branch)
REFUSED = {
    "no end": (with_steps(replace(LOOP, trips=None), LAST), "neither a bound nor a condition"),
    "counter twice": (
        with_steps(replace(LOOP, body=(LOOP,)), LAST), "Loop_1, loop over 'step': 'step' is alr"),
    "unknown bound": (with_steps(replace(LOOP, trips=Sym("m")), LAST), "'m' is not defined"),
    "no condition": (with_steps(replace(LAST, condition="no")), "there is no tensor 'no'"),
    "no bool": (with_steps(replace(LAST, condition="x")), "condition 'x' must be one bool, not"),
    "many bools": (
        replace(
            with_binding("flags", TensorType((2,), BOOL), 128),
            steps=(*nested_program().steps[:2], replace(LAST, condition="flags")),
        ),
        "condition 'flags' must be one bool"),
    "one side only": (with_steps(replace(LAST, other=())), "output 'y' is never written"),
    "state not kept": (with_binding("next", ROW, 128), "'total' is read before any step has"),
    "beyond the arena": (with_binding("next", ROW, 64 * Sym("step") + 64), "lie outside of an are"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(case: str) -> None:
    program, message = REFUSED[case]
    with pytest.raises(ModelError, match=message):
        verify_program(program)
