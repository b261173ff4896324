"""Element types inside a stage: operands and results of scalar expressions agree."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from modelcc.ir.errors import ModelError
from modelcc.ir.scalar import COMBINE_FUNCTION, FUNCTIONS
from modelcc.ir.scalar_tree import children
from modelcc.ir.tensor import (
    Apply,
    Bind,
    Bitcast,
    Guard,
    IndexValue,
    Linear,
    Number,
    Read,
    Scalar,
    Select,
    Stage,
)
from modelcc.ir.types import BOOL, DType, TensorType


def verify_body(stage: Stage, types: Mapping[str, TensorType], place: tuple[str, ...]) -> None:
    """Raise :class:`ModelError` if an expression of ``stage`` breaks a rule on element types."""
    fault = _first_fault(stage.body, types)
    target = types[stage.output].dtype
    if fault is None and stage.body.dtype != target:
        fault = f"computes {stage.body.dtype} for a tensor of {target}"
    if fault is None and stage.combine is not None:
        function = FUNCTIONS[COMBINE_FUNCTION[stage.combine]]
        # Extremes of booleans are "and" and "or".
        extreme = stage.body.dtype == BOOL and stage.combine in ("max", "min")
        if not extreme and not function.takes(stage.body.dtype):
            fault = f"cannot combine {stage.body.dtype} by {stage.combine}"
    if fault is not None:
        raise ModelError(fault, place)


def _first_fault(scalar: Scalar, types: Mapping[str, TensorType]) -> str | None:
    for child in children(scalar):
        inner = _first_fault(child, types)
        if inner is not None:
            return inner
    return _fault(scalar, types)


def _fault(scalar: Scalar, types: Mapping[str, TensorType]) -> str | None:
    match scalar:
        case Read(tensor, _, dtype) if types[tensor].dtype != dtype:
            return f"reads %{tensor} as {dtype}, but it is {types[tensor]}"
        case Number(value, dtype):
            return _number_fault(value, dtype)
        case IndexValue(_, dtype) if not (dtype.is_float or dtype.is_integer):
            return f"an index cannot be a number of {dtype}"
        case Apply():
            return _apply_fault(scalar)
        case Linear():
            return _linear_fault(scalar)
        case Select(condition, then, other, dtype):
            if condition.dtype != BOOL:
                return f"the condition of select is {condition.dtype}, not bool"
            return _branches_fault("select", then.dtype, other.dtype, dtype)
        case Bitcast(value, dtype) if value.dtype.bits != dtype.bits:
            return f"the bits of {value.dtype} are not as many as those of {dtype}"
        case Guard(_, inside, outside, dtype):
            return _branches_fault("a guard", inside.dtype, outside.dtype, dtype)
        case Bind(symbol, value, body, dtype, _):
            if not value.dtype.is_integer:
                return f"gather symbol {symbol!r} is bound to {value.dtype}, not to an integer"
            return _branches_fault("a gather", body.dtype, body.dtype, dtype)
        case _:
            return None


def _number_fault(value: float, dtype: DType) -> str | None:
    if dtype.is_integer and isinstance(value, float):
        return f"the number {value} is no {dtype}"
    if dtype == BOOL and value not in (False, True):
        return f"the number {value} is no bool"
    return None


def _branches_fault(what: str, one: DType, other: DType, result: DType) -> str | None:
    if one == other == result:
        return None
    return f"{what} gives {result} from {one} and {other}"


def _apply_fault(scalar: Apply) -> str | None:
    function = FUNCTIONS.get(scalar.function)
    name = scalar.function
    if function is None:
        return f"there is no scalar function {name!r}"
    if len(scalar.args) != function.arity:
        return f"{name} has {function.arity} operands, not {len(scalar.args)}"
    dtypes = [arg.dtype for arg in scalar.args]
    if any(dtype != dtypes[0] for dtype in dtypes):
        return f"operands of {name} have different dtypes: {', '.join(map(str, dtypes))}"
    if not function.takes(dtypes[0]):
        return f"{name} is not defined on {dtypes[0]}"
    result = function.result_of(dtypes[0])
    return None if scalar.dtype == result else f"{name} gives {result}, not {scalar.dtype}"


def _linear_fault(scalar: Linear) -> str | None:
    dtype, count = scalar.dtype, len(scalar.args)
    for matrix in scalar.factors:
        if not count or any(len(row) != count for row in matrix):
            return f"a matrix does not have a column for each of {count} operands"
        count = len(matrix)
    if not count or not scalar.factors:
        return "a linear combination has no rows"
    if any(arg.dtype != dtype for arg in scalar.args) or not (dtype.is_float or dtype.is_integer):
        found = ", ".join(str(arg.dtype) for arg in scalar.args)
        return f"a linear combination of {found} is no {dtype}"
    coefficients = [c for matrix in scalar.factors for row in matrix for c in row]
    if not all(isfinite(c) and (dtype.is_float or c == int(c)) for c in coefficients):
        return f"a coefficient is no finite {dtype}"
    return None
