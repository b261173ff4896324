"""Operands of what follows sums are asked for before these are known, and results stay the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from group_products import assert_same_meaning, function_of, program_of

from modelcc.ir.index import Sym
from modelcc.ir.loop import (
    Barrier,
    BindIndex,
    For,
    IndexOf,
    Let,
    Load,
    ScalarCall,
    Stmt,
    Store,
    Var,
    VectorGather,
)
from modelcc.ir.loop_traversal import statement_expressions, statements, walk
from modelcc.ir.tiles import WaitRoutines
from modelcc.ir.types import F16, F32, I64
from modelcc.schedule.group_schedule import TensorProduct
from modelcc.targets.gpu.products.epilogue_prefetch import Room, ask, one_after_the_other

SIZES = {"m": 19}
ONE = TensorProduct(64, 64, 64, 1, 1, 2, "wgmma")
TWO = TensorProduct(128, 64, 64, 2, 1, 3, "wgmma")
WIDE = TensorProduct(64, 128, 64, 1, 1, 2, "wgmma")
THIRDS = TensorProduct(64, 192, 64, 1, 1, 2, "wgmma")
FEW = TensorProduct(8, 64, 64, 1, 1, 3, "wgmma")

RESIDUAL = """%a: f16[128, 256], %b: f16[256, 64], %c: f16[64], %r: f16[128, 64])
  -> (%y: f16[128, 64]) {
  %p: f32[128, 64] = [i < 128, j < 64] sum[l < 256] f32(%a[i, l]) * f32(%b[l, j])
  %y: f16[128, 64] = [i < 128, j < 64] f16(%p[i, j] + f32(%c[j]) + f32(%r[i, j])) }"""

PRODUCTS: Mapping[str, tuple[TensorProduct, str]] = {
    "whole": (TWO, RESIDUAL),
    "no whole tiles, two results": (ONE, """%a: f16[70, 136], %b: f16[136, 72], %c: f32[72],
      %r: bf16[70, 72]) -> (%y: bf16[70, 72], %z: f32[70, 72]) {
      %p: f32[70, 72] = [i < 70, j < 72] sum[l < 136] f32(%a[i, l]) * f32(%b[l, j])
      %z: f32[70, 72] = [i < 70, j < 72] %p[i, j] + %c[j]
      %y: bf16[70, 72] = [i < 70, j < 72] bf16(%z[i, j] + f32(%r[i, j])) }"""),
    "no whole tiles of 192": (THIRDS, """%a: f16[70, 128], %b: f16[128, 200], %c: f16[200],
      %r: f16[70, 200]) -> (%y: f16[70, 200]) {
      %p: f32[70, 200] = [i < 70, j < 200] sum[l < 128] f32(%a[i, l]) * f32(%b[l, j])
      %y: f16[70, 200] = [i < 70, j < 200] f16(%p[i, j] + f32(%c[j]) + f32(%r[i, j])) }"""),
    "no vectors": (WIDE, """%a: f16[70, 64], %b: f16[129, 64], %r: f16[70, 129])
      -> (%y: f16[70, 129]) {
      %p: f32[70, 129] = [i < 70, j < 129] sum[l < 64] f32(%a[i, l]) * f32(%b[j, l])
      %y: f16[70, 129] = [i < 70, j < 129] f16(%p[i, j] + f32(%r[i, j])) }"""),
    "batches": (ONE, """%a: bf16[3, 40, 64], %b: bf16[3, 72, 64], %r: f32[3, 40, 72])
      -> (%y: f32[3, 40, 72]) {
      %p: f32[3, 40, 72] = [h < 3, i < 40, j < 72] sum[l < 64]
        f32(%a[h, i, l]) * f32(%b[h, j, l])
      %y: f32[3, 40, 72] = [h < 3, i < 40, j < 72] %p[h, i, j] + %r[h, i, j] }"""),
    "guarded operands": (ONE, """%a: f16[64, 64], %b: f16[64, 64], %r: f16[60, 64])
      -> (%y: f16[64, 64]) {
      %p: f32[64, 64] = [i < 64, j < 64] sum[l < 64] f32(%a[i, l]) * f32(%b[l, j])
      %y: f16[64, 64] = [i < 64, j < 64]
        f16(%p[i, j] + f32((%r[i, j] if [i < 60] else 2.0:f16))) }"""),
    "images": (TWO, """%x: bf16[2, 6, 10, 64], %w: bf16[3, 3, 64, 24], %r: bf16[2, 6, 10, 24])
      -> (%y: bf16[2, 6, 10, 24]) {
      %p: f32[2, 6, 10, 24] = [n < 2, h < 6, w < 10, j < 24] sum[c < 64, a < 3, b < 3]
        f32((%x[n, h + a - 1, w + b - 1, c]
          if [h + a >= 1, h + a < 7, w + b >= 1, w + b < 11] else 0.0:bf16)) * f32(%w[a, b, c, j])
      %y: bf16[2, 6, 10, 24] = [n < 2, h < 6, w < 10, j < 24]
        bf16(max(%p[n, h, w, j] + f32(%r[n, h, w, j]), 0.0)) }"""),
    "fewer vectors than threads": (FEW, """%a: f16[20, 136], %b: f16[136, 72], %r: f32[20, 72])
      -> (%y: f16[20, 72]) {
      %p: f32[20, 72] = [i < 20, j < 72] sum[l < 136] f32(%a[i, l]) * f32(%b[l, j])
      %y: f16[20, 72] = [i < 20, j < 72] f16(%p[i, j] + %r[i, j]) }"""),
    "named sizes": (ONE, """%a: f16[m, 72], %b: f16[72, 16], %r: f16[m, 16]) -> (%y: f16[m, 16]) {
      %p: f32[m, 16] = [i < m, j < 16] sum[l < 72] f32(%a[i, l]) * f32(%b[l, j])
      %y: f16[m, 16] = [i < m, j < 16] f16(%p[i, j] + f32(%r[i, j])) }"""),
}  # fmt: skip


@pytest.mark.parametrize("ahead", [0, 20, 200])
@pytest.mark.parametrize("name", PRODUCTS)
def test_results_are_what_the_stages_say(name: str, ahead: int) -> None:
    schedule, kernel = PRODUCTS[name]
    assert_same_meaning(program_of(kernel, SIZES), replace(schedule, ahead=ahead), SIZES)


def loads_of(body: Sequence[Stmt], names: tuple[str, ...]) -> int:
    expressions = (e for s in body for outer in statement_expressions(s) for e in walk(outer))
    return sum(isinstance(e, Load) and e.buffer in names for e in expressions)


@pytest.mark.parametrize(
    ("ahead", "wanted"),
    [(0, (0, 5, 0)), (12, (2, 3, 0)), (200, (5, 0, 0))],
    ids=["no registers", "few registers", "registers for all"],
)
def test_operands_are_asked_for_where_there_are_registers(
    ahead: int, wanted: tuple[int, int, int]
) -> None:
    """Before the last products, between the sums' way to memory and the barrier, behind it: a bias
    whose column a thread keeps once, and a residual of four vectors."""
    function = function_of(program_of(RESIDUAL, SIZES), replace(TWO, ahead=ahead))
    body = statements(function.body)
    last = max(n for n, s in enumerate(body) if s == WaitRoutines(1))
    met = max(n for n, s in enumerate(body) if isinstance(s, Barrier))
    parts = body[:last], body[last:met], body[met:]
    assert tuple(loads_of(part, ("x2", "x3")) for part in parts) == wanted


def test_rounds_that_share_their_operands_are_a_loop() -> None:
    bias = RESIDUAL.replace(" + f32(%r[i, j])", "")
    function = function_of(program_of(bias, SIZES), replace(WIDE, ahead=8))
    (loop,) = [s for s in statements(function.body) if isinstance(s, For) and s.variable == "n0"]
    assert loads_of(statements(function.body), ("x2",)) == 1
    assert loads_of(statements(loop.body), ("x2",)) == 0


PLACE, OTHER = Sym("i"), Sym("j")


def test_what_takes_a_loaded_value_stays_in_its_round() -> None:
    """An index from memory, what is loaded there, and what a round has written."""
    place = BindIndex("j", Load("places", PLACE, I64))
    first = Let("x", Load("x", PLACE * 2, F32))
    others = [
        Let("s", Load("sums", PLACE, F32)),
        place,
        Let("y", Load("y", OTHER, F32)),
        Let("z", Load("out", PLACE + 1, F32)),
        Let("g", VectorGather("x", 0, Load("places", PLACE, I64, 4), F32)),
        Let("v", ScalarCall("add", (Var("x", F32), Var("s", F32)), F32)),
        Store("out", PLACE, Var("v", F32)),
    ]
    bind = BindIndex("i", IndexOf(Sym("t") + 3, I64))
    (asked,) = ask([[bind, first, *others]], "sums")
    assert asked.operands == (bind, first)
    assert asked.rest == tuple(others)


def test_a_round_asks_for_no_operand_that_one_before_has() -> None:
    def body(name: str) -> list[Stmt]:
        return [Let(name, Load("c", PLACE, F16, 8)), Store("out", PLACE, Var(name, F16, 8))]

    first, second = ask([body("a"), body("b")], "sums")
    assert [s.name for s in first.loads] == ["a"]
    assert second.loads == ()
    assert second.rest == (Let("b", Var("a", F16, 8)), Store("out", PLACE, Var("b", F16, 8)))


def test_registers_of_a_round_that_has_ended_are_free() -> None:
    """Three rounds of 4 registers each, of which there are 8."""
    loads = [Let(f"x{n}", Load("r", PLACE + 8 * n, F16, 8)) for n in range(3)]
    stores = [Store("out", PLACE + 8 * n, Var(f"x{n}", F16, 8)) for n in range(3)]
    rounds = ask([[one, s] for one, s in zip(loads, stores, strict=True)], "sums")
    early = one_after_the_other(rounds, Room(4, 8))
    assert early.before == (loads[0],)
    assert early.between == (loads[1],)
    assert early.rest == (stores[0], loads[2], stores[1], stores[2])
