"""Hand-written tensor programs that use every node kind of the level."""

from __future__ import annotations

import math

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.index import Range, Sym
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.tensor import (
    Apply,
    Axis,
    Bind,
    Cast,
    Condition,
    Guard,
    IndexValue,
    Item,
    Kernel,
    Number,
    Read,
    Scalar,
    Scatter,
    Select,
    Stage,
    TensorProgram,
    View,
)
from modelcc.ir.types import BOOL, F16, F32, I32, I64, Layout, Part, TensorType, blocked

i, j, k, m, g = (Sym(name) for name in "ijkmg")


def f32(*shape: int | Sym) -> TensorType:
    return TensorType(tuple(shape), F32)


def read(tensor: str, *indices: object) -> Read:
    return Read(tensor, indices, F32)  # type: ignore[arg-type]


def binary(function: str, a: Scalar, b: Scalar) -> Apply:
    return Apply(function, (a, b), a.dtype)


def matmul_relu() -> TensorProgram:
    """``max(A @ B, 0)`` flattened, with a symbolic number of rows."""
    product = binary("mul", read("A", i, k), read("B", k, j))
    stages = (
        Stage("C", (Axis("i", m), Axis("j", 32)), (i, j), product, (Axis("k", 64),), "sum"),
        Stage(
            "D",
            (Axis("i", m), Axis("j", 32)),
            (i, j),
            binary("max", read("C", i, j), Number(0.0, F32)),
        ),
    )
    weights = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    return TensorProgram(
        "main",
        ("A",),
        ("y",),
        (
            Kernel("matmul_relu", ("A", "B"), ("D",), stages, ("fc1", "relu")),
            View("y", "D", ("f",)),
        ),
        {
            "A": f32(m, 64),
            "B": f32(64, 32),
            "C": f32(m, 32),
            "D": f32(m, 32),
            "y": TensorType((32 * m,), F32),
        },
        {"B": Constant(weights)},
        {"m": Range(1, None)},
    )


def padded_pool() -> TensorProgram:
    """A guarded maximum over three neighbours, then a concatenation by two partial writers."""
    inside = (Condition(i + k - 1, ">=", 0), Condition(i + k - 1, "<", m))
    body = Guard(inside, read("x", i + k - 1), Number(-math.inf, F32), F32)
    kernel = Kernel(
        "/pool/MaxPool",
        ("x",),
        ("y",),
        (
            Stage("t", (Axis("i", m),), (i,), body, (Axis("k", 3),), "max"),
            Stage("y", (Axis("i", m),), (i,), read("t", i)),
            Stage("y", (Axis("i", m),), (i + m,), read("x", i)),
        ),
        ("/pool/MaxPool", 'cat "quoted"'),
    )
    types = {"x": f32(m), "t": f32(m), "y": TensorType((2 * m,), F32)}
    dims = {"m": Range(1, 512)}
    return TensorProgram("pad", ("x",), ("y",), (kernel,), types, {}, dims)


def gather_rows() -> TensorProgram:
    """Rows of a table by run-time index, in a blocked layout with a border."""
    rows = Read("rows", (i,), I64)
    wrapped = Select(
        Apply("lt", (rows, Number(0, I64)), BOOL), binary("add", rows, Number(9, I64)), rows, I64
    )
    gathered = Bind("g", wrapped, read("table", g, j), F32)
    position = IndexValue(i * 4 + j, F32)
    half = Cast(binary("sub", gathered, binary("mul", position, Number(0.5, F32))), F16)
    stage = Stage("y", (Axis("i", m), Axis("j", 4)), (i, j), half)
    kernel = Kernel("gather", ("table", "rows"), ("y",), (stage,))
    layout = Layout((Part(1, 16), Part(0), Part(1, 1, 16)), ((1, 1), (0, 2)))
    types = {
        "table": f32(9, 4).with_layout(blocked(2, 1, 16)),
        "rows": TensorType((m,), I64),
        "y": TensorType((m, 4), F16, layout),
    }
    dims = {"m": Range(None, None)}
    return TensorProgram("g", ("table", "rows"), ("y",), (kernel,), types, {}, dims)


def scalar_program(body: Scalar) -> TensorProgram:
    """``y[()] = body``, over scalars ``a`` (f32), ``n`` (i32) and ``p`` (bool)."""
    types = {
        "a": f32(),
        "n": TensorType((), I32),
        "p": TensorType((), BOOL),
        "y": TensorType((), body.dtype),
    }
    items: tuple[Item, ...] = (Kernel("s", ("a", "n", "p"), ("y",), (Stage("y", (), (), body),)),)
    return TensorProgram("s", ("a", "n", "p"), ("y",), items, types)


def scatter_rows() -> TensorProgram:
    """Rows of u added to rows of x that an index chooses."""
    bound = IndexBound(m, "axis 0 of 'x'")
    body = Bind("g", Read("rows", (i,), I64), read("u", i, j), F32, bound)
    stage = Stage("y", (Axis("i", 5), Axis("j", 32)), (g, j), body, (), "sum")
    return TensorProgram(
        "scatter",
        ("x", "rows", "u"),
        ("y",),
        (Scatter(stage, "x", ("x", "rows", "u"), ("s",)),),
        {"x": f32(m, 32), "rows": TensorType((5,), I64), "u": f32(5, 32), "y": f32(m, 32)},
        {},
        {"m": Range(0, None)},
    )


PROGRAMS = (matmul_relu, padded_pool, gather_rows, scatter_rows)
