"""Which element types an op takes: asked of its shape rule, on its samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.op import Op, Sample
from modelcc.ir.types import C64, C128, DTYPES, STRING, DType, TensorType, dtype_of

_GROUPS = (
    ("floats", ("f64", "f32", "f16", "bf16")),
    ("integers", ("i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8")),
    ("narrow floats", tuple(d.name for d in DTYPES.values() if d.is_narrow and d.is_float)),
    ("narrow integers", tuple(d.name for d in DTYPES.values() if d.is_narrow and d.is_integer)),
)


CODELESS = (C64, C128, STRING)
"""Complex numbers have no code; texts are handles before there is any."""


def accepted(op: type[Op]) -> tuple[DType, ...]:
    """Element types of the first operand for which there is code of ``op``, on every target.

    Operands of the same type change along with it.  Ops without operands take none.
    """
    types = (dtype for dtype in DTYPES.values() if dtype not in CODELESS)
    return tuple(dtype for dtype in types if form(op, dtype) is not None)


def form(op: type[Op], dtype: DType) -> tuple[Op, tuple[TensorType | None, ...]] | None:
    """The first sample's form of ``op`` that takes ``dtype`` as its first operand's type."""
    for sample in op.samples:
        for types in _as(sample, dtype):
            if _takes(op, types, sample):
                return op(**sample.attributes), tuple(types)
    return None


def _as(sample: Sample, dtype: DType) -> Iterator[list[TensorType | None]]:
    """The types of a sample's operands if the first one were of ``dtype``."""
    types = [
        TensorType(tuple(t.shape), dtype_of(t)) if isinstance(t, np.ndarray) else t
        for t in sample.operands
    ]
    first = next((t.dtype for t in types if t is not None), None)
    if first is not None:
        yield [replace(t, dtype=dtype) if t and t.dtype == first else t for t in types]


def _takes(op: type[Op], types: list[TensorType | None], sample: Sample) -> bool:
    try:
        op(**sample.attributes).infer(*types)
    except (ModelError, TypeError, ValueError):
        return False
    return True


def summary(dtypes: tuple[DType, ...]) -> str:
    """Element types in a few words: ``floats, integers, bool``; those with code of their own."""
    names = {d.name for d in dtypes}
    words: list[str] = []
    for word, group in _GROUPS:
        if names.issuperset(group):
            words.append(word)
        else:
            words += [name for name in group if name in names]
    return ", ".join([*words, *(["bool"] if "bool" in names else [])])
