"""Features as integers in the same order: what trees compare.

The bits of a float ascend with it where its sign is clear, and descend where it is set; there all
but the sign are complemented.  Integers are compared in fewer steps than floats, and the least and
the greatest one, which no number has, are left for missing values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply, number, select
from modelcc.ir.op import Op, require
from modelcc.ir.types import F32, F64, I32, I64, U8, Array, DType, TensorType
from modelcc.ops.runtime_index import bound_along
from modelcc.ops.samples import sample, tensor

GREATEST, LEAST, FIXED = 0, 1, 2
"""What a missing value (NaN) counts as; FIXED: every value is the least."""


def key_type(dtype: DType) -> DType:
    """The integers that have as many bits as ``dtype``."""
    return I64 if dtype == F64 else I32


def keys_of(values: Array) -> Array:
    """The keys of numbers in f32 or f64; NaN has none of use."""
    kind = np.int64 if values.dtype == np.float64 else np.int32
    bits = np.where(values == 0, values.dtype.type(0), values).view(kind)
    return np.where(bits < 0, bits ^ np.iinfo(kind).max, bits)


_MISSING = np.array([FIXED, GREATEST, LEAST, LEAST], np.uint8)
_COLUMNS = np.array([0, 2, 2, 0], np.int32)
_SPECIAL = np.array([[np.nan, 1, 0.0], [-0.0, 1, -np.inf], [np.inf, 1, np.nan]], np.float32)


@dataclass(frozen=True)
class FeatureKeys(Op):
    """``result[n, c]``: the key of ``x[n, features[c]]``; ``missing[c]`` tells that of NaN.

    Keys are in ``key``, of at least as many bits as x has; both zeros have the same one.
    """

    differentiable = False
    key: DType
    samples = (
        sample(tensor("n", 3), _COLUMNS, _MISSING, key=I32),
        sample(_SPECIAL, _COLUMNS, _MISSING, key=I32),
        sample(_SPECIAL, _COLUMNS, _MISSING, key=I64),
        sample(tensor("n", 3, dtype=F64), _COLUMNS, _MISSING, key=I64),
        sample(_SPECIAL.astype(np.float64), _COLUMNS, _MISSING, key=I64),
    )

    def infer(self, x: TensorType, features: TensorType, missing: TensorType) -> tuple[TensorType]:
        require(x.rank == 2 and x.dtype in (F32, F64), f"FeatureKeys needs rows, not {x}")
        require(self.key in (key_type(x.dtype), I64), f"keys of {x.dtype} are not {self.key}")
        require(
            features.rank == 1
            and features.dtype == I32
            and missing.shape == features.shape
            and missing.dtype == U8,
            f"FeatureKeys has columns {features} and {missing}",
        )
        return (TensorType((x.shape[0], features.shape[0]), self.key),)

    def reference(self, x: Array, features: Array, missing: Array) -> Array:
        values = x[:, features]
        kind = key_type(F64 if x.dtype == np.float64 else F32).numpy
        ends = np.iinfo(kind)
        absent = np.where(missing == LEAST, ends.min, ends.max)
        keys = np.where(np.isnan(values), absent, keys_of(values))
        return np.where(missing == FIXED, ends.min, keys).astype(self.key.numpy)

    def compute(self, at: StageBuilder, x: Operand, features: Operand, missing: Operand) -> Operand:
        kind = key_type(x.dtype)
        least, greatest = -(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1

        def key(value: Element, code: Element) -> Element:
            plain = select(apply("eq", value, 0.0), number(0.0, x.dtype), value)
            bits = plain.bitcast(kind)
            ordered = select(bits < 0, apply("xor", bits, greatest), bits)
            end = number(least, kind)
            absent = select(apply("eq", code, LEAST), end, greatest)
            found = select(apply("isnan", value), absent, ordered)
            return select(apply("eq", code, FIXED), end, found).cast(self.key)

        return at.stage(
            (x.shape[0], features.shape[0]),
            lambda o: key(
                at.gather(features[o[1]], lambda f: x[o[0], f], bound_along(x, 1, wrapped=False)),
                missing[o[1]],
            ),
        )


OPS: tuple[type[Op], ...] = (FeatureKeys,)
