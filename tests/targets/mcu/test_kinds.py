"""Kinds of instructions, by how GNU's disassembler writes them."""

from __future__ import annotations

import pytest

from modelcc.targets.mcu.kinds import kind_of


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("smlad r1, r2, r3, r1", {"multiply": 1}),
        ("smull r1, r2, r3, r1", {"long_multiply": 1}),
        ("ldr.w r0, [r1, #4]", {"load": 1}),
        ("ldrd r0, r1, [r2], #8", {"pair": 1}),
        ("strb r0, [r1]", {"store": 1}),
        ("push {r4-r7, lr}", {"several": 1, "registers": 5}),
        ("vldmia r0!, {s0-s3}", {"several": 1, "registers": 4}),
        ("vfma.f32 s0, s1, s2", {"float_product": 1}),
        ("vdiv.f32 s0, s1, s2", {"float_divide": 1}),
        ("vadd.f32 s0, s1, s2", {"float": 1}),
        ("vmladava.s8 r0, q0, q1", {"vector": 1}),
        ("adds r0, #1", {"plain": 1}),
        ("bne.n 10", {"plain": 1}),
        ("sdiv r0, r1, r2", {"divide": 1}),
    ],
)
def test_arm(line: str, kinds: dict[str, int]) -> None:
    name, _, operands = line.partition(" ")
    assert dict(kind_of(name, operands, "arm")) == kinds


@pytest.mark.parametrize(
    ("name", "kind"),
    [("lw", "load"), ("c.lw", "load"), ("sb", "store"), ("remu", "divide"), ("mulh", "multiply")],
)
def test_riscv(name: str, kind: str) -> None:
    assert dict(kind_of(name, "", "riscv32")) == {kind: 1}
