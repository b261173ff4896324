"""Scalarisation of vectors, for languages without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

from modelcc.ir.index import Index
from modelcc.ir.loop import (
    Assign,
    Check,
    Const,
    Expr,
    Function,
    IndexOf,
    Let,
    Load,
    Reduce,
    Register,
    ScalarCall,
    Shuffle,
    Splat,
    Stmt,
    Store,
    Var,
    VectorGather,
    VectorScatter,
)
from modelcc.ir.loop_traversal import (
    map_blocks,
    operands,
    statement_expressions,
    with_operands,
    with_statement_expressions,
)


def expand_lanes(function: Function) -> Function:
    """``function`` without vectors, except in routines that it calls.

    All lanes of a vector are computed before one of them is stored.

    before::

        func @f(%x: f32[4], %y: mut f32[4]) {
          let %a = load %x[0] x2
          store %y[0] stride(2) = add(%a, load %x[2] x2)
        }

    after::

        func @f(%x: f32[4], %y: mut f32[4]) {
          let %a = load %x[0]
          let %a.1 = load %x[1]
          let %.0 = add(%a, load %x[2])
          let %.1 = add(%a.1, load %x[3])
          store %y[0] = %.0
          store %y[2] = %.1
        }
    """
    numbers = count()
    return replace(function, body=_expanded(function.body, lambda: f".{next(numbers)}"))


def _expanded(body: tuple[Stmt, ...], fresh: Callable[[], str]) -> tuple[Stmt, ...]:
    return tuple(one for s in body for one in _statement(s, fresh))


def _statement(s: Stmt, fresh: Callable[[], str]) -> Iterator[Stmt]:
    match s:
        case Let() | Register():
            for lane in range(s.value.lanes):
                yield replace(s, name=_name(s.name, lane), value=_lane(s.value, lane))
        case Assign() | Store() | VectorScatter() if s.value.lanes > 1:
            values = [Let(fresh(), _lane(s.value, lane)) for lane in range(s.value.lanes)]
            yield from values
            for lane, value in enumerate(values):
                yield _written(s, Var(value.name, value.value.dtype), lane)
        case Check() if s.value.lanes > 1:
            raise NotImplementedError("indices are checked one by one where there are no vectors")
        case _:
            scalars = [_lane(e, 0) for e in statement_expressions(s)]
            changed = with_statement_expressions(s, scalars)
            yield map_blocks(changed, lambda block: _expanded(block, fresh))


def _written(s: Assign | Store | VectorScatter, value: Expr, lane: int) -> Stmt:
    match s:
        case Assign():
            return Assign(_name(s.name, lane), value)
        case Store():
            at = s.offset + lane * s.stride
            return Store(s.buffer, at, value, active=_active(s.active, lane))
        case VectorScatter():
            offsets, active = _lane(s.offsets, lane), _active(s.active, lane)
            return VectorScatter(s.buffer, s.offset, offsets, value, active)


def _lane(e: Expr, lane: int) -> Expr:
    """A lane of an expression; a scalar itself."""
    match e:
        case Const():
            return replace(e, lanes=1)
        case Var():
            return Var(_name(e.name, lane), e.dtype)
        case IndexOf():
            return IndexOf(e.index + lane * e.step, e.dtype)
        case Load():
            at = e.offset + lane * e.stride
            return Load(e.buffer, at, e.dtype, active=_active(e.active, lane))
        case VectorGather():
            return replace(e, offsets=_lane(e.offsets, lane), active=_active(e.active, lane))
        case Splat():
            return _lane(e.value, 0)
        case Shuffle():
            from_b, place = divmod(e.places[lane], e.a.lanes)
            return _lane(e.b if from_b else e.a, place)
        case Reduce():
            return _reduced(e)
        case _:
            own = with_operands(e, [_lane(operand, lane) for operand in operands(e)])
            return replace(own, lanes=1) if isinstance(own, ScalarCall) else own


def _reduced(e: Reduce) -> Expr:
    """Combines the lower half of the lanes with the upper one, until one is left."""
    values = [_lane(e.value, lane) for lane in range(e.value.lanes)]
    while len(values) > 1:
        half = (len(values) + 1) // 2
        pairs = zip(values[:half], values[half:], strict=False)
        odd = values[half - 1 : half] if len(values) % 2 else []
        values = [*(ScalarCall(e.function, pair, e.dtype) for pair in pairs), *odd]
    return values[0]


def _active(active: Index | None, lane: int) -> Index | None:
    return None if active is None else active - lane


def _name(name: str, lane: int) -> str:
    return name if lane == 0 else f"{name}.{lane}"
