"""Hand-written loop functions with NumPy results, run by every executor of the loop level."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np

from modelcc.ir.copies import Prefetch
from modelcc.ir.index import Sym, maximum, minimum
from modelcc.ir.instructions import DOT4
from modelcc.ir.loop import (
    Alloc,
    Assign,
    BindIndex,
    Bitcast,
    Buffer,
    Comment,
    Const,
    Convert,
    Expr,
    For,
    Function,
    If,
    IndexOf,
    Intrinsic,
    Let,
    Load,
    MulAdd,
    Parameter,
    Predicate,
    Reduce,
    Register,
    ScalarCall,
    Select,
    Shuffle,
    Splat,
    Stmt,
    Store,
    Var,
    VectorGather,
    VectorScatter,
)
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.tensor import Condition
from modelcc.ir.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, DType

Arrays = Mapping[str, np.ndarray]
Runner = Callable[[Function, dict[str, np.ndarray], Mapping[str, int]], None]


@dataclass(frozen=True)
class Case:
    """A function, its arguments by name, and what the mutable ones shall hold afterwards."""

    function: Function
    arguments: Callable[[np.random.Generator], dict[str, np.ndarray]]
    sizes: Mapping[str, int]
    expected: Callable[[Arrays], dict[str, Any]]
    tolerance: float = 1e-5

    @property
    def name(self) -> str:
        return self.function.name


i, j, k, n, m = (Sym(s) for s in "ijknm")


def f32(value: float, lanes: int = 1) -> Const:
    return Const(value, F32, lanes)


def floats(*shape: int, dtype: DType = F32) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: rng.standard_normal(shape).astype(dtype.numpy)


def function(
    name: str, buffers: Mapping[str, tuple[DType, Any, bool]], sizes: tuple[str, ...], *body: Stmt
) -> Function:
    parameters = tuple(
        Parameter(Buffer(key, dtype, size), mutable)
        for key, (dtype, size, mutable) in buffers.items()
    )
    return Function(name, parameters, sizes, body, (f"node of {name}",))


def relu(extent: int, when: Condition | None = None) -> Case:
    value = Load("x", i, F32, 16, active=n - i)
    body = For(
        "i", 0, n,
        (
            Comment("relu of 16 elements"),
            Let("v", value),
            Store("y", i, ScalarCall("max", (Var("v", F32, 16), f32(0.0, 16)), F32, 16),
                  active=n - i),
        ),
        16, "parallel", when,
    )  # fmt: skip
    return Case(
        function("relu", {"x": (F32, n, False), "y": (F32, n, True)}, ("n",), body),
        lambda rng: {"x": floats(extent)(rng), "y": np.full(extent, 7, np.float32)},
        {"n": extent},
        lambda a: {"y": np.maximum(a["x"], 0)},
    )


CAPTURES = """
func @captures(%x: f32[n], %k: i64[2], %y: mut f32[n]; n) from "node of captures" {
  let %s = load %x[0]
  index g = load %k[1]
  local %t: f32[4]
  store %t[0] = f32x4(2.0)
  let %m = lt(load %x[0] x4, f32x4(0.0))
  parallel i in g .. n step 4 when n >= 9 {
    let %u = load %x[i] x4 mask(n - i)
    let %v = select(%m, mul(splat[4](%s), %u), splat[4](load %t[g]))
    store %y[i] mask(n - i) = add(%v, convert[f32](index[i64x4](g + i step 1)))
  }
}
"""


def captures(extent: int) -> Case:
    """A parallel loop that takes values, bools, an index and a local buffer from around it."""

    def expected(a: Arrays) -> dict[str, Any]:
        x, places = a["x"], np.arange(1, extent)
        chosen = np.resize(x[:4] < 0, extent - 1)
        y = np.where(chosen, x[0] * x[1:], 2.0) + 1 + places
        return {"y": np.concatenate([[0], y])}

    return Case(
        parse_function(CAPTURES),
        lambda rng: {
            "x": floats(extent)(rng),
            "k": np.array([0, 1]),
            "y": np.zeros(extent, np.float32),
        },
        {"n": extent},
        expected,
    )


def gemm() -> Case:
    """``c[m, 32] = a[m, 40] @ b[40, 32]`` in tiles of 4 rows and two vectors of 16."""
    tile = [(r, v) for r in range(4) for v in range(2)]
    loads: list[Stmt] = [Let(f"b{v}", Load("b", 32 * k + 16 * v, F32, 16)) for v in range(2)]
    for r in range(4):
        loads.append(Let(f"a{r}", Splat(Load("a", 40 * (i + r) + k, F32), 16)))
    steps: list[Stmt] = [
        Assign(
            f"c{r}{v}",
            MulAdd(Var(f"a{r}", F32, 16), Var(f"b{v}", F32, 16), Var(f"c{r}{v}", F32, 16)),
        )
        for r, v in tile
    ]
    body = For(
        "i", 0, 4 * m,
        (
            *(Register(f"c{r}{v}", f32(0, 16)) for r, v in tile),
            For("k", 0, 40, (Prefetch("b", 32 * k + 64), *loads, *steps)),
            *(Store("c", 32 * (i + r) + 16 * v, Var(f"c{r}{v}", F32, 16)) for r, v in tile),
        ),
        4, "parallel",
    )  # fmt: skip
    buffers = {"a": (F32, 160 * m, False), "b": (F32, 1280, False), "c": (F32, 128 * m, True)}
    return Case(
        function("gemm", buffers, ("m",), body),
        lambda rng: {
            "a": floats(12, 40)(rng),
            "b": floats(40, 32)(rng),
            "c": np.zeros((12, 32), np.float32),
        },
        {"m": 3},
        lambda a: {"c": a["a"] @ a["b"]},
        1e-4,
    )


def byte_dots(lanes: int) -> Case:
    """``y += a @ b`` of bytes: ``lanes`` columns, once by a repeated word, once lane by lane."""
    rows, columns = Load("b", 4 * lanes * k, I8, 4 * lanes), Load("c", 4 * lanes * k, U8, 4 * lanes)
    sums = Var("s", I32, lanes)
    body = (
        Register("s", Load("y", 0, I32, lanes)),
        For("k", 0, 6, (
            Assign("s", Intrinsic(DOT4, (Load("a", 4 * k, U8, 4), rows, sums))),
            Assign("s", Intrinsic(DOT4, (columns, rows, sums))),
        )),
        Store("y", 0, sums),
    )  # fmt: skip
    buffers = {
        "a": (U8, 24, False),
        "b": (I8, 24 * lanes, False),
        "c": (U8, 24 * lanes, False),
        "y": (I32, lanes, True),
    }

    def arguments(rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {
            "a": rng.integers(0, 256, 24).astype(np.uint8),
            "b": rng.integers(-128, 128, (6, lanes, 4)).astype(np.int8),
            "c": rng.integers(0, 256, (6, lanes, 4)).astype(np.uint8),
            "y": rng.integers(-9, 9, lanes).astype(np.int32),
        }

    def expected(a: Arrays) -> dict[str, Any]:
        b = a["b"].astype(np.int64)
        both = a["a"].reshape(6, 1, 4).astype(np.int64) + a["c"]
        return {"y": a["y"] + np.sum(both * b, axis=(0, 2))}

    return Case(function(f"byte_dots_{lanes}", buffers, (), *body), arguments, {}, expected, 0)


def row_sum(combine: str) -> Case:
    """A reduction of rows with 8 lanes, masked at the tail."""
    identity = {"add": 0.0, "max": -np.inf, "min": np.inf, "mul": 1.0}[combine]
    rest = n - k
    value: Expr = Load("x", n * j + k, F32, 8, active=rest)
    if combine != "add":
        lane = IndexOf(k, I32, 8, 1)
        inside = ScalarCall("lt", (lane, Splat(IndexOf(n, I32), 8)), BOOL, 8)
        value = Select(inside, value, f32(identity, 8))
    step = ScalarCall(combine, (Var("s", F32, 8), value), F32, 8)
    body = For(
        "j", 0, m,
        (
            Register("s", f32(identity, 8)),
            For("k", 0, n, (Assign("s", step),), 8),
            Store("y", j, Reduce(combine, Var("s", F32, 8))),
        ),
    )  # fmt: skip
    reduce = {"add": np.sum, "max": np.max, "min": np.min, "mul": np.prod}[combine]
    buffers = {"x": (F32, m * n, False), "y": (F32, m, True)}
    return Case(
        function(f"row_{combine}", buffers, ("m", "n"), body),
        lambda rng: {"x": floats(5, 21)(rng), "y": np.zeros(5, np.float32)},
        {"m": 5, "n": 21},
        lambda a: {"y": reduce(a["x"], axis=1)},
    )


def take_rows() -> Case:
    """Rows chosen by an index tensor: a bound index symbol."""
    g = Sym("g")
    body = For(
        "i", 0, n,
        (
            BindIndex("g", Load("rows", i, I64)),
            For("j", 0, 8, (Store("y", 8 * i + j, Load("x", 8 * g + j, F32, 4), ),), 4),
        ),
    )  # fmt: skip
    buffers = {"x": (F32, 80, False), "rows": (I64, n, False), "y": (F32, 8 * n, True)}
    return Case(
        function("take_rows", buffers, ("n",), body),
        lambda rng: {
            "x": floats(10, 8)(rng),
            "rows": rng.integers(0, 10, 6),
            "y": np.zeros((6, 8), np.float32),
        },
        {"n": 6},
        lambda a: {"y": a["x"][a["rows"]]},
    )


def gather_scatter() -> Case:
    """``y[to[i]] = x[from[i]]`` with 16 lanes and a masked tail."""
    active = n - i
    source = VectorGather("x", 0, Load("from", i, I32, 16, active=active), F32, active)
    target = Load("to", i, I64, 16, active=active)
    body = For("i", 0, n, (VectorScatter("y", 0, target, source, active),), 16)
    buffers = {
        "x": (F32, 50, False), "from": (I32, n, False), "to": (I64, n, False),
        "y": (F32, n, True),
    }  # fmt: skip

    def expected(a: Arrays) -> dict[str, Any]:
        y = np.zeros(23, np.float32)
        y[a["to"]] = a["x"][a["from"]]
        return {"y": y}

    return Case(
        function("gather_scatter", buffers, ("n",), body),
        lambda rng: {
            "x": floats(50)(rng),
            "from": rng.integers(0, 50, 23).astype(np.int32),
            "to": rng.permutation(23),
            "y": np.zeros(23, np.float32),
        },
        {"n": 23},
        expected,
    )


def transpose() -> Case:
    """Strided loads with a symbolic stride, strided stores with a constant one, a stride of -1."""
    body = For(
        "i", 0, n,
        (
            For("j", 0, 8, (Let("v", Load("x", n * j + i, F32, 4, stride=n)),
                            Store("y", 8 * i + j, Var("v", F32, 4)),), 4, "unrolled"),
            Store("z", 16 * i, Load("y", 8 * i, F32, 8), stride=2, active=8),
            Store("z", 16 * i + 1, Load("y", 8 * i + 7, F32, 8, stride=-1), stride=2),
        ),
    )  # fmt: skip
    buffers = {"x": (F32, 8 * n, False), "y": (F32, 8 * n, True), "z": (F32, 16 * n, True)}
    return Case(
        function("transpose", buffers, ("n",), body),
        lambda rng: {
            "x": floats(8, 5)(rng),
            "y": np.zeros((5, 8), np.float32),
            "z": np.zeros((5, 8, 2), np.float32),
        },
        {"n": 5},
        lambda a: {"y": a["x"].T, "z": np.stack([a["x"].T, a["x"].T[:, ::-1]], 2)},
    )


def shuffles(dtype: DType) -> Case:
    """Every second lane of two vectors, fewer lanes than they have, and more."""
    low, high = Load("x", 0, dtype, 8), Load("x", 8, dtype, 8)
    picked = ((0, 2, 4, 6, 8, 10, 12, 14), (15, 0), (*range(4, 12), *range(12, 4, -1)))
    starts = (0, 8, 10)
    body = [
        Store("y", start, Shuffle(low, high, places))
        for start, places in zip(starts, picked, strict=True)
    ]
    buffers = {"x": (dtype, 16, False), "y": (dtype, 26, True)}
    return Case(
        function(f"shuffles_{dtype}", buffers, (), *body),
        lambda rng: {
            "x": rng.integers(-9, 9, 16).astype(dtype.numpy),
            "y": np.zeros(26, dtype.numpy),
        },
        {},
        lambda a: {"y": np.concatenate([a["x"][list(places)] for places in picked])},
    )


def padded_shift() -> Case:
    """Index conditions, quotients and remainders of maybe negative numbers, an If with an else."""
    inside = Predicate((Condition(i - 3, ">=", 0), Condition(i - 3, "<", n)))
    body = For(
        "i", 0, n + 6,
        (
            If(inside, (Store("y", i, Load("x", i - 3, F32)),), (Store("y", i, f32(-1.0)),)),
            Store("q", i, IndexOf((i - 3) // 5, I64)),
            Store("r", i, IndexOf((i - 3) % 5, I32)),
            Store("s", i, IndexOf((i - 3) // 4 + minimum(i, 2 * n - i), I64)),
            Store("t", i, IndexOf((i - 3) % n * 2, I64)),
        ),
    )  # fmt: skip
    buffers = {"x": (F32, n, False), "y": (F32, n + 6, True)}
    for name, dtype in (("q", I64), ("r", I32), ("s", I64), ("t", I64)):
        buffers[name] = (dtype, n + 6, True)

    def expected(a: Arrays) -> dict[str, Any]:
        at = np.arange(13)
        return {
            "y": np.pad(a["x"], 3, constant_values=-1), "q": (at - 3) // 5, "r": (at - 3) % 5,
            "s": (at - 3) // 4 + np.minimum(at, 14 - at), "t": (at - 3) % 7 * 2,
        }  # fmt: skip

    return Case(
        function("padded_shift", buffers, ("n",), body),
        lambda rng: {
            "x": floats(7)(rng), "y": np.zeros(13, np.float32), "q": np.zeros(13, np.int64),
            "r": np.zeros(13, np.int32), "s": np.zeros(13, np.int64), "t": np.zeros(13, np.int64),
        },
        {"n": 7},
        expected,
    )  # fmt: skip


def local_buffer() -> Case:
    """A tile packed into a local buffer, read back in another order; unrolled loops."""
    tile = Buffer("tile", F32, 64, "local")
    body = For(
        "i", 0, n,
        (
            Alloc(tile),
            For("j", 0, 8, (Store("tile", 8 * j, Load("x", 64 * i + 8 * j, F32, 8)),), 1,
                "unrolled"),
            For("j", 0, 8, (Store("y", 64 * i + 8 * j, Load("tile", j, F32, 8, stride=8)),)),
        ),
        1, "parallel",
    )  # fmt: skip
    buffers = {"x": (F32, 64 * n, False), "y": (F32, 64 * n, True)}
    return Case(
        function("local_buffer", buffers, ("n",), body),
        lambda rng: {"x": floats(3, 8, 8)(rng), "y": np.zeros((3, 8, 8), np.float32)},
        {"n": 3},
        lambda a: {"y": a["x"].transpose(0, 2, 1)},
    )


def casts() -> Case:
    """Bools in memory and in registers, conversions between all kinds of numbers."""
    x = Load("x", i, F32, 8)
    positive = ScalarCall("gt", (x, f32(0, 8)), BOOL, 8)
    flag = Load("flag", i, BOOL, 8)
    both = ScalarCall("and", (positive, ScalarCall("not", (flag,), BOOL, 8)), BOOL, 8)
    body = For(
        "i", 0, 32,
        (
            Store("b", i, both),
            Store("f", i, Convert(flag, F32)),
            Store("i8", i, Convert(ScalarCall("mul", (x, f32(30, 8)), F32, 8), I8)),
            Store("u8", i, Convert(
                ScalarCall("abs", (ScalarCall("mul", (x, f32(50, 8)), F32, 8),), F32, 8), U8)),
            Store("f64", i, Convert(Load("i16", i, I16, 8), F64)),
            Store("half", i, Convert(x, F16)),
            Store("brain", i, Convert(x, BF16)),
            Store("back", i, Convert(Convert(x, BF16), F32)),
            Store("wide", i, Convert(Load("i16", i, I16, 8), I64)),
            Store("u16", i, Convert(Load("i16", i, I16, 8), U16)),
            Store("bits", i, Bitcast(x, I32)),
            Store("any", i, Convert(Load("i16", i, I16, 8), BOOL)),
        ),
        8,
    )  # fmt: skip
    outputs = {
        "b": BOOL, "f": F32, "i8": I8, "u8": U8, "f64": F64, "half": F16, "brain": BF16,
        "back": F32, "wide": I64, "u16": U16, "bits": I32, "any": BOOL,
    }  # fmt: skip
    buffers = {"x": (F32, 32, False), "flag": (BOOL, 32, False), "i16": (I16, 32, False)}
    buffers |= {name: (dtype, 32, True) for name, dtype in outputs.items()}

    def expected(a: Arrays) -> dict[str, Any]:
        x, i16 = a["x"], a["i16"]
        return {
            "b": (x > 0) & ~a["flag"], "f": a["flag"].astype(np.float32),
            "i8": (x * np.float32(30)).astype(np.int8),
            "u8": np.abs(x * np.float32(50)).astype(np.uint8),
            "f64": i16.astype(np.float64), "half": x.astype(np.float16),
            "brain": x.astype(BF16.numpy),
            "back": x.astype(BF16.numpy).astype(np.float32), "wide": i16.astype(np.int64),
            "u16": i16.astype(np.uint16), "bits": x.view(np.int32), "any": i16 != 0,
        }  # fmt: skip

    return Case(
        function("casts", buffers, (), body),
        lambda rng: {
            "x": floats(32)(rng),
            "flag": rng.integers(0, 2, 32).astype(bool),
            "i16": rng.integers(-2, 3, 32).astype(np.int16) * 1000,
            **{name: np.zeros(32, dtype.numpy) for name, dtype in outputs.items()},
        },
        {},
        expected,
        0,
    )


def integers(dtype: DType) -> Case:
    """Every integer function, with divisors that are 0 or -1 and shifts by the width or more."""
    lanes = 4
    a, b = Load("a", i, dtype, lanes), Load("b", i, dtype, lanes)
    binary = ("add", "sub", "mul", "div", "floordiv", "mod", "fmod", "min", "max", "and", "or",
              "xor")  # fmt: skip
    unary = ("neg", "abs", "sign", "not")
    stores: list[Stmt] = [Store(f"y_{f}", i, ScalarCall(f, (a, b), dtype, lanes)) for f in binary]
    stores += [Store(f"y_{f}", i, ScalarCall(f, (a,), dtype, lanes)) for f in unary]
    shift = Load("s", i, dtype, lanes)
    stores += [Store(f"y_{f}", i, ScalarCall(f, (a, shift), dtype, lanes)) for f in ("shl", "shr")]
    other = Load("w", i, dtype, lanes)
    dots = ("dot_halves", "dot_bytes")
    stores += [Store(f"y_{f}", i, ScalarCall(f, (other, b), dtype, lanes)) for f in dots]
    names = (*binary, *unary, "shl", "shr", *dots)
    buffers = {name: (dtype, 64, False) for name in ("a", "b", "s", "w")}
    buffers |= {f"y_{f}": (dtype, 64, True) for f in names}
    numpy = dtype.numpy

    def arguments(rng: np.random.Generator) -> dict[str, np.ndarray]:
        info = np.iinfo(numpy)
        low = max(info.min, -100)
        a = rng.integers(low, 100, 64).astype(numpy)
        b = rng.integers(max(low, -9), 9, 64).astype(numpy)
        a[0], b[0] = info.min, info.max if dtype.kind == "uint" else -1
        s = rng.integers(0, dtype.bits + 3, 64).astype(numpy)
        w = rng.integers(info.min, info.max, 64, numpy, endpoint=True)
        return {"a": a, "b": b, "s": s, "w": w} | {f"y_{f}": np.zeros(64, numpy) for f in names}

    def expected(given: Arrays) -> dict[str, Any]:
        a, b, s = given["a"], given["b"], given["s"]
        safe = np.where(b == 0, 1, b).astype(numpy)
        with np.errstate(all="ignore"):
            truncated = np.where(
                b == -1 if dtype.kind == "int" else False,
                -a,
                np.sign(a) * np.sign(safe) * (np.abs(a) // np.abs(safe)),
            )
            return {
                "y_add": a + b, "y_sub": a - b, "y_mul": a * b,
                "y_div": np.where(b == 0, a, truncated).astype(numpy),
                "y_floordiv": a // b, "y_mod": a % b, "y_fmod": np.fmod(a, b),
                "y_min": np.minimum(a, b), "y_max": np.maximum(a, b), "y_and": a & b,
                "y_or": a | b, "y_xor": a ^ b, "y_neg": -a, "y_abs": np.abs(a),
                "y_sign": np.sign(a), "y_not": ~a, "y_shl": a << s, "y_shr": a >> s,
                "y_dot_halves": _dot_halves(given["w"], b, dtype),
                "y_dot_bytes": _dot_bytes(given["w"], b, dtype),
            }  # fmt: skip

    body = For("i", 0, 64, tuple(stores), lanes)
    case = function(f"integers_{dtype}", buffers, (), body)
    return Case(case, arguments, {}, expected, 0)


def _dot_bytes(a: np.ndarray, b: np.ndarray, dtype: DType) -> np.ndarray:
    """By the bytes in memory, of which those of ``b`` have the type's sign."""
    own = np.int8 if dtype.kind == "int" else np.uint8
    left = a.view(np.uint8).reshape(len(a), -1).astype(np.int64)
    right = b.view(own).reshape(len(b), -1).astype(np.int64)
    return (left * right).sum(1).astype(dtype.numpy)


