"""``NAME_weights.c`` and ``NAME_weights.bin``: the weights as a file, or as part of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from modelcc.artifact.manifest import ConstantSpec
from modelcc.ir.types import F32, F64, Array, DType
from modelcc.targets.c.code import WIDTH
from modelcc.targets.c.delivery.block import WeightBlock
from modelcc.targets.c.delivery.facts import DeliveredModel
from modelcc.targets.c.delivery.filling import filled, indented
from modelcc.targets.c.delivery.naming import field_names
from modelcc.targets.c.dialect import GNU, CDialect
from modelcc.targets.c.names import comment
from modelcc.targets.c.values import memory_type

_DIGITS = {"float": 15, "double": 24}
"""Characters of the longest value."""


def weights_source(facts: DeliveredModel, weights: WeightBlock) -> str:
    """Text of the file that defines or loads the weights."""
    names = {"name": facts.name, "NAME": facts.macro}
    match facts.request.weights:
        case "bin":
            return filled("weights_file.c", **names)
        case "incbin":
            return filled("weights_incbin.c", size=str(weights.size), **names)
        case "array":
            fields = field_names(spec.name for spec in weights.places)
            declared = [
                f"{memory_type(spec.dtype.storage)} {field}[{_count(spec)}] ALIGNED;"
                f" /* {comment(spec.name)}: {spec.dtype}{list(spec.shape)} */"
                for spec, field in zip(weights.places, fields, strict=True)
            ]
            values = "\n".join(
                line
                for spec, field in zip(weights.places, fields, strict=True)
                for line in _initialiser(field, weights.array(spec), spec.dtype.storage)
            )
            return filled("weights_array.c", fields=indented(declared), values=values, **names)


def _count(spec: ConstantSpec) -> int:
    return spec.size // spec.dtype.bytes


def _initialiser(field: str, array: Array, dtype: DType) -> Iterator[str]:
    yield f"    .{field} = {{"
    yield from value_rows(array, dtype, GNU, 8)
    yield "    },"


def value_rows(array: Array, dtype: DType, dialect: CDialect, indent: int) -> Iterator[str]:
    """The elements of an array, stored as ``dtype``, in lines of C."""
    flat = np.ascontiguousarray(array).reshape(-1)
    spelled = _spelling(dtype, dialect)
    step = (WIDTH - indent) // (_longest(flat, dtype, spelled) + 2)
    for start in range(0, flat.size, step):
        yield f"{' ' * indent}{', '.join(spelled(flat[start : start + step]))},"


def _longest(flat: Array, dtype: DType, spelled: Callable[[Array], list[str]]) -> int:
    if dtype.is_integer:
        ends = flat.view(dtype.numpy)
        return max(map(len, spelled(np.array([ends.min(), ends.max()], dtype.numpy))))
    return _DIGITS.get(memory_type(dtype), 6)


def _spelling(dtype: DType, dialect: CDialect) -> Callable[[Array], list[str]]:
    """Prints values of ``dtype`` exactly: with the fewest digits that round-trip."""
    if dtype == F32:
        return lambda part: [_float(text, "f", dialect) for text in map(str, part)]
    if dtype == F64:
        return lambda part: [_float(repr(value), "", dialect) for value in part.tolist()]
    if dtype.is_integer:
        return lambda part: [_integer(value, dtype) for value in part.view(dtype.numpy).tolist()]
    if dtype.bytes == 2:
        return lambda part: [f"{value:#06x}" for value in part.view(np.uint16).tolist()]
    return lambda part: [str(value) for value in part.view(np.uint8).tolist()]


def _float(text: str, suffix: str, dialect: CDialect) -> str:
    single = suffix == "f"
    match text:
        case "nan":
            return dialect.nan[single]
        case "inf" | "-inf":
            return f"{text.removesuffix('inf')}{dialect.infinity[single]}"
        case _:
            return f"{text}{suffix}" if "." in text or "e" in text else f"{text}.0{suffix}"


def _integer(value: int, dtype: DType) -> str:
    if dtype.bits < 64:
        low = dtype.kind == "int" and value == -(1 << 31)
        return "INT32_MIN" if low else f"{value}{'u' if dtype.kind == 'uint' else ''}"
    if dtype.kind == "uint":
        return f"UINT64_C({value})"
    return "INT64_MIN" if value == -(1 << 63) else f"{value}" if abs(value) < 1 << 31 else (
        f"INT64_C({value})")  # fmt: skip
