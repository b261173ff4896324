"""The tensor level's reference interpreter on hand-written stages."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir import tensor_interpreter
from modelcc.ir.compute import Operand, StageBuilder, guard
from modelcc.ir.index import Sym
from modelcc.ir.scalar import Combine, identity
from modelcc.ir.tensor import Condition, Kernel, Stage, TensorProgram, View
from modelcc.ir.tensor_interpreter import allocate, evaluate_stages, run_program
from modelcc.ir.types import BOOL, F32, I8, I32, Array, DType, Layout, Part, TensorType

A = Operand("a", TensorType((Sym("m"), Sym("k")), F32))
B = Operand("b", TensorType((Sym("k"), 5), F32))


def matmul(at: StageBuilder) -> Operand:
    return at.reduce((Sym("m"), 5), (Sym("k"),), "sum", lambda o, r: A[o[0], r[0]] * B[r[0], o[1]])


def evaluated(at: StageBuilder, result: Operand, env: dict[str, int], **inputs: Array) -> Array:
    tensors = inputs | allocate(at.types, env)
    evaluate_stages(at.stages, tensors, env)
    return tensors[result.name]


@pytest.mark.parametrize("points", [1, 7, 1 << 21])
def test_blocks_do_not_change_a_matmul(monkeypatch: pytest.MonkeyPatch, points: int) -> None:
    monkeypatch.setattr(tensor_interpreter, "POINTS", points)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, shape).astype(np.float32) for shape in ((3, 4), (4, 5)))
    at = StageBuilder("t")
    result = matmul(at)
    np.testing.assert_array_equal(evaluated(at, result, {"m": 3, "k": 4}, a=a, b=b), a @ b)


def test_an_empty_sum_is_zero() -> None:
    at = StageBuilder("t")
    result = matmul(at)
    a, b = np.ones((3, 0), np.float32), np.ones((0, 5), np.float32)
    np.testing.assert_array_equal(
        evaluated(at, result, {"m": 3, "k": 0}, a=a, b=b), np.zeros((3, 5), np.float32)
    )


@pytest.mark.parametrize(
    ("combine", "dtype", "value"),
    [
        ("max", F32, -np.inf),
        ("min", I8, 127),
        ("and", I32, -1),
        ("and", BOOL, True),
        ("prod", F32, 1),
    ],
)
def test_identity_changes_nothing(combine: Combine, dtype: DType, value: float) -> None:
    assert identity(combine, dtype) == value


@pytest.mark.parametrize("shift", [1, -1])
def test_reading_outside_is_an_error(shift: int) -> None:
    at = StageBuilder("t")
    result = at.stage(A.shape, lambda o: A[o[0] + shift, o[1]])
    with pytest.raises(IndexError, match=r"reads a of shape \(3, 4\) at .* in dimension 0"):
        evaluated(at, result, {"m": 3, "k": 4}, a=np.zeros((3, 4), np.float32))


def test_a_guard_protects_its_reads() -> None:
    at = StageBuilder("t")
    result = at.stage(
        (Sym("m"), Sym("k")),
        lambda o: guard([Condition(o[0], ">=", 1)], A[o[0] - 1, o[1]], -1.0),
    )
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(
        evaluated(at, result, {"m": 2, "k": 3}, a=a), [[-1, -1, -1], [0, 1, 2]]
    )


def test_writing_outside_is_an_error() -> None:
    at = StageBuilder("t")
    target = at.tensor((2, 3), F32)
    at.fill(target, (2, 3), lambda o: (o[0] + 1, o[1]), lambda o: A[o[0], o[1]])
    with pytest.raises(IndexError, match="writes outside"):
        evaluated(at, target, {"m": 2, "k": 3}, a=np.zeros((2, 3), np.float32))


def test_a_zero_border_reads_as_zero() -> None:
    layout = Layout((Part(0),), ((1, 1),))
    x = Operand("x", TensorType((3,), F32, layout))
    at = StageBuilder("t")
    result = at.stage((5,), lambda o: x[o[0] - 1])
    tensors = {"x": np.array([1, 2, 3], np.float32)} | allocate(at.types, {})
    evaluate_stages(at.stages, tensors, {}, {"x": x.type})
    np.testing.assert_array_equal(tensors[result.name], [0, 1, 2, 3, 0])


def test_a_program_runs_kernels_and_views() -> None:
    at = StageBuilder("t")
    product = matmul(at)
    (stage,) = at.stages
    assert isinstance(stage, Stage)
    flat = TensorType((Sym("m") * 5,), F32)
    program = TensorProgram(
        "p",
        ("a", "b"),
        ("flat",),
        (
            Kernel("k", ("a", "b"), (product.name,), (stage,)),
            View("flat", product.name),
        ),
        {"a": A.type, "b": B.type, product.name: product.type, "flat": flat},
    )
    a, b = np.ones((2, 3), np.float32), np.ones((3, 5), np.float32)
    outputs = run_program(program, {"a": a, "b": b}, {"m": 2, "k": 3})
    np.testing.assert_array_equal(outputs["flat"], np.full(10, 3, np.float32))
