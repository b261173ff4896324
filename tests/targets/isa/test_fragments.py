"""Products on a warp's fragments: what they mean, and what NVIDIA's tensor cores make of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from modelcc.ir.copies import WaitCopies
from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Barrier, Function, Stmt
from modelcc.ir.loop_cost import function_cost
from modelcc.ir.loop_groups import DivergenceError, RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import map_blocks
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, I8, U8, Array, DType
from modelcc.passes.loop.expand_copies import expand_copies
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.cuda.tools import assemble, disassemble, find_tool
from modelcc.targets.isa.fragments import (
    clear_c,
    depth,
    load_a,
    load_b,
    multiply,
    store_c,
    sums_of,
)

assembling = pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
disassembling = pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm")

TERMS = 2
"""Fragments that are added up."""

BODY = """func @product(%x: {t}[{n}], %y: {u}[{n}], %z: mut {s}[256]) {{
  grid g in 0 .. 1 {{
    shared %l: {t}[{m}]
    shared %r: {u}[{m}]
    thread lane in 0 .. 32 {{
      warp %fa: {t}[{f}]
      warp %fb: {u}[{f}]
      warp %fc: {s}[256]
      run @{clear}(%fc[0])
      for k in 0 .. {terms} {{
        copy %l[{pitch}*(lane floordiv 2) + {w}*(lane mod 2)] =
             %x[{row}*(lane floordiv 2) + {d}*k + {w}*(lane mod 2)] x{w}
        copy %r[{pitch}*(lane floordiv 2) + {w}*(lane mod 2)] =
             %y[{row}*(lane floordiv 2) + {d}*k + {w}*(lane mod 2)] x{w}
        commit
        wait 0
        barrier
        run @{a}(%fa[0], %l[0]; {pitch})
        run @{b}(%fb[0], %r[0]; {pitch})
        run @{multiply}(%fc[0], %fa[0], %fb[0])
        barrier
      }}
      run @{store}(%z[0], %fc[0]; 16)
    }}
  }}
}}"""


def product(
    dtype: DType, t: tuple[bool, bool] = (False, True), other: DType | None = None
) -> Function:
    """``z = x y`` of 16 x 16 results; operands that are ``t`` lie there as they are loaded; ``y``
    may be of an ``other`` type."""
    other = dtype if other is None else other
    sums, d, w = sums_of(dtype), depth(dtype), 16 // dtype.bytes
    used = load_a(dtype, t[0]), load_b(other, t[1]), multiply(dtype, other=other), clear_c(sums)
    store = store_c(sums, sums)
    text = BODY.format(
        t=dtype, u=other, s=sums, n=16 * d * TERMS, m=16 * (d + w), f=16 * d, terms=TERMS, d=d, w=w,
        pitch=d + w, row=d * TERMS, a=used[0].name, b=used[1].name, multiply=used[2].name,
        clear=used[3].name, store=store.name,
    )  # fmt: skip
    text = re.sub(r" =\n\s+", " = ", text)
    routines = (print_function(r).replace("func ", "routine ", 1) for r in (*used, store))
    return parse_function("\n".join((*routines, text)))


def operands(dtype: DType) -> tuple[Array, Array, Array]:
    """Two operands whose products are exact, and memory for the result."""
    generator = np.random.default_rng(5)
    x, y = (generator.integers(-8, 9, (16, depth(dtype) * TERMS)) for _ in range(2))
    return (
        x.astype(dtype.numpy),
        y.astype(dtype.numpy),
        np.zeros((16, 16), sums_of(dtype).numpy),
    )


def changed(function: Function, keep: Callable[[Stmt], bool]) -> Function:
    """``function`` without the statements that are not kept."""

    def rewrite(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map_blocks(s, rewrite) for s in body if keep(s))

    return replace(function, body=rewrite(function.body))


@pytest.mark.parametrize("dtype", [F16, BF16, F32, I8, F8E4M3FN, F8E5M2], ids=str)
def test_products_are_those_of_numpy(dtype: DType) -> None:
    function = product(dtype)
    verify_function(function)
    flops = 2 * 16 * 16 * depth(dtype) * TERMS if dtype.is_float else 0
    assert function_cost(function, {}).flops == flops, "a warp's, not each thread's"
    assert parse_function(print_function(function)) == function
    x, y, z = operands(dtype)
    interpret_loops(function, [x, y, z], [])
    wanted = x.astype(np.int64) @ y.astype(np.int64).T
    np.testing.assert_array_equal(z.astype(np.int64), wanted)
    again = np.zeros_like(z)
    interpret_loops(expand_copies(function), [x, y, again], [])
    np.testing.assert_array_equal(again, z)


def bytes_of(left: DType, right: DType) -> tuple[Array, Array, Array]:
    """Operands of all values, and memory for the sums."""
    generator = np.random.default_rng(6)
    limits = (np.iinfo(dtype.numpy) for dtype in (left, right))
    x, y = (
        generator.integers(n.min, n.max + 1, (16, depth(left) * TERMS)).astype(n.dtype)
        for n in limits
    )
    return x, y, np.zeros((16, 16), np.int32)


@pytest.mark.parametrize(("left", "right"), [(U8, I8), (I8, U8), (U8, U8), (I8, I8)], ids=str)
def test_bytes_of_any_signs_are_multiplied(left: DType, right: DType) -> None:
    function = product(left, other=right)
    verify_function(function)
    assert parse_function(print_function(function)) == function
    x, y, z = bytes_of(left, right)
    interpret_loops(function, [x, y, z], [])
    np.testing.assert_array_equal(z, x.astype(np.int32) @ y.astype(np.int32).T)


@assembling
@disassembling
@pytest.mark.parametrize(("left", "right"), [(U8, I8), (I8, U8), (U8, U8), (I8, I8)], ids=str)
@pytest.mark.parametrize("name", ["sm_80", "sm_90a"])
def test_bytes_of_any_signs_have_instructions(name: str, left: DType, right: DType) -> None:
    chip = find_chip(name)
    code = disassemble(
        assemble(ptx_text(llvm_text([product(left, other=right)], chip), chip), chip).code
    )
    signs = ".".join("U8" if dtype == U8 else "S8" for dtype in (left, right))
    assert f"IMMA.16832.{signs} " in code


def test_operands_may_lie_transposed() -> None:
    """Then blocks of 16 rows are read down their columns."""
    x, y, z = operands(F16)
    interpret_loops(product(F16, (True, False)), [x, y, z], [])
    blocks = [slice(16 * k, 16 * k + 16) for k in range(TERMS)]
    wanted = sum(x[:, k].astype(int).T @ y[:, k].astype(int) for k in blocks)
    np.testing.assert_array_equal(z.astype(int), wanted)


def test_tf32_has_ten_bits() -> None:
    x, y, z = operands(F32)
    x[:] = 1 + 2.0**-12
    y[:] = 1
    interpret_loops(product(F32), [x, y, z], [])
    np.testing.assert_array_equal(z, depth(F32) * TERMS)


def test_a_copy_that_nobody_waits_for_races() -> None:
    function = changed(product(F16), lambda s: not isinstance(s, WaitCopies))
    with pytest.raises(RaceError, match="a copy comes there: a wait is missing"):
        interpret_loops(function, [*operands(F16)], [])


def test_without_barriers_copies_race() -> None:
    function = changed(product(F16), lambda s: not isinstance(s, Barrier))
    with pytest.raises(RaceError, match="a barrier is missing"):
        interpret_loops(function, [*operands(F16)], [])


FAULTY = {
    (
        "run @clear_c_f32(%fc[0])",
        "if predicate(lane < 3) { run @clear_c_f32(%fc[0]) }",
    ): "only some threads may reach it",
    ("%l[0]; 24", "%l[lane mod 8]; 24"): "on other parts of memory each",
    ("%fc[0], %fa[0], %fb[0]", "%fc[0], %fb[0], %fa[0]"): "is taken as %b and as %a",
}


@pytest.mark.parametrize("change", FAULTY, ids=lambda change: change[1])
def test_what_a_warp_cannot_do_is_refused(change: tuple[str, str]) -> None:
    text = print_function(product(F16))
    assert change[0] in text
    with pytest.raises(ModelError, match=re.escape(FAULTY[change])):
        verify_function(parse_function(text.replace(*change)))


def test_fragments_have_their_boundaries() -> None:
    text = print_function(product(F16)).replace("warp %fc: f32[256]", "warp %fc: f32[512]")
    with pytest.raises(ModelError, match="is in parts of 256, not from 8 on"):
        verify_function(parse_function(text.replace("clear_c_f32(%fc[0])", "clear_c_f32(%fc[8])")))


def test_warps_that_do_not_meet_are_found() -> None:
    """The verifier looks at indices; what is read may differ, too."""
    function = product(F16)
    text = print_function(function).replace(
        "run @clear_c_f32(%fc[0])",
        "if lt(index[i64](lane), i64(3)) { run @clear_c_f32(%fc[0]) }",
    )
    with pytest.raises(DivergenceError, match="what its warp does together"):
        interpret_loops(parse_function(text), [*operands(F16)], [])


MACHINE_CODE = {
    F16: "HMMA.16816.F32",
    BF16: "HMMA.16816.F32.BF16",
    F32: "HMMA.1688.F32.TF32",
    I8: "IMMA.16832.S8.S8",
}


@assembling
@disassembling
@pytest.mark.parametrize(
    ("dtype", "name"), [(F16, "sm_80"), (BF16, "sm_90a"), (F32, "sm_80"), (I8, "sm_80")], ids=str
)
def test_tensor_cores_multiply_what_was_copied_beside(dtype: DType, name: str) -> None:
    chip = find_chip(name)
    made = assemble(ptx_text(llvm_text([product(dtype)], chip), chip), chip)
    assert made.uses["product"].spilled == 0
    code = disassemble(made.code)
    assert f"{MACHINE_CODE[dtype]} " in code
    for word in ("LDGSTS.E.BYPASS.128", "LDSM.16.M88.4", "BAR.SYNC"):
        assert word in code, word


def test_a_fragment_is_in_registers_that_have_numbers() -> None:
    function = product(F16)
    text = print_function(function).replace(
        "run @clear_c_f32(%fc[0])", "for q in 0 .. 2 { run @clear_c_f32(%fc[256*q]) }"
    )
    text = text.replace("warp %fc: f32[256]", "warp %fc: f32[512]")
    with pytest.raises(NotImplementedError, match="loops over them are unrolled"):
        llvm_text([parse_function(text)], find_chip("sm_80"))
