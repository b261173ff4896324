"""Pad: amounts and axes that are constant or computed at run time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np

from modelcc.frontends.kit.dynamic_choice import by, either
from modelcc.frontends.kit.vectors import named_sizes, vector_of
from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.standard import runtime_shape
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.condition import Constraint
from modelcc.ir.index import Expr, Index, compare, maximum, minimum, symbols
from modelcc.ir.types import BOOL
from modelcc.ops.broadcast import Reshape
from modelcc.ops.elementwise import Where
from modelcc.ops.padding import Mode, Pad
from modelcc.ops.runtime_size import ReadSize
from modelcc.ops.shape import Full

MODES: tuple[Mode, ...] = get_args(Mode)


def pad(call: Call) -> str:
    """Pads are an attribute before opset 11, then an operand, with optional axes from 18 on."""
    mode: Mode = call.option("mode", MODES, "constant")
    before, after = _amounts(call)
    if not any(p != 0 for p in (*before, *after)):
        return call.input(0)
    if call.opset >= 11 and call.known(1) is None:
        after = _named_after(call, before, after)
    extents = zip(call.shape(), before, after, strict=True)
    call.emitter.require([(e + b + a, ">=", 0) for e, b, a in extents], call.source)
    if mode != "constant":
        _require_sources(call, before, after, mode)
    op = Pad(tuple(before), tuple(after), mode, _value(call))
    padded = _emitted(call, op, call.input(0))
    dynamic_value = call.opset >= 11 and call.has(2) and call.known(2) is None
    if mode != "constant" or not dynamic_value:
        return padded
    inside = call.emit(Full(call.shape(), True, BOOL))
    inside = _emitted(call, replace(op, value=False), inside)
    return call.emit(Where(), inside, padded, call.input(2))


def _amounts(call: Call) -> tuple[list[Index], list[Index]]:
    """Numbers of elements added before and after each axis."""
    rank = call.rank()
    given_axes = call.opset >= 18 and call.has(3)
    dynamic_axes = given_axes and call.known(3) is None
    if call.opset < 11:
        pads: tuple[Index, ...] = call.attrs.integers("pads" if call.opset >= 2 else "paddings")
    elif dynamic_axes:
        pads = runtime_shape.pads(call, rank)
    else:
        pads = call.indices(1, "pads")
    axes = call.axes(3, 18) if given_axes and not dynamic_axes else None
    axes = tuple(range(rank)) if axes is None else axes
    if len(pads) != 2 * len(axes):
        call.fail(f"{len(pads)} pads for {len(axes)} axes; expected {2 * len(axes)}")
    before: list[Index] = [0] * rank
    after: list[Index] = [0] * rank
    for i, a in enumerate(axes):
        before[a], after[a] = pads[i], pads[i + len(axes)]
    return before, after


def _value(call: Call) -> float | int | bool:
    """The fill value if it is known, else 0."""
    value: float | int | bool = 0
    if call.opset < 11:
        value = call.attrs.number("value", 0.0)
    elif call.has(2) and call.known(2) is not None:
        value = call.array(2, "constant value").reshape(-1)[0].item()
    if call.dtype().is_float:
        return float(value)
    return bool(value) if call.dtype() == BOOL else int(value)


def _emitted(call: Call, op: Pad, x: str) -> str:
    """``x`` by ``op``; if rows are unpadded at run time, they are copied as wholes, contiguously.

    Modes that read their source indices from tables gain nothing by it.
    """
    type = call.type_of(x)
    named = type.rank > 1 and any(isinstance(p, Expr) for p in (op.before[-1], op.after[-1]))
    if op.mode not in ("constant", "edge") or not named:
        return call.emit(op, x)
    zero = vector_of(call, (op.before[-1], op.after[-1])).equals(0)
    (result,) = op.infer(type)
    names = (*op.symbols(), *(name for extent in result.shape for name in symbols(extent)))

    def by_rows(build: GraphBuilder, x: str) -> str:
        rows = replace(op, before=(*op.before[:-1], 0), after=(*op.after[:-1], 0))
        same: Constraint = (result.shape[-1], "==", type.shape[-1])
        build.emit(ReadSize((), (same,)), build.constant(np.zeros(0, np.int64)), source=call.source)
        viewed = build.emit(Reshape((*type.shape[:-1], result.shape[-1])), x, source=call.source)
        return build.emit(rows, viewed, source=call.source)

    whole = zero.where(1, 0).product().equals(1)
    return either(call, whole, x, (by_rows, by(call, op)), names)


def _named_after(call: Call, before: Sequence[Index], after: Sequence[Index]) -> list[Index]:
    """``after``, in terms of named extents of the result."""
    extents = call.shape()
    whole = [e + b + a for e, b, a in zip(extents, before, after, strict=True)]
    dynamic = [n for n, a in enumerate(after) if not isinstance(a, int)]
    names = named_sizes(call, [whole[n] for n in dynamic], f"{call.labels[0]}_padded")
    found = dict(zip(dynamic, names, strict=True))
    return [found[n] - extents[n] - before[n] if n in found else a for n, a in enumerate(after)]


def _require_sources(
    call: Call, before: Sequence[Index], after: Sequence[Index], mode: Mode
) -> None:
    """Requires source elements for the padding: one, or as many as are reflected."""
    constraints: list[Constraint] = []
    for extent, first, last in zip(call.shape(), before, after, strict=True):
        left = extent + minimum(first, 0) + minimum(last, 0)
        added = maximum(first, 0) + maximum(last, 0)
        constraints.append((minimum(added, 1), "<=", left))
        for pad in (first, last) if mode == "reflect" else ():
            constraints.append((pad, "<=", maximum(left - 1, 0)))
    for constraint in constraints:
        if compare(*constraint, call.bounds) is False:
            call.fail(f"{call.type()} has too few elements for pads {before} and {after}: {mode}")
    call.emitter.require(constraints, call.source, always=True)
