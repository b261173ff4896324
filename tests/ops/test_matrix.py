"""Every op of the catalogue on every one of its samples; no op is named here.

The result of ``reference`` must have the type that ``infer`` says; ``compute``'s stages and
``decompose``'s graph must give the same elements; gradients must agree with finite differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from op_kernels import assert_close

from modelcc.ir.compute import Operand, StageBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Node
from modelcc.ir.index import evaluate
from modelcc.ir.op import Op, Sample
from modelcc.ir.tensor_interpreter import allocate, evaluate_stages
from modelcc.ir.types import F32, F64, Array, DType, TensorType, dtype_of
from modelcc.ops.catalog import MCC
from modelcc.ops.control_gradients import summed
from modelcc.ops.reverse import GradientError, Recorder, adjoints
from modelcc.ops.samples import arrays, sizes

SAMPLES: list[tuple[str, Op, Sample]] = [
    (f"{op.__name__}-{i}", op(**sample.attributes), sample)
    for op in MCC.ops
    for i, sample in enumerate(op.samples)
]
CASES = [pytest.param(op, sample, id=name) for name, op, sample in SAMPLES]
DECOMPOSED = [
    pytest.param(op, sample, id=name) for name, op, sample in SAMPLES if op.has("decompose")
]


def operand_types(sample: Sample) -> list[TensorType | None]:
    return [
        TensorType(tuple(t.shape), dtype_of(t)) if isinstance(t, np.ndarray) else t
        for t in sample.operands
    ]


def tupled(results: object) -> tuple[Array, ...]:
    return results if isinstance(results, tuple) else (results,)  # type: ignore[return-value]


def expected(op: Op, sample: Sample) -> tuple[Array, ...]:
    concrete = op.substitute(sizes(op, sample))
    with np.errstate(all="ignore"):
        return tupled(concrete.reference(*arrays(op, sample)))


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_infer_gives_the_type_of_the_reference(op: Op, sample: Sample) -> None:
    env = sizes(op, sample)
    types = op.infer(*operand_types(sample))
    results = expected(op, sample)
    assert len(types) == len(results)
    for t, array in zip(types, results, strict=True):
        assert tuple(evaluate(e, env) for e in t.shape) == array.shape
        assert t.dtype == dtype_of(array)


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_stages_agree_with_the_reference(op: Op, sample: Sample) -> None:
    if not op.has("compute"):
        pytest.skip("no tensor-level meaning")
    at = StageBuilder("t")
    types = operand_types(sample)
    operands = [None if t is None else Operand(f"x{i}", t) for i, t in enumerate(types)]
    computed = op.compute(at, *operands)
    results = computed if isinstance(computed, tuple) else (computed,)
    assert [r.type for r in results] == list(op.infer(*types))
    env = sizes(op, sample)
    inputs = {f"x{i}": a for i, a in enumerate(arrays(op, sample)) if a is not None}
    tensors = inputs | allocate(at.types, env)
    evaluate_stages(at.stages, tensors, env)
    for result, wanted in zip(results, expected(op, sample), strict=True):
        assert_close(tensors[result.name], wanted)


@dataclass
class Eager:
    """A builder that evaluates what is appended at once."""

    values: dict[str, Array] = field(default_factory=dict)

    def define(self, value: Array) -> str:
        name = f"v{len(self.values)}"
        self.values[name] = value
        return name

    def add(self, op: Op, *inputs: str) -> tuple[str, ...]:
        operands = [self.values[n] if n else None for n in inputs]
        types = op.infer(*(None if a is None else self.type(a) for a in operands))
        results = tupled(op.reference(*operands))
        for t, result in zip(types, results, strict=True):
            assert self.type(result) == t, op
        return tuple(map(self.define, results))

    def emit(self, op: Op, *inputs: str) -> str:
        (name,) = self.add(op, *inputs)
        return name

    def constant(self, value: Array | float, dtype: DType | None = None) -> str:
        default = None if isinstance(value, np.ndarray) else F32.numpy
        return self.define(np.asarray(value, default if dtype is None else dtype.numpy))

    def type_of(self, name: str) -> TensorType:
        return self.type(self.values[name])

    def type(self, array: Array) -> TensorType:
        return TensorType(tuple(array.shape), dtype_of(array))


@pytest.mark.parametrize(("op", "sample"), DECOMPOSED)
def test_decomposition_agrees_with_the_reference(op: Op, sample: Sample) -> None:
    build = Eager()
    names = ["" if a is None else build.define(a) for a in arrays(op, sample)]
    with np.errstate(all="ignore"):
        results = op.substitute(sizes(op, sample)).decompose(build, *names)
    for name, wanted in zip(results, expected(op, sample), strict=True):
        assert_close(build.values[name], wanted)


def doubled(array: Array | None) -> Array | None:
    """Floats in f64, where finite differences are accurate."""
    if array is None or not dtype_of(array).is_float:
        return array
    return array.astype(np.float64)


def loss(op: Op, operands: Sequence[Array | None], weights: Sequence[Array]) -> float:
    with np.errstate(all="ignore"):
        results = tupled(op.reference(*operands))
    pairs = zip(results, weights, strict=True)
    return sum(float(np.sum(np.where(np.isfinite(r), r, 0) * w)) for r, w in pairs)


_ROUND = "corners of its boxes are where points pass from one pixel to the next"
KINKS: dict[str, tuple[int, str]] = {
    "Lu-3": (0, "its first column is 0: the least change is a pivot"),
    "HouseholderQr-3": (0, "its first column is 0, and has no direction"),
    "MaxRoiPool-1": (0, "halves of the corners of its boxes are rounded"),
    **{f"RoiAlign-{n}": (0, _ROUND) for n in (0, 1, 3, 4, 6, 7)},
}
"""Samples at which an op with a gradient is not smooth, by an operand, and why."""

REFUSED = {f"RoiAlign-{n}": "greatest pixels of points have no gradient" for n in (2, 5)}
"""Samples of ops with a gradient that say they have none, and why."""

MANY, DIRECTIONS = 40, 6
"""Elements that are not moved one by one, and directions that are tried then."""

DIFFERENTIABLE = [
    pytest.param(name, op, sample, id=name)
    for name, op, sample in SAMPLES
    if op.differentiable
    and any(t is not None and t.dtype == F32 and 0 not in t.shape for t in operand_types(sample))
    and all(np.isfinite(t).all() for t in sample.operands if isinstance(t, np.ndarray))
]


def in_f64(op: Op, sample: Sample) -> list[Array | None]:
    """Operands of a sample with all floats in f64; skips ops that do not take these."""
    concrete = op.substitute(sizes(op, sample))
    operands = [doubled(a) for a in arrays(op, sample, seed=1)]
    try:
        types = concrete.infer(
            *(a if a is None else TensorType(a.shape, dtype_of(a)) for a in operands)
        )
    except ModelError:
        pytest.skip("the operands are of fixed dtypes")
    if not any(t.dtype == F64 for t in types):
        pytest.skip("the result is of a fixed dtype")
    return operands


def results_of(op: Op, operands: Sequence[Array | None]) -> tuple[Array, ...]:
    with np.errstate(all="ignore"):
        return tupled(op.reference(*operands))


@pytest.mark.parametrize(("case", "op", "sample"), DIFFERENTIABLE)
def test_gradients_agree_with_finite_differences(case: str, op: Op, sample: Sample) -> None:
    concrete, operands = op.substitute(sizes(op, sample)), in_f64(op, sample)
    results = results_of(concrete, operands)
    rng = np.random.default_rng(2)
    weights = [np.asarray(rng.uniform(-1, 1, r.shape) * np.isfinite(r)) for r in results]
    build = Eager()
    names = ["" if a is None else build.define(a) for a in operands]
    outputs = tuple(build.define(r) for r in results)
    dys = {o: build.define(w) for o, w in zip(outputs, weights, strict=True)}
    node = Node(concrete, tuple(names), outputs)
    if case in REFUSED:
        with pytest.raises(GradientError):
            adjoints(build, [node], dys, filter(None, names))
        return
    with np.errstate(all="ignore"):
        found = adjoints(build, [node], dys, filter(None, names))
    checked = 0
    rough, _ = KINKS.get(case, (-1, ""))
    for position, (name, operand) in enumerate(zip(names, operands, strict=True)):
        if operand is None or dtype_of(operand) != F64 or position == rough:
            continue
        grad = found.get(name)
        if grad is None:
            assert_slopes(concrete, operands, position, weights, np.zeros(operand.shape))
            continue
        assert build.type_of(grad) == build.type(operand)
        if operand.size > MANY:
            assert_slopes(concrete, operands, position, weights, build.values[grad])
        else:
            numeric = finite_difference(concrete, operands, position, weights)
            np.testing.assert_allclose(build.values[grad], numeric, rtol=1e-5, atol=1e-6)
        checked += 1
    if not checked:
        pytest.skip("no operand of this sample has a gradient")


def assert_slopes(
    op: Op,
    operands: list[Array | None],
    position: int,
    weights: Sequence[Array],
    gradient: Array,
) -> None:
    """The gradient against differences along random directions, in each of which all elements
    move."""
    operand, rng, step = operands[position], np.random.default_rng(3), 1e-5
    assert operand is not None
    for _ in range(DIRECTIONS):
        direction = rng.uniform(-1, 1, operand.shape)
        ends = [operand + sign * step * direction for sign in (1, -1)]
        high, low = (
            loss(op, [*operands[:position], end, *operands[position + 1 :]], weights)
            for end in ends
        )
        scale = float(np.abs(gradient * direction).sum())
        slope = float((gradient * direction).sum())
        assert abs(slope - (high - low) / (2 * step)) <= 1e-6 + 1e-6 * scale


def finite_difference(
    op: Op, operands: list[Array | None], position: int, weights: Sequence[Array]
) -> Array:
    """Central differences of the weighted sum of the results by every element of an operand."""
    operand = operands[position]
    assert operand is not None
    slope = np.zeros(operand.shape)
    step = 1e-5
    for place in np.ndindex(*operand.shape):
        moved: list[float] = []
        for sign in (1, -1):
            shifted = operand.copy()
            shifted[place] += sign * step
            moved.append(
                loss(op, [*operands[:position], shifted, *operands[position + 1 :]], weights)
            )
        slope[place] = (moved[0] - moved[1]) / (2 * step)
    return slope


@dataclass(frozen=True)
class Slopes:
    """A weighted sum of the gradients of ``operands``, and its own gradients by them."""

    total: float
    second: Sequence[Array | None]


def slopes(
    op: Op, operands: Sequence[Array | None], dys: Sequence[Array], rough: int, deep: bool
) -> Slopes:
    """Of all operands in f64 but number ``rough``, with the second gradients if ``deep``."""
    eager = Eager()
    build = Recorder(eager)
    names = ["" if a is None else eager.define(a) for a in operands]
    wanted = [
        name
        for n, (name, a) in enumerate(zip(names, operands, strict=True))
        if a is not None and dtype_of(a) == F64 and n != rough
    ]
    outputs = tuple(map(eager.define, results_of(op, operands)))
    given = map(eager.define, dys)
    node = Node(op, tuple(names), outputs)
    with np.errstate(all="ignore"):
        first = adjoints(build, [node], dict(zip(outputs, given, strict=True)), wanted)
        pairs = [(first[n], eager.values[first[n]]) for n in wanted if n in first]
        rng = np.random.default_rng(4)
        weights = [np.asarray(rng.uniform(-1, 1, g.shape)) for _, g in pairs]
        total = sum(float((g * w).sum()) for (_, g), w in zip(pairs, weights, strict=True))
        if not deep:
            return Slopes(total, ())
        seeds = summed(build, [n for n, _ in pairs], [eager.define(w) for w in weights])
        second = adjoints(build, [node, *build.nodes], seeds, wanted)
    found = (second.get(n) if n in wanted else None for n in names)
    return Slopes(total, [None if n is None else eager.values[n] for n in found])


@pytest.mark.share(2, "case")
@pytest.mark.parametrize(
    ("case", "op", "sample"), [c for c in DIFFERENTIABLE if c.id not in REFUSED]
)
def test_second_gradients_agree_with_finite_differences(case: str, op: Op, sample: Sample) -> None:
    """Of a sum of all gradients, along a direction in which all operands move."""
    concrete, operands = op.substitute(sizes(op, sample)), in_f64(op, sample)
    rough, _ = KINKS.get(case, (-1, ""))
    results = results_of(concrete, operands)
    rng = np.random.default_rng(2)
    dys = [np.asarray(rng.uniform(-1, 1, r.shape) * np.isfinite(r)) for r in results]
    second = slopes(concrete, operands, dys, rough, True).second
    step, expected, scale = 1e-5, 0.0, 0.0
    ends = [[None if a is None else a.copy() for a in operands] for _ in (1, -1)]
    for n, a in enumerate(operands):
        if a is None or dtype_of(a) != F64 or n == rough:
            continue
        direction = rng.uniform(-1, 1, a.shape)
        for end, sign in zip(ends, (1, -1), strict=True):
            end[n] = np.asarray(a + sign * step * direction)
        along = np.zeros(1) if (found := second[n]) is None else found * direction
        expected += float(along.sum())
        scale += float(np.abs(along).sum())
    high, low = (slopes(concrete, end, dys, rough, False).total for end in ends)
    assert abs(expected - (high - low) / (2 * step)) <= 1e-6 + 1e-6 * scale


def test_every_op_has_a_gradient_or_says_that_there_is_none() -> None:
    has_one = {op.mnemonic(): op.has("grad") or op.has("decompose") for op in MCC.ops}
    smooth = {op.mnemonic() for op in MCC.ops if op.differentiable}
    assert not {name for name in smooth if not has_one[name]}
    assert not [op for op in MCC.ops if not op.differentiable and op.has("grad")]


def test_every_op_has_samples_and_a_unique_name() -> None:
    assert not [op.mnemonic() for op in MCC.ops if not op.samples]
    assert len({op.mnemonic() for op in MCC.ops}) == len(MCC.ops)
