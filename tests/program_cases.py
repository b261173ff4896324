"""Small host programs with symbolic arena offsets, and what they compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.index import DIM, Index, Sym
from modelcc.ir.loop import Buffer, Const, For, Function, Load, Parameter, ScalarCall, Splat, Store
from modelcc.ir.program import (
    Binding,
    CopyTensor,
    Definition,
    Launch,
    Place,
    Placement,
    Program,
    Step,
)
from modelcc.ir.program_parser import constants_by_digest, parse_program
from modelcc.ir.program_text import print_program
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.types import BOOL, F32, Array, TensorType

n, b, i = Sym("n"), Sym("batch"), Sym("i")


def binary(name: str, function: str) -> Function:
    """``z = function(x, y)`` on ``n`` elements, 16 at a time."""
    active = n - i
    x, y = (Load(buffer, i, F32, 16, active=active) for buffer in "xy")
    store = Store("z", i, ScalarCall(function, (x, y), F32, 16), active=active)
    parameters = tuple(Parameter(Buffer(p, F32, n), p == "z") for p in "xyz")
    return Function(name, parameters, ("n",), (For("i", 0, n, (store,), 16, "parallel"),))


def scale() -> Function:
    """``z = x * w[0]`` on ``n`` elements, one thread."""
    active = n - i
    value = ScalarCall("mul", (Load("x", i, F32, 16, active=active), Splat(Load("w", 0, F32), 16)),
                 F32, 16)  # fmt: skip
    parameters = (
        Parameter(Buffer("x", F32, n)),
        Parameter(Buffer("w", F32, 1)),
        Parameter(Buffer("z", F32, n), True),
    )
    return Function("scale", parameters, ("n",), (For("i", 0, n, (Store("z", i, value, 1, active),),
                                                      16),))  # fmt: skip


def small_program() -> Program:
    """``y = (x + x) * w - x``, ``same = x``; ``h`` and ``g`` in the arena."""
    shape = TensorType((b, 7), F32)
    flat = TensorType((7 * b,), F32)
    places = {
        "x": (shape, Binding("input")), "h": (flat, Binding("arena", 0)),
        "g": (flat, Binding("arena", Sym("g_at"))),
        "w": (TensorType((1,), F32), Binding("constant")),
        "y": (shape, Binding("output")), "same": (shape, Binding("output")),
    }  # fmt: skip
    return Program(
        "small", ("x",), ("y", "same"),
        (
            Launch("add", ("x", "x", "h"), (7 * b,), ("Add_0",)),
            Launch("scale", ("h", "w", "g"), (7 * b,), ("Mul_1",)),
            Launch("sub", ("g", "x", "y"), (7 * b,)),
            CopyTensor("same", "x", ("Identity_3",)),
        ),
        {name: type for name, (type, _) in places.items()},
        (binary("add", "add"), binary("sub", "sub"), scale()),
        {"w": Constant(np.array([3.5], np.float32))},
        {"batch": DIM},
        placement=Placement(
            {name: binding for name, (_, binding) in places.items()},
            2 * Sym("g_at"),
            (Definition("g_at", (28 * b + 63) // 64 * 64),),
        ),
    )  # fmt: skip


def with_tensor(
    program: Program, name: str, type: TensorType, offset: Index, place: Place = "arena"
) -> Program:
    """``program`` with a tensor at a place of its own."""
    placed = program.placed
    bindings = {**placed.bindings, name: Binding(place, offset)}
    types = {**program.types, name: type}
    return replace(program, types=types, placement=replace(placed, bindings=bindings))


def add_row() -> Function:
    """``z = s + x[row]`` on rows of 7 elements."""
    row = Load("x", 7 * Sym("row") + i, F32)
    body = Store("z", i, ScalarCall("add", (Load("s", i, F32), row), F32))
    parameters = (
        Parameter(Buffer("x", F32, 7 * n)),
        Parameter(Buffer("s", F32, 7)),
        Parameter(Buffer("z", F32, 7), True),
    )
    return Function("add_row", parameters, ("n", "row"), (For("i", 0, 7, (body,)),))


def halve() -> Function:
    """``v = v / 2`` in place on 7 elements; ``more``: whether ``v[0]`` is still above 1."""
    half = ScalarCall("mul", (Load("v", i, F32), Const(0.5, F32)), F32)
    more = ScalarCall("gt", (Load("v", 0, F32), Const(1.0, F32)), BOOL)
    parameters = (Parameter(Buffer("v", F32, 7), True), Parameter(Buffer("more", BOOL, 1), True))
    return Function(
        "halve", parameters, (), (For("i", 0, 7, (Store("v", i, half),)), Store("more", 0, more))
    )


def nested_program() -> Program:
    """The sum of ``x``'s rows, halved until its first element is at most 1, if ``go`` holds.

    The sum alternates between two halves of a buffer.  See :func:`nested_result`.
    """
    row, flag, step = TensorType((7,), F32), TensorType((1,), BOOL), Sym("step")
    places = {
        "x": (TensorType((b, 7), F32), Binding("input")), "go": (flag, Binding("input")),
        "zero": (row, Binding("constant")), "yes": (flag, Binding("constant")),
        "first": (row, Binding("arena", 0)), "sum": (row, Binding("arena", 64 * (step % 2))),
        "next": (row, Binding("arena", 64 * ((step + 1) % 2))),
        "total": (row, Binding("arena", 64 * (b % 2))), "more": (flag, Binding("arena", 128)),
        "y": (row, Binding("output")),
    }  # fmt: skip
    add = Launch("add_row", ("x", "sum", "next"), (b, step), ("Add_0",))
    halving: Step = Repeat("i", None, (), (), (Launch("halve", ("y", "more")),), "more")
    return Program(
        "nested", ("x", "go"), ("y",),
        (
            CopyTensor("first", "zero"),
            Repeat("step", b, (), (), (add,), source=("Loop_1",)),
            Branch(
                "go",
                (),
                (CopyTensor("more", "yes"), CopyTensor("y", "total"), halving),
                (CopyTensor("y", "total"),),
            ),
        ),
        {name: type for name, (type, _) in places.items()},
        (add_row(), halve()),
        {"zero": Constant(np.zeros(7, np.float32)), "yes": Constant(np.array([True]))},
        {"batch": DIM},
        placement=Placement({name: binding for name, (_, binding) in places.items()}, 192),
    )  # fmt: skip


def nested_result(x: Array, go: bool) -> Array:
    """What :func:`nested_program` computes."""
    total = x.sum(0, dtype=np.float32)
    while go:
        total = total * np.float32(0.5)
        go = bool(total[0] > 1)
    return total


def check_text(program: Program) -> None:
    """The text of a program reads back, to one of the same text: NaN equals nothing."""
    text = print_program(program)
    assert print_program(parse_program(text, constants_by_digest(program))) == text
