"""Arithmetic and memory traffic of loop functions, by counting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from modelcc.ir.index import evaluate
from modelcc.ir.loop import (
    Arrive,
    BindIndex,
    Expr,
    For,
    Function,
    If,
    MulAdd,
    Reduce,
    RoutineCall,
    ScalarCall,
    Stmt,
    TakeTurns,
    While,
)
from modelcc.ir.loop_touched import touched
from modelcc.ir.loop_traversal import blocks, operands, statement_expressions
from modelcc.ir.scalar import FUNCTIONS


@dataclass(frozen=True)
class Cost:
    """``flops``: floating-point operations executed, lanes of masked tails included, a fused
    multiply-add counting 2; ``bytes``: upper bound of buffer bytes that a call accesses."""

    flops: int
    bytes: int


_TOGETHER = "\0together"
"""Key, in the place of a size, of the number of threads that run a routine together."""


def function_cost(function: Function, sizes: Mapping[str, int]) -> Cost:
    """Cost of one call with these size arguments.

    A loop whose bounds depend on an outer loop counts as in the first iteration of that one; of
    two branches the more expensive counts.  Loops bounded by run-time data, and those without
    bounds, count once.  The work of the last of several groups to arrive is divided among them.  A
    routine that threads run together counts once for all of them.
    """
    elements = touched(function, sizes)
    bytes = sum(elements[p.buffer.name] * p.buffer.dtype.bytes for p in function.parameters)
    return Cost(_block_flops(function.body, dict(sizes)), bytes)


def _block_flops(body: Sequence[Stmt], env: dict[str, int]) -> int:
    return sum(_statement_flops(s, env) for s in body)


def _statement_flops(s: Stmt, env: dict[str, int]) -> int:
    own = sum(_expression_flops(e) for e in statement_expressions(s))
    match s:
        case For():
            start, trips = _trips(s, env)
            env = {**env, _TOGETHER: trips} if s.kind == "thread" else env
            return trips * _block_flops(s.body, {**env, s.variable: start}) if trips else 0
        case If():
            usual = (s.other,) if s.rare else blocks(s)
            return own + max(_block_flops(part, env) for part in usual)
        case While():
            return own + _block_flops(s.body, env)
        case Arrive():
            return _block_flops(s.body, env) // max(evaluate(s.count, env), 1)
        case TakeTurns():
            return own + sum(_block_flops(b, env) for b in (s.first, s.rest))
        case RoutineCall():
            sizes = (evaluate(size, env) for size in s.sizes)
            once = function_cost(s.routine, dict(zip(s.routine.sizes, sizes, strict=True)))
            return once.flops // env.get(_TOGETHER, 1)
        case BindIndex():
            env[s.symbol] = 0
            return own
        case _:
            return own


def _trips(loop: For, env: Mapping[str, int]) -> tuple[int, int]:
    """First value of the variable and number of iterations."""
    start, stop = evaluate(loop.start, env), evaluate(loop.stop, env)
    return start, max(0, -(-(stop - start) // loop.step))


def _expression_flops(e: Expr) -> int:
    inside = sum(_expression_flops(operand) for operand in operands(e))
    if not e.dtype.is_float:
        return inside
    match e:
        case ScalarCall():
            return inside + (e.lanes if FUNCTIONS[e.function].domain != "any" else 0)
        case MulAdd():
            return inside + 2 * e.lanes
        case Reduce():
            return inside + e.value.lanes - 1
        case _:
            return inside
