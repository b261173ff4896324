"""Typing rules of loop-level expressions: dtypes and lanes of operands agree."""

from __future__ import annotations

from modelcc.ir.loop import (
    Bitcast,
    Const,
    Convert,
    Expr,
    IndexOf,
    Intrinsic,
    Load,
    MulAdd,
    Reduce,
    ScalarCall,
    Select,
    Shuffle,
    Splat,
    VectorGather,
)
from modelcc.ir.scalar import FUNCTIONS
from modelcc.ir.types import BOOL, DType

FOLDS = ("add", "mul", "min", "max", "minimum", "maximum", "and", "or", "xor")


def type_fault(e: Expr, parts: tuple[Expr, ...]) -> str:
    """The type error of ``e``, whose direct operands are ``parts``; "" if there is none."""
    if e.lanes < 1:
        return f"a value has {e.lanes} lanes"
    match e:
        case Const() | IndexOf() | Load():
            return _leaf_fault(e)
        case VectorGather():
            integer = e.offsets.dtype.is_integer
            return "" if integer else f"offsets must be integers, not {e.offsets.dtype}"
        case ScalarCall():
            return _call_fault(e)
        case MulAdd():
            return _same("muladd", parts, parts[0].dtype)
        case Intrinsic():
            return _intrinsic_fault(e)
        case Select():
            if e.condition.dtype != BOOL:
                return f"the condition of select must be bool, not {e.condition.dtype}"
            lanes = _same_lanes("select", parts)
            return lanes or _same("select", parts[1:], e.then.dtype)
        case Bitcast():
            if e.value.dtype.bits == e.dtype.bits:
                return ""
            return f"bitcast from {e.value.dtype} to {e.dtype} changes the width"
        case Splat():
            return "" if e.value.lanes == 1 else f"splat of {e.value.lanes} lanes, not of a scalar"
        case Shuffle():
            return _shuffle_fault(e)
        case Reduce():
            return _reduce_fault(e)
        case Convert():
            return ""
        case _:
            return ""


def _intrinsic_fault(e: Intrinsic) -> str:
    name, taken, lanes = e.instruction.name, e.instruction.operands, e.lanes
    if len(e.args) != len(taken):
        return f"{name} takes {len(taken)} operands, not {len(e.args)}"
    for operand, arg in zip(taken, e.args, strict=True):
        if arg.dtype != operand.dtype:
            return f"%{operand.name} of {name} is {operand.dtype}, not {arg.dtype}"
        if arg.lanes not in (operand.each, lanes * operand.each):
            return f"%{operand.name} of {name} has {arg.lanes} elements for {lanes} lanes"
    return ""


def _shuffle_fault(e: Shuffle) -> str:
    if e.a.lanes < 2 or e.dtype == BOOL:
        return "shuffle takes vectors of numbers"
    if not all(0 <= place < 2 * e.a.lanes for place in e.places):
        return f"shuffle of {e.a.lanes} lanes each has places below {2 * e.a.lanes}"
    return _same("shuffle", (e.a, e.b), e.dtype)


def _leaf_fault(e: Const | IndexOf | Load) -> str:
    match e:
        case Const():
            is_number = not isinstance(e.value, bool) or e.dtype == BOOL
            whole = not e.dtype.is_integer or isinstance(e.value, int)
            return "" if is_number and whole else f"{e.value!r} is no constant of {e.dtype}"
        case IndexOf():
            numeric = e.dtype.is_integer or e.dtype.is_float
            return "" if numeric else f"an index cannot be {e.dtype}"
        case Load():
            return ""


def _reduce_fault(e: Reduce) -> str:
    if e.function not in FOLDS:
        return f"cannot reduce with '{e.function}'"
    if FUNCTIONS[e.function].domain == "float" and not e.dtype.is_float:
        return f"{e.function} is not defined for {e.dtype}"
    return ""


def _call_fault(e: ScalarCall) -> str:
    function = FUNCTIONS.get(e.function)
    if function is None:
        return f"unknown function '{e.function}'"
    if len(e.args) != function.arity:
        return f"{e.function} takes {function.arity} operands, not {len(e.args)}"
    operand = e.args[0].dtype
    if operand.kind == "complex" or not function.takes(operand):
        return f"{e.function} is not defined for {operand}"
    result = function.result_of(operand)
    if e.dtype != result or e.lanes != e.args[0].lanes:
        return f"{e.function} of {operand}x{e.args[0].lanes} is not {e.dtype}x{e.lanes}"
    return _same(e.function, e.args, operand)


def _same(name: str, parts: tuple[Expr, ...], dtype: DType) -> str:
    for part in parts:
        if part.dtype != dtype:
            return f"operands of {name} differ: {dtype} and {part.dtype}"
    return _same_lanes(name, parts)


def _same_lanes(name: str, parts: tuple[Expr, ...]) -> str:
    for part in parts:
        if part.lanes != parts[0].lanes:
            return f"operands of {name} have {parts[0].lanes} and {part.lanes} lanes"
    return ""
