"""Every instruction of every instruction set does what it means, by each of its templates.

The matrix names no instruction: what is in the table is in it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from modelcc.ir.instructions import instruction_function, instruction_of, meaning_fault
from modelcc.ir.loop import Function
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.types import I8, U8, Array
from modelcc.passes.loop.expand_instructions import expand_instructions
from modelcc.targets.isa.table import ENCODINGS
from modelcc.targets.isa.templates import Encoding
from tests.instruction_runs import (
    HOST,
    TRIALS,
    assembly_of,
    compiled_c,
    compiled_llvm,
    each_trial,
    interpreted,
    lacking,
    operands_of,
)
from tests.targets.isa.references import REFERENCES


def label(encoding: Encoding) -> str:
    return f"{encoding.mnemonics[0]}-{encoding.instruction.name}x{encoding.lanes}"


EACH = pytest.mark.parametrize("encoding", ENCODINGS, ids=label)
BY_LLVM = pytest.mark.parametrize("encoding", [e for e in ENCODINGS if e.llvm], ids=label)
BY_C = pytest.mark.parametrize("encoding", [e for e in ENCODINGS if e.c], ids=label)
REPEATED = pytest.mark.parametrize("repeated", [False, True], ids=["each", "repeated"])


def check(got: Array, function: Function, arrays: list[Array], want: Array | None = None) -> None:
    """Integers agree bit by bit, floats up to roundings of the largest sums there can be."""
    want = interpreted(function, arrays) if want is None else want
    if got.dtype.kind in "iu":
        np.testing.assert_array_equal(got, want)
        return
    bound = interpreted(function, [np.abs(a) for a in arrays])
    assert (np.abs(got - want) <= np.exp2(-22) * bound).all()


@EACH
def test_meanings_are_well_formed_and_read_back(encoding: Encoding) -> None:
    instruction = encoding.instruction
    assert meaning_fault(instruction, encoding.lanes) == ""
    assert instruction_of(instruction_function(instruction)) == instruction
    function = each_trial(instruction, encoding.lanes)
    verify_function(function)
    assert parse_function(print_function(function)) == function


@EACH
@REPEATED
def test_meanings_on_vectors_are_the_loops(encoding: Encoding, repeated: bool) -> None:
    """What vectors compute, and what the loop over lanes does that is the meaning."""
    instruction, lanes = encoding.instruction, encoding.lanes
    function = each_trial(instruction, lanes, repeated)
    arrays = operands_of(function)
    rows = [a.reshape(TRIALS, -1) for a in arrays]
    if repeated:
        rows[0] = np.tile(rows[0], lanes)
    want = np.empty_like(rows[-1])
    for trial, result in enumerate(want):
        given = [np.ascontiguousarray(a[trial]) for a in rows[:-1]]
        interpret_loops(instruction_function(instruction), [*given, result], (lanes,))
    np.testing.assert_array_equal(interpreted(function, arrays), want.ravel())


@EACH
def test_meanings_are_those_of_numpy(encoding: Encoding) -> None:
    function = each_trial(encoding.instruction, encoding.lanes)
    arrays = operands_of(function)
    reference = REFERENCES.get(encoding.instruction.name)
    if reference is None:
        pytest.skip(f"nothing but its loop says what {encoding.instruction.name} means")
    want = reference(*(a.reshape(TRIALS, -1) for a in arrays[:-1])).ravel()
    check(interpreted(function, arrays), function, arrays, want.astype(arrays[-1].dtype))


@BY_LLVM
def test_llvm_selects_the_instruction(encoding: Encoding) -> None:
    text = assembly_of(each_trial(encoding.instruction, encoding.lanes), encoding)
    assert [name for name in encoding.mnemonics if f"{name} " not in text] == []


@BY_LLVM
@REPEATED
def test_llvm_computes_what_is_meant(encoding: Encoding, repeated: bool, tmp_path: Path) -> None:
    if lacking(encoding):
        pytest.skip(lacking(encoding))
    function = each_trial(encoding.instruction, encoding.lanes, repeated)
    arrays = operands_of(function)
    check(compiled_llvm(function, arrays, tmp_path, encoding), function, arrays)


@pytest.mark.share(2, "encoding", "repeated")
@BY_C
@REPEATED
def test_c_computes_what_is_meant(encoding: Encoding, repeated: bool, tmp_path: Path) -> None:
    if lacking(encoding):
        pytest.skip(lacking(encoding))
    function = each_trial(encoding.instruction, encoding.lanes, repeated)
    arrays = operands_of(function)
    check(compiled_c(function, arrays, tmp_path, encoding), function, arrays)


@pytest.mark.share(2, "encoding", "repeated")
@EACH
@REPEATED
def test_without_the_instruction_it_is_arithmetic(
    encoding: Encoding, repeated: bool, tmp_path: Path
) -> None:
    function = each_trial(encoding.instruction, encoding.lanes, repeated)
    plain = expand_instructions(function, {})
    verify_function(plain)
    arrays = operands_of(function)
    np.testing.assert_array_equal(interpreted(plain, arrays), interpreted(function, arrays))
    none = replace(encoding, features=(), architecture=HOST)
    check(compiled_llvm(plain, arrays, tmp_path, none), function, arrays)
    check(compiled_c(plain, arrays, tmp_path, none), function, arrays)


def test_a_template_that_does_otherwise_is_found(tmp_path: Path) -> None:
    """Operands the wrong way round: bytes with a sign are not those without."""
    signs = [e for e in ENCODINGS if {o.dtype for o in e.instruction.operands[:2]} == {U8, I8}]
    encoding = next(e for e in signs if e.llvm and not lacking(e))
    template = encoding.llvm
    assert template is not None
    wrong = template.text.replace("%a", "%x").replace("%b", "%a").replace("%x", "%b")
    swapped = replace(encoding, llvm=replace(template, text=wrong))
    function = each_trial(encoding.instruction, encoding.lanes)
    arrays = operands_of(function)
    with pytest.raises(AssertionError):
        check(compiled_llvm(function, arrays, tmp_path, swapped), function, arrays)
