"""Gradients of ops whose operands have named extents: types alone must fit, for every name."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.errors import ModelError
from modelcc.ir.index import DIM, compare, symbols
from modelcc.ir.op import Op, Sample
from modelcc.ir.types import F32, Array, DType, TensorType, dtype_of
from modelcc.ops.catalog import MCC


class Typed:
    """A builder that only infers types."""

    def __init__(self) -> None:
        self.types: dict[str, TensorType] = {}

    def define(self, type_: TensorType) -> str:
        name = f"v{len(self.types)}"
        self.types[name] = type_
        return name

    def add(self, op: Op, *inputs: str) -> tuple[str, ...]:
        return tuple(map(self.define, op.infer(*(self.types.get(n) for n in inputs))))

    def emit(self, op: Op, *inputs: str) -> str:
        (name,) = self.add(op, *inputs)
        return name

    def constant(self, value: Array | float, dtype: DType | None = None) -> str:
        array = np.asarray(value, F32.numpy if dtype is None else dtype.numpy)
        return self.define(TensorType(tuple(array.shape), dtype_of(array)))

    def type_of(self, name: str) -> TensorType:
        return self.types[name]


def is_symbolic_float(op: type[Op], sample: Sample) -> bool:
    types = [t for t in sample.operands if isinstance(t, TensorType)]
    named = any(not t.is_static for t in types)
    return op.has("grad") and named and all(t.dtype.is_float for t in types)


CASES = [
    pytest.param(op(**sample.attributes), sample, id=f"{op.__name__}-{i}")
    for op in MCC.ops
    for i, sample in enumerate(op.samples)
    if is_symbolic_float(op, sample)
]


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_gradient_of_named_extents_has_the_operands_type(op: Op, sample: Sample) -> None:
    build = Typed()
    types = [
        TensorType(t.shape, dtype_of(t)) if isinstance(t, np.ndarray) else t
        for t in sample.operands
    ]
    names = ["" if t is None else build.define(t) for t in types]
    dys = [build.define(t) for t in op.infer(*types)]
    try:
        gradients = op.grad(build, dys, names, [build.define(build.type_of(dy)) for dy in dys])
    except ModelError as error:
        assert "must be numbers" in error.message
        pytest.skip(error.message)
    for name, wanted in zip(gradients, types, strict=True):
        if name is None or wanted is None:
            continue
        actual = build.types[name]
        assert actual.rank == wanted.rank
        for a, b in zip(actual.shape, wanted.shape, strict=True):
            bounds = {s: DIM for e in (a, b) for s in symbols(e)}
            assert compare(a, "==", b, bounds), f"{actual} is not {wanted}"
