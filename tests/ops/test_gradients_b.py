"""Gradients and decompositions of contractions, windows, norms and attention.

A gradient is run eagerly by the references of the ops it is made of and compared with central
differences in f64; a decomposition is compared with the reference of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from modelcc.ir.index import Expr, evaluate, symbols
from modelcc.ir.op import Op, Sample
from modelcc.ir.types import Array, DType, TensorType, dtype_of
from modelcc.ops import attention, conv, matmul, norm, pool, resize

SIZES = (3, 4, 5, 2)
FAMILIES = (matmul, conv, pool, norm, attention, resize)


class Eager:
    """A builder that computes every node at once."""

    def __init__(self) -> None:
        self.values: dict[str, Array] = {}

    def hold(self, value: Array) -> str:
        name = f"v{len(self.values)}"
        self.values[name] = value
        return name

    def add(self, op: Op, *inputs: str) -> tuple[str, ...]:
        types = op.infer(*(self.type_of(x) for x in inputs))
        result = op.reference(*(self.values[x] for x in inputs))
        results = result if isinstance(result, tuple) else (result,)
        for value, expected in zip(results, types, strict=True):
            assert (value.shape, dtype_of(value)) == (expected.shape, expected.dtype), op
        return tuple(self.hold(np.asarray(r)) for r in results)

    def emit(self, op: Op, *inputs: str) -> str:
        (name,) = self.add(op, *inputs)
        return name

    def constant(self, value: Array | float, dtype: DType | None = None) -> str:
        return self.hold(np.asarray(value, None if dtype is None else dtype.numpy))

    def type_of(self, name: str) -> TensorType:
        value = self.values[name]
        return TensorType(value.shape, dtype_of(value))


def dimensions(sample: Sample) -> dict[str, int]:
    shapes = [d for t in sample.operands if isinstance(t, TensorType) for d in t.shape]
    names = dict.fromkeys(name for d in shapes for name in sorted(symbols(d)))
    return {name: SIZES[i % len(SIZES)] + 3 * (name in "hwt") for i, name in enumerate(names)}


def concrete(value: Any, dims: dict[str, int]) -> Any:
    if isinstance(value, tuple):
        return tuple(concrete(v, dims) for v in value)
    return evaluate(value, dims) if isinstance(value, Expr) else value


def prepared(op: type[Op], sample: Sample) -> tuple[Op, list[Array]]:
    """The op and random f64 operands, no two equal (max pooling is not smooth at ties)."""
    dims, rng = dimensions(sample), np.random.default_rng(0)
    operands: list[Array] = []
    for t in sample.operands:
        assert isinstance(t, TensorType)
        shape = tuple(evaluate(d, dims) for d in t.shape)
        grid = np.linspace(max(sample.low, -2), min(sample.high, 2), int(np.prod(shape)))
        operands.append(rng.permutation(grid + 0.01).reshape(shape))
    return op(**{k: concrete(v, dims) for k, v in sample.attributes.items()}), operands


def cases(facet: str) -> Iterator[Any]:
    for family in FAMILIES:
        for op in family.OPS:
            for number, sample in enumerate(op.samples):
                types = [t for t in sample.operands if isinstance(t, TensorType)]
                if op.has(facet) and all(t.dtype.is_float and t.dtype.bits >= 32 for t in types):
                    yield pytest.param(op, sample, id=f"{op.__name__}-{number}")


def numeric_gradient(op: Op, operands: list[Array], which: int, weight: Array) -> Array:
    """Central differences of ``sum(weight * op(…))`` in operand ``which``."""
    x, step = operands[which], 1e-6
    gradient = np.zeros_like(x)
    for place in np.ndindex(*x.shape):
        ends: list[float] = []
        for sign in (1, -1):
            moved = x.copy()
            moved[place] += sign * step
            y = op.reference(*operands[:which], moved, *operands[which + 1 :])
            ends.append(float(np.sum(weight * y)))
        gradient[place] = (ends[0] - ends[1]) / (2 * step)
    return gradient


@pytest.mark.parametrize(("op_class", "sample"), list(cases("grad")))
def test_gradient_equals_central_differences(op_class: type[Op], sample: Sample) -> None:
    op, operands = prepared(op_class, sample)
    weight = np.random.default_rng(1).standard_normal(op.reference(*operands).shape)
    build = Eager()
    names = [build.hold(x) for x in operands]
    gradients = op.grad(build, (build.hold(weight),), *names)
    assert len(gradients) == len(operands)
    for which, name in enumerate(gradients):
        expected = numeric_gradient(op, operands, which, weight)
        if name is None:
            np.testing.assert_allclose(expected, 0, atol=1e-6)
            continue
        assert build.values[name].shape == expected.shape
        np.testing.assert_allclose(build.values[name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("op_class", "sample"), list(cases("decompose")))
def test_decomposition_equals_the_whole(op_class: type[Op], sample: Sample) -> None:
    op, operands = prepared(op_class, sample)
    build = Eager()
    (name,) = op.decompose(build, *(build.hold(x) for x in operands))
    expected = op.reference(*operands)
    np.testing.assert_allclose(build.values[name], expected, rtol=1e-9, atol=1e-9)
