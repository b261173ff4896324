"""Bounds of integers, including sums of products with constants."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Apply, Cast, Guard, Number, Read, Scalar, Select, Stage
from modelcc.ir.types import DType


class Magnitudes:
    """Bounds of absolute values within one kernel, stage by stage."""

    def __init__(self, constants: Mapping[str, Constant]) -> None:
        self._constants = constants
        self._stages: dict[str, int] = {}

    def add(self, stage: Stage) -> None:
        """Records the bound of a stage's results."""
        most = self.of(stage.body)
        extents = [axis.extent for axis in stage.reduce]
        whole = _largest(stage.body.dtype)
        if stage.combine == "sum":
            times = [e for e in extents if isinstance(e, int)]
            most = most * prod(times) if len(times) == len(extents) else whole
            weighted = self._weighted(stage)
            most = most if weighted is None else min(most, weighted)
        elif stage.combine not in (None, "max", "min"):
            most = whole
        self._stages[stage.output] = min(most, whole)

    def _weighted(self, stage: Stage) -> int | None:
        """The bound of a sum of products by rows of a constant."""
        match stage.body:
            case Apply("mul", (left, Cast(Read(tensor=name))), _) if name in self._constants:
                data = self._constants[name].data
                steps = prod(a.extent for a in stage.reduce if isinstance(a.extent, int))
                if data.ndim and data.shape[-1] == steps and len(reads(left)) == 1:
                    sums = np.abs(data.astype(np.int64)).sum(-1)
                    return int(sums.max()) * self.of(left)
            case _:
                pass
        return None

    def of(self, scalar: Scalar) -> int:
        """An upper bound of the absolute values of ``scalar``; meaningless for floats."""
        whole = _largest(scalar.dtype)
        if not scalar.dtype.is_integer:
            return whole
        match scalar:
            case Number(value):
                return abs(int(value))
            case Read(tensor=name) if name in self._stages:
                return self._stages[name]
            case Read(tensor=name) if name in self._constants:
                data = self._constants[name].data
                return int(np.abs(data.astype(np.int64)).max(initial=0))
            case Cast(value):
                return min(self.of(value), whole) if value.dtype.is_integer else whole
            case Guard():
                return max(self.of(scalar.inside), self.of(scalar.outside))
            case Select():
                return max(self.of(scalar.then), self.of(scalar.other))
            case Apply():
                found = self._apply(scalar)
                return whole if found is None or found > whole else found
            case _:
                return whole

    def _apply(self, node: Apply) -> int | None:
        if not all(arg.dtype.is_integer for arg in node.args):
            return None
        sizes = [self.of(arg) for arg in node.args]
        match node.function, node.args:
            case (("add" | "sub"), _):
                return sum(sizes)
            case "mul", _:
                return prod(sizes)
            case (("min" | "max"), _):
                return max(sizes)
            case (("neg" | "abs"), _):
                return sizes[0]
            case "shl", (_, Number(bits)) if 0 <= int(bits) < 32:
                return sizes[0] << int(bits)
            case (("shr" | "rounding_shr"), _):
                return sizes[0]
            case "rounding_high_mul", _:
                return (prod(sizes) >> 31) + 1
            case "rounding_high_word", _:
                return (prod(sizes) >> 32) + 1
            case _:
                return None


def _largest(dtype: DType) -> int:
    """The largest absolute value of an integer type."""
    return 1 << (dtype.bits - (dtype.kind == "int"))
