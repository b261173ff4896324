"""A small host program with symbolic arena offsets, and what it computes."""

from __future__ import annotations

import numpy as np

from modelcc.ir.graph import Constant
from modelcc.ir.index import DIM, Sym
from modelcc.ir.loop import Buffer, Call, For, Function, Load, Parameter, Splat, Store
from modelcc.ir.program import Binding, CopyTensor, Definition, Launch, Program
from modelcc.ir.types import F32, TensorType

n, b, i = Sym("n"), Sym("batch"), Sym("i")


def binary(name: str, function: str) -> Function:
    """``z = function(x, y)`` on ``n`` elements, 16 at a time."""
    active = n - i
    x, y = (Load(buffer, i, F32, 16, active=active) for buffer in "xy")
    store = Store("z", i, Call(function, (x, y), F32, 16), active=active)
    parameters = tuple(Parameter(Buffer(p, F32, n), p == "z") for p in "xyz")
    return Function(name, parameters, ("n",), (For("i", 0, n, (store,), 16, "parallel"),))


def scale() -> Function:
    """``z = x * w[0]`` on ``n`` elements, one thread."""
    active = n - i
    value = Call("mul", (Load("x", i, F32, 16, active=active), Splat(Load("w", 0, F32), 16)),
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
    bindings = (
        Binding("x", shape, "input"),
        Binding("h", flat, "arena", 0), Binding("g", flat, "arena", Sym("g_at")),
        Binding("w", TensorType((1,), F32), "constant"), Binding("y", shape, "output"),
        Binding("same", shape, "output"),
    )  # fmt: skip
    return Program(
        "small", ("x",), ("y", "same"), {binding.name: binding for binding in bindings},
        (binary("add", "add"), binary("sub", "sub"), scale()),
        (
            Launch("add", ("x", "x", "h"), (7 * b,), ("Add_0",)),
            Launch("scale", ("h", "w", "g"), (7 * b,), ("Mul_1",)),
            Launch("sub", ("g", "x", "y"), (7 * b,)),
            CopyTensor("same", "x", ("Identity_3",)),
        ),
        2 * Sym("g_at"),
        (Definition("g_at", (28 * b + 63) // 64 * 64),),
        {"w": Constant(np.array([3.5], np.float32))},
        {"batch": DIM},
    )  # fmt: skip
