"""Every sample of every op of the catalogue, and what it becomes as scheduled kernels.

No op is named here but in the lists of expected failures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from _pytest.mark import ParameterSet
from kernel_runs import Executor, run_scheduled
from machines import chosen_cpu

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.index import DIM, evaluate
from modelcc.ir.op import Op, Sample
from modelcc.ir.program import Program
from modelcc.ir.types import Array, TensorType, dtype_of
from modelcc.ops.catalog import MCC
from modelcc.ops.samples import arrays, sizes
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.targets.cpu.schedule import schedule_program

SAMPLES: list[tuple[str, Op, Sample]] = [
    (f"{op.__name__}-{i}", op(**sample.attributes), sample)
    for op in MCC.ops
    if op.has("compute")
    for i, sample in enumerate(op.samples)
]
CASES = [pytest.param(op, sample, id=name) for name, op, sample in SAMPLES]
OTHER_SIZES = ((17, 33, 16, 40), (1, 1, 1, 1), (16, 2, 7, 64))
"""Sizes of the named dimensions of a sample, in order, besides those that all tests use."""

TOLERANCE = {"f64": 1e-11, "f32": 3e-5, "f16": 4e-3, "bf16": 3e-2, "f8e4m3fn": 0.0}

FAILURES: Mapping[str, str] = {}
"""Cases that are expected to fail, and why."""


def expecting(
    failures: Mapping[str, str], chosen: Callable[[Op, Sample], bool] = lambda op, sample: True
) -> list[ParameterSet]:
    """The chosen cases, those in ``failures`` marked; one that passes nevertheless fails."""
    unknown = failures.keys() - {name for name, _, _ in SAMPLES}
    assert not unknown, f"there are no samples {sorted(unknown)}"
    marks = {i: [pytest.mark.xfail(reason=r, strict=True)] for i, r in failures.items()}
    return [
        pytest.param(op, sample, id=name, marks=marks.get(name, ()))
        for name, op, sample in SAMPLES
        if chosen(op, sample)
    ]


def graph_of(op: Op, sample: Sample, data: tuple[Array | None, ...], constant: bool) -> Graph:
    """One node; with ``constant``, static operands but the first one are constants, as they are
    for an op that looks into them."""
    constant = constant or op.has("require_contents")
    build = GraphBuilder(dims=dict.fromkeys(op.symbols(), DIM))
    names: list[str] = []
    for i, (operand, array) in enumerate(zip(sample.operands, data, strict=True)):
        if operand is None or array is None:
            names.append("")
            continue
        type_ = operand if isinstance(operand, TensorType) else type_of(operand)
        if constant and i > 0 and type_.is_static:
            names.append(build.constant(array))
        else:
            names.append(build.input(f"x{i}", type_))
    return build.build(build.add(op, *names))


def scheduled(op: Op, sample: Sample, constant: bool = False) -> Program:
    graph = graph_of(op, sample, arrays(op, sample), constant)
    return schedule_program(FuseKernels()(lower_graph(graph)), chosen_cpu())


def check(
    op: Op,
    program: Program,
    execute: Executor,
    data: tuple[Array | None, ...],
    env: Mapping[str, int],
) -> None:
    """The program gives what the op's ``reference`` gives for ``data``."""
    with np.errstate(all="ignore"):
        results = op.substitute(env).reference(*data)
    wanted = results if isinstance(results, tuple) else (results,)
    feeds = {f"x{i}": a for i, a in enumerate(data) if a is not None}
    got = run_scheduled(program, execute, feeds, env)
    for name, array in zip(program.outputs, wanted, strict=True):
        assert_close(got[name], array)


def assert_close(actual: Array, wanted: Array) -> None:
    assert actual.dtype == wanted.dtype
    assert actual.shape == wanted.shape
    dtype = dtype_of(wanted)
    if not dtype.is_float:
        np.testing.assert_array_equal(actual, wanted)
        return
    tolerance = TOLERANCE[dtype.name]
    np.testing.assert_allclose(
        actual.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance
    )


def with_sizes(sample: Sample, env: Mapping[str, int]) -> Sample:
    """The sample with numbers for its named dimensions."""
    operands = tuple(
        TensorType(tuple(evaluate(e, env) for e in t.shape), t.dtype)
        if isinstance(t, TensorType)
        else t
        for t in sample.operands
    )
    return replace(sample, operands=operands)


def other_sizes(op: Op, sample: Sample) -> list[dict[str, int]]:
    """Of OTHER_SIZES those that suit the sample; some do if it has named dimensions."""
    known = sizes(op, sample)
    tried = [dict(zip(known, numbers, strict=False)) for numbers in OTHER_SIZES if known]
    found = [env for env in tried if makes_sense(op, sample, env)]
    assert found or not known, "no other sizes suit this sample"
    return found


def makes_sense(op: Op, sample: Sample, env: Mapping[str, int]) -> bool:
    """Whether the reference takes operands of these sizes and gives the shapes of ``infer``."""
    operands = arrays(op, with_sizes(sample, env))
    types = op.infer(
        *(t if isinstance(t, TensorType | None) else type_of(t) for t in sample.operands)
    )
    try:
        with np.errstate(all="ignore"):
            results = op.substitute(env).reference(*operands)
    except (ValueError, IndexError, ModelError):
        return False
    found = results if isinstance(results, tuple) else (results,)
    return [tuple(evaluate(e, env) for e in t.shape) for t in types] == [r.shape for r in found]


def type_of(array: Array) -> TensorType:
    return TensorType(array.shape, dtype_of(array))
