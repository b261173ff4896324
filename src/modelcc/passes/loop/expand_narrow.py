"""Elements of a byte or less (fp8, fp4, int4, int2, scales) become bytes and exact arithmetic.

    let %y = convert[f32](load %x[i])         // %x: f8e5m2fnuz[n]

becomes, with ``%x: u8[n]``::

    let %narrow0 = convert[u32](load %x[i])
    let %y = select(…, nan, bitcast[f32](…))

An element takes one byte, in its low bits.  Data movement moves the byte; arithmetic is done in f32
(floats) or 8-bit integers, and the result is rounded to nearest even.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from modelcc.ir.loop import (
    Alloc,
    BindIndex,
    Bitcast,
    Buffer,
    Const,
    Convert,
    Expr,
    Function,
    IndexOf,
    Load,
    MulAdd,
    Reduce,
    RoutineCall,
    ScalarCall,
    Select,
    Shuffle,
    Splat,
    Stmt,
    Var,
    VectorGather,
)
from modelcc.ir.loop_traversal import (
    map_blocks,
    mentions,
    operands,
    statement_expressions,
    statements,
    with_operands,
    with_statement_expressions,
)
from modelcc.ir.types import F32, F64, I32, U8, DType
from modelcc.passes.loop.elementary.builder import Term, builder_for
from modelcc.passes.loop.narrow_formats import narrowed, odd_single, wide_dtype, widened


def expand_narrow(function: Function) -> Function:
    """``function`` without elements of narrow dtypes: its buffers hold bytes instead."""
    buffers = [p.buffer for p in function.parameters]
    buffers += [s.buffer for s in statements(function.body) if isinstance(s, Alloc)]
    narrow = any(b.dtype.is_narrow for b in buffers)
    if not narrow and not mentions(function.body, lambda e: e.dtype.is_narrow):
        return function
    parameters = tuple(replace(p, buffer=_bytes(p.buffer)) for p in function.parameters)
    return replace(
        function, parameters=parameters, body=_NarrowExpander(function).block(function.body)
    )


def _bytes(buffer: Buffer) -> Buffer:
    return replace(buffer, dtype=buffer.dtype.storage)


class _NarrowExpander:
    def __init__(self, function: Function) -> None:
        self._builder = builder_for(function, "narrow")

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The statements, each after the ``Let`` it now depends on."""
        result: list[Stmt] = []
        for s in body:
            expressions = [self._expression(e) for e in statement_expressions(s)]
            if isinstance(s, BindIndex):
                expressions = [self._wide(e, s.value.dtype).expr for e in expressions]
            result += self._builder.take()
            if isinstance(s, Alloc):
                s = Alloc(_bytes(s.buffer))
            if isinstance(s, RoutineCall):
                s = replace(s, routine=expand_narrow(s.routine))
            result.append(map_blocks(with_statement_expressions(s, expressions), self.block))
        return tuple(result)

    def _expression(self, e: Expr) -> Expr:
        """``e``; as a byte if its dtype is narrow."""
        inner = operands(e)
        parts = [self._expression(o) for o in inner]
        if not any(x.dtype.is_narrow for x in (e, *inner)):
            return with_operands(e, parts) if inner else e
        match e:
            case Const():
                bits = np.array(e.value).astype(e.dtype.numpy).view(np.uint8)
                return Const(int(bits), U8, e.lanes)
            case Var() | Load():
                return replace(e, dtype=U8)
            case VectorGather():
                return replace(e, offsets=parts[0], dtype=U8)
            case IndexOf():
                return self._narrow(Term(replace(e, dtype=I32)), e.dtype)
            case Select() | Splat() | Shuffle():
                return with_operands(e, parts)
            case Bitcast():
                return parts[0] if e.dtype.is_narrow else Bitcast(parts[0], e.dtype)
            case _:
                return self._computed(e, parts)

    def _computed(self, e: Expr, parts: list[Expr]) -> Expr:
        """A result of arithmetic on widened operands."""
        wide = [self._wide(p, o.dtype) for p, o in zip(parts, operands(e), strict=True)]
        exprs = [w.expr for w in wide]
        match e:
            case Convert():
                if not e.dtype.is_narrow:
                    return Convert(exprs[0], e.dtype)
                return self._narrow(wide[0], e.dtype)
            case ScalarCall():
                result = e.dtype if e.dtype == wide_dtype(e.dtype) else wide[0].dtype
                done: Expr = ScalarCall(e.function, tuple(exprs), result, e.lanes)
            case MulAdd():
                done = MulAdd(*exprs)
            case Reduce():
                done = Reduce(e.function, exprs[0])
            case _:
                raise TypeError(f"no arithmetic on {e.dtype}: {type(e).__name__}")
        return self._narrow(Term(done), e.dtype) if e.dtype.is_narrow else done

    def _wide(self, e: Expr, dtype: DType) -> Term:
        """A value of ``dtype``, a byte if that is narrow, in the dtype of computation."""
        if not dtype.is_narrow:
            return Term(e)
        return self._builder.let(widened(self._builder, self._builder.let(Term(e)), dtype))

    def _narrow(self, value: Term, dtype: DType) -> Expr:
        """The byte of the value of ``dtype`` nearest to ``value``."""
        build = self._builder
        value = build.let(value)
        exact = dtype.is_float and value.dtype == F64
        wide = odd_single(build, value) if exact else value.to(F32 if dtype.is_float else I32)
        return narrowed(build, build.let(wide), dtype).expr