def _dot_halves(a: np.ndarray, b: np.ndarray, dtype: DType) -> np.ndarray:
    """By the arithmetic of Python's whole numbers."""
    base = 1 << (dtype.bits // 2)

    def halves(value: int) -> tuple[int, int]:
        high, low = divmod(value, base)
        return (low - base if dtype.kind == "int" and low >= base // 2 else low), high

    pairs = [
        zip(halves(x), halves(y), strict=True) for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    sums = [sum(x * y for x, y in pair) % (1 << dtype.bits) for pair in pairs]
    return np.array(sums, f"u{dtype.bits // 8}").astype(dtype.numpy)


def roundings(lanes: int) -> Case:
    """Products and quotients of fixed-point numbers, halves and the least number among them."""
    a, b = Load("a", i, I32, lanes), Load("b", i, I32, lanes)
    shift = Load("s", i, I32, lanes)
    products = {f"high_{what}": (f"rounding_high_{what}", (a, b)) for what in ("mul", "word")}
    calls = {**products, "shr": ("rounding_shr", (a, shift)), "part": ("high_word", (a, b))}
    stores = tuple(Store(f"y_{n}", i, ScalarCall(f, x, I32, lanes)) for n, (f, x) in calls.items())
    buffers = {name: (I32, 64, False) for name in "abs"}
    buffers |= {f"y_{name}": (I32, 64, True) for name in calls}

    def arguments(rng: np.random.Generator) -> dict[str, np.ndarray]:
        a, b = rng.integers(-(1 << 31), 1 << 31, (2, 64)).astype(np.int32)
        a[:8] = [-(1 << 31), 1 << 30, -(1 << 30), 3, -3, 5, -5, (1 << 31) - 1]
        b[:8] = [-(1 << 31), 1, 1, 1 << 30, 1 << 30, 1 << 30, 1 << 30, (1 << 31) - 1]
        s = rng.integers(0, 32, 64).astype(np.int32)
        s[:8] = [31, 31, 31, 1, 1, 1, 1, 0]
        outputs = {f"y_{name}": np.zeros(64, np.int32) for name in calls}
        return {"a": a, "b": b, "s": s, **outputs}

    def expected(given: Arrays) -> dict[str, Any]:
        a, b, s = ([int(v) for v in given[name]] for name in "abs")
        half = Fraction(1, 2)
        products = [x * y for x, y in zip(a, b, strict=True)]
        high, word = (
            [floor(Fraction(p, 1 << n) + Fraction(1, 2)) for p in products] for n in (31, 32)
        )
        near = [floor(Fraction(abs(x), 1 << n) + half) for x, n in zip(a, s, strict=True)]
        signed = [n if x >= 0 else -n for x, n in zip(a, near, strict=True)]
        high = [min(h, (1 << 31) - 1) for h in high]
        part = [floor(Fraction(p, 1 << 32)) for p in products]
        return {"y_high_mul": high, "y_high_word": word, "y_shr": signed, "y_part": part}

    body = For("i", 0, 64, stores, lanes)
    return Case(function(f"roundings_{lanes}", buffers, (), body), arguments, {}, expected, 0)


def float_functions(dtype: DType) -> Case:
    """Float functions that every target has an instruction for."""
    lanes = 8
    a, b = Load("a", i, dtype, lanes), Load("b", i, dtype, lanes)
    size = ScalarCall("abs", (a,), dtype, lanes)
    calls: dict[str, Expr] = {
        f: ScalarCall(f, (a, b), dtype, lanes) for f in ("add", "sub", "mul", "div", "min", "max")
    }
    calls |= {
        f: ScalarCall(f, (a,), dtype, lanes)
        for f in ("neg", "abs", "sign", "floor", "ceil", "trunc", "round", "reciprocal")
    }
    calls |= {f: ScalarCall(f, (size,), dtype, lanes) for f in ("sqrt", "rsqrt")}
    tests = ("eq", "ne", "lt", "le", "gt", "ge")
    special = Load("special", i, dtype, lanes)
    checks: dict[str, Expr] = {f: ScalarCall(f, (special, b), BOOL, lanes) for f in tests}
    checks |= {f: ScalarCall(f, (special,), BOOL, lanes) for f in ("isnan", "isinf")}
    buffers = {name: (dtype, 32, False) for name in ("a", "b", "special")}
    buffers |= {f"y_{f}": (dtype, 32, True) for f in calls}
    buffers |= {f"y_{f}": (BOOL, 32, True) for f in checks}
    stores = tuple(Store(f"y_{f}", i, e) for f, e in (calls | checks).items())

    def arguments(rng: np.random.Generator) -> dict[str, np.ndarray]:
        a, b = (3 * rng.standard_normal((2, 32))).astype(dtype.numpy)
        special = np.resize([np.nan, np.inf, -np.inf, 0.0, 1.5], 32).astype(dtype.numpy)
        outputs = {f"y_{f}": np.zeros(32, dtype.numpy) for f in calls}
        return (
            {"a": a, "b": b, "special": special}
            | outputs
            | {f"y_{f}": np.zeros(32, bool) for f in checks}
        )

    def expected(given: Arrays) -> dict[str, Any]:
        a, b = (given[name].astype(np.float64) for name in "ab")
        special = given["special"].astype(np.float64)
        results = {
            "add": a + b, "sub": a - b, "mul": a * b, "div": a / b, "min": np.minimum(a, b),
            "max": np.maximum(a, b), "neg": -a, "abs": abs(a), "sign": np.sign(a),
            "floor": np.floor(a), "ceil": np.ceil(a), "trunc": np.trunc(a), "round": np.rint(a),
            "reciprocal": 1 / a, "sqrt": np.sqrt(abs(a)), "rsqrt": 1 / np.sqrt(abs(a)),
        }  # fmt: skip
        results = {f: np.asarray(v).astype(dtype.numpy) for f, v in results.items()}
        results |= {
            "eq": special == b, "ne": special != b, "lt": special < b, "le": special <= b,
            "gt": special > b, "ge": special >= b, "isnan": np.isnan(special),
            "isinf": np.isinf(special),
        }  # fmt: skip
        return {f"y_{f}": v for f, v in results.items()}

    tolerance = {F64: 1e-15, F32: 1e-6, F16: 2e-3, BF16: 2e-2}[dtype]
    case = function(f"floats_{dtype}", buffers, (), For("i", 0, 32, stores, lanes))
    return Case(case, arguments, {}, expected, tolerance)


CASES = (
    relu(0), relu(5), relu(16), relu(100), captures(8), captures(22), gemm(),
    *(relu(size, Condition(maximum(n, 2 * n - 9), ">=", 50)) for size in (20, 100)),
    *(row_sum(c) for c in ("add", "max", "min", "mul")),
    take_rows(), gather_scatter(), transpose(), padded_shift(), local_buffer(), casts(),
    *(byte_dots(lanes) for lanes in (1, 4, 8, 16, 32)),
    *(shuffles(d) for d in (F32, F64, I8, U16)),
    *(integers(d) for d in (I8, I16, I32, I64, U8, U16, U32)),
    *map(roundings, (1, 4)),
    *(float_functions(d) for d in (F32, F64, F16, BF16)),
)  # fmt: skip


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that starts at a multiple of 64 bytes, as buffers shall."""
    raw = np.zeros(array.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    result = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    result[...] = array
    return result


def check(case: Case, run: Runner) -> None:
    """Run a case on fresh arguments and compare what it wrote with what is expected."""
    arguments = case.arguments(np.random.default_rng(0))
    before = {name: array.copy() for name, array in arguments.items()}
    run(case.function, arguments, case.sizes)
    expected = case.expected(before)
    for parameter in case.function.parameters:
        name = parameter.buffer.name
        wide = np.float64 if parameter.buffer.dtype.is_float else None
        got = arguments[name].astype(wide) if wide else arguments[name]
        if parameter.mutable:
            want = np.asarray(expected[name])
            assert got.shape == want.shape
            np.testing.assert_allclose(
                got, want.astype(wide) if wide else want, case.tolerance, case.tolerance,
                err_msg=f"{case.name}: {name}",
            )  # fmt: skip
        else:
            np.testing.assert_array_equal(got, before[name].astype(wide) if wide else before[name])
