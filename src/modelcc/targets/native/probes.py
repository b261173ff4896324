"""Loop functions whose run times reveal properties of a processor."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.copies import Prefetch
from modelcc.ir.index import Index, Sym
from modelcc.ir.instructions import DOT4
from modelcc.ir.loop import (
    Assign,
    BindIndex,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    Intrinsic,
    Let,
    Load,
    MulAdd,
    Parameter,
    Register,
    ScalarCall,
    Stmt,
    Store,
    Var,
)
from modelcc.ir.types import F32, I8, I32, I64, U8, DType

REPEATS, EXTENT = "repeats", "extent"
LINE = 64
"""Distance in bytes of addresses in different cache lines."""

CYCLE_STEPS = 8
"""Dependent pairs of scalar instructions in a round of ``cycles``."""

READS = 12
"""Vectors that a round of ``reads`` adds, each to its own accumulator."""

_ROUND, _AT, _PLACE = Sym("round"), Sym("at"), Sym("place")


def cycles() -> Function:
    """Rounds of ``2 * CYCLE_STEPS`` dependent additions and exclusive ors of one cycle each."""
    x = _scalar("x")
    step = ScalarCall("xor", (ScalarCall("add", (x, _scalar("a")), I64), _scalar("b")), I64)
    rounds = _rounds([Assign("x", step)] * CYCLE_STEPS)
    start = (*(Let(name, Load("y", n, I64)) for n, name in enumerate("ab", 1)),)
    body = (*start, Register("x", Load("y", 0, I64)), rounds, Store("y", 0, x))
    return Function("cycles", (_written("y", I64, 3),), (REPEATS,), body)


def multiply_adds(name: str, dtype: DType, lanes: int, chains: int) -> Function:
    """Rounds of vector multiply-adds in ``chains`` independent dependency chains."""
    factor, term = (Var(v, dtype, lanes) for v in "ab")
    sums = [Var(f"s{n}", dtype, lanes) for n in range(chains)]
    return _in_chains(name, sums, dtype, [MulAdd(s, factor, term) for s in sums])


def byte_dots(lanes: int, chains: int) -> Function:
    """Rounds of ``chains`` dot products of four bytes in each of ``lanes``."""
    left, right = Var("a", U8, 4 * lanes), Var("b", I8, 4 * lanes)
    sums = [Var(f"s{n}", I32, lanes) for n in range(chains)]
    return _in_chains("byte_dots", sums, U8, [Intrinsic(DOT4, (left, right, s)) for s in sums], I8)


def reads(bits: int, ahead: int = 0) -> Function:
    """``repeats`` times: the sum of a buffer of ``extent`` elements of i32, in vectors; each line
    is prefetched ``ahead`` bytes before its use, unless 0."""
    lanes = bits // 32
    sums = [Var(f"s{n}", I32, lanes) for n in range(READS)]
    added: list[Stmt] = [
        Assign(s.name, ScalarCall("add", (s, Load("x", _AT + n * lanes, I32, lanes)), I32, lanes))
        for n, s in enumerate(sums)
    ]
    lines = range(0, READS * lanes, LINE // I32.bytes) if ahead else ()
    fetched = (Prefetch("x", _AT + n + ahead // I32.bytes) for n in lines)
    sweep = For("at", 0, Sym(EXTENT), (*fetched, *added), READS * lanes)
    start = [Register(s.name, Load("y", n * lanes, I32, lanes)) for n, s in enumerate(sums)]
    stores = [Store("y", n * lanes, s) for n, s in enumerate(sums)]
    body = (*start, _rounds([sweep]), *stores)
    parameters = (_read("x", I32, Sym(EXTENT)), _written("y", I32, READS * lanes))
    return Function(f"reads{ahead or ''}", parameters, (EXTENT, REPEATS), body)


def chase() -> Function:
    """A pointer chase: each round loads the next index; the last one is where the next call
    starts."""
    follow = (BindIndex("place", _scalar("p")), Assign("p", Load("x", _PLACE, I64)))
    body = (Register("p", Load("y", 0, I64)), _rounds(follow), Store("y", 0, _scalar("p")))
    parameters = (_read("x", I64, Sym(EXTENT)), _written("y", I64, 1))
    return Function("chase", parameters, (EXTENT, REPEATS), body)


def fork(threads: int) -> Function:
    """A parallel loop with almost no work for each of ``threads``."""
    apart = LINE // 4
    store = Store("y", _ROUND * apart, Const(1.0, F32))
    loop = For("round", 0, threads, (store,), 1, "parallel")
    return Function("fork", (_written("y", F32, threads * apart),), (), (loop,))


def _in_chains(
    name: str, sums: Sequence[Var], left: DType, steps: Sequence[Expr], right: DType | None = None
) -> Function:
    """Rounds of ``steps``, one for each of ``sums``, of the vectors a and b from memory."""
    total = sums[0]
    wide = total.lanes * total.dtype.bytes
    operands = [("a", left), ("b", right or left)]
    loads = [Let(v, Load(v, 0, d, wide // d.bytes)) for v, d in operands]
    start = [Register(s.name, Load("y", n * s.lanes, s.dtype, s.lanes)) for n, s in enumerate(sums)]
    rounds = _rounds([Assign(s.name, step) for s, step in zip(sums, steps, strict=True)])
    stores = [Store("y", n * s.lanes, s) for n, s in enumerate(sums)]
    parameters = [_read(v, d, wide // d.bytes) for v, d in operands]
    written = _written("y", total.dtype, len(sums) * total.lanes)
    body = (*loads, *start, rounds, *stores)
    return Function(name, (*parameters, written), (REPEATS,), body)


def _rounds(body: Sequence[Stmt]) -> For:
    return For("round", 0, Sym(REPEATS), tuple(body))


def _scalar(name: str) -> Var:
    return Var(name, I64)


def _read(name: str, dtype: DType, size: Index) -> Parameter:
    return Parameter(Buffer(name, dtype, size))


def _written(name: str, dtype: DType, size: int) -> Parameter:
    return Parameter(Buffer(name, dtype, size), mutable=True)
