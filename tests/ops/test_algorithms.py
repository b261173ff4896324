"""Ops that write their loop function themselves: as a loop function, in LLVM and in C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from modelcc.driver import NOWHERE, compile_model, pipeline
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.capacity import SCALAR, Capacity, GroupCapacity
from modelcc.ir.graph import Graph
from modelcc.ir.index import DIM, Sym
from modelcc.ir.library import meaning_of
from modelcc.ir.loop_interpreter import compile_loops
from modelcc.ir.loop_traversal import grid_loop, statement_expressions, statements, walk
from modelcc.ir.op import Op, Sample
from modelcc.ir.tensor import Algorithm, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_text import print_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import DTYPES, F32, Array, TensorType, dtype_of
from modelcc.ops import cumulative
from modelcc.ops.catalog import MCC
from modelcc.ops.columns import Col2Im
from modelcc.ops.cumulative import CumLogSumExp
from modelcc.ops.eigenvalues import Eigen
from modelcc.ops.fourier import FourierTables, FourierTransform
from modelcc.ops.hardmax import RowHardmax
from modelcc.ops.linear_algebra import Cholesky, Lu, TriangularSolve
from modelcc.ops.nonzero import NonZero
from modelcc.ops.orthogonal import HouseholderQr, OrthogonalRows, Reflect
from modelcc.ops.roi_align import RoiAlign
from modelcc.ops.samples import arrays, sizes, tensor
from modelcc.ops.top_k import TopK
from modelcc.ops.unique import Unique
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.pipeline import run_stages
from modelcc.runtime.session import Session
from modelcc.targets.base import Target, TargetOptions
from modelcc.targets.registry import make_target
from tests.axis import expected_failures, samples_of
from tests.machines import chosen_options, chosen_target_options

OPS = [op for op in MCC.ops if op.has("algorithm")]
ROUNDED: Mapping[type[Op], float] = {
    Col2Im: 1e-6, CumLogSumExp: 1e-6, FourierTables: 1e-6, FourierTransform: 1e-6, RoiAlign: 1e-6,
    **dict.fromkeys((Cholesky, TriangularSolve, Lu, HouseholderQr, Reflect, OrthogonalRows), 3e-6),
    Eigen: 3e-5,
}  # fmt: skip
"""Those that compute, not only move: how far they may be off."""
CASES = [
    pytest.param(op(**sample.attributes), sample, id=f"{op.__name__}-{i}")
    for op in OPS
    for i, sample in enumerate(op.samples)
]
CAPACITIES = [
    pytest.param(SCALAR, id="scalar"),
    pytest.param(Capacity(lanes=2, parallel_from=64, shares=2), id="pairs"),
    pytest.param(Capacity(lanes=16, parallel_from=8, shares=5), id="wide"),
    pytest.param(Capacity(2, 1, 1, GroupCapacity(threads=2, shared_bytes=200)), id="groups"),
]
"""None of which is a machine's that has been measured."""
GROUPS = Capacity(1, 1, 1, GroupCapacity(threads=8, shared_bytes=200))


def numbered_rows(rows: int, columns: int) -> Array:
    return np.random.default_rng(1).integers(0, 9, (rows, columns)).astype(np.float32)


SORTED_DTYPES = [
    *("f64", "f32", "f16", "bf16"),
    *("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"),
]


def graph_of(op: Op, operands: Sequence[Array | None]) -> tuple[Graph, dict[str, Array]]:
    """A graph of one node, and inputs for it."""
    build = GraphBuilder("one")
    names, feeds = add_node(build, "x", op, operands)
    return build.build(names), feeds


def add_node(
    build: GraphBuilder, x: str, op: Op, operands: Sequence[Array | None]
) -> tuple[tuple[str, ...], dict[str, Array]]:
    """Results of one more node, and inputs ``x`` for it; what an op looks into are constants."""
    fixed = op.has("require_contents")
    feeds = {f"{x}{i}": a for i, a in enumerate(operands) if a is not None and not (fixed and i)}
    names = {n: build.input(n, TensorType(a.shape, dtype_of(a))) for n, a in feeds.items()}
    inputs = [
        "" if a is None else names[f"{x}{i}"] if f"{x}{i}" in names else build.constant(a)
        for i, a in enumerate(operands)
    ]
    return build.add(op, *inputs), feeds


def sample_feeds(op: Op, sample: Sample) -> tuple[Op, list[Array | None]]:
    return op.substitute(sizes(op, sample)), list(arrays(op, sample))


def agree(found: Sequence[Array], expected: Sequence[Array], error: float = 0) -> None:
    """Equal, or within ``error`` of the greatest element."""
    for one, other in zip(found, expected, strict=True):
        assert np.asarray(one).dtype == other.dtype
        if error:
            limit = error * np.abs(other).max(initial=0, where=np.isfinite(other))
            np.testing.assert_allclose(np.asarray(one), other, rtol=0, atol=limit)
        else:
            np.testing.assert_array_equal(np.asarray(one), other)


def as_tuple(results: Array | tuple[Array, ...]) -> tuple[Array, ...]:
    return results if isinstance(results, tuple) else (results,)


def check_interpreted(
    op: Op, operands: Sequence[Array | None], capacity: Capacity = SCALAR
) -> None:
    graph, feeds = graph_of(op, operands)
    program = lower_graph(graph, capacity)
    verify_tensor_program(program)
    known = {constant.digest: constant for constant in program.constants.values()}
    assert parse_tensor_program(print_tensor_program(program), known) == program
    found = run_program(program, feeds, {})
    agree(list(found.values()), as_tuple(op.reference(*operands)), ROUNDED.get(type(op), 0))


@pytest.mark.share(3, "sample", "capacity")
@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize(("op", "sample"), CASES)
def test_the_loop_function_agrees_with_the_reference(
    op: Op, sample: Sample, capacity: Capacity
) -> None:
    check_interpreted(*sample_feeds(op, sample), capacity)


GROUPED = [c for c in CASES if isinstance(c.values[0], (TopK, *cumulative.OPS))][::3]
LONG = [
    (TopK(5, 1), numbered_rows(3, 70)),
    (TopK(2, 0, largest=False), numbered_rows(70, 2)),
    (TopK(1, 1), numbered_rows(2, 45)),
    (TopK(40, 1), numbered_rows(2, 40)),
    (NonZero(), numbered_rows(7, 90)),
    (cumulative.CumSum(1), numbered_rows(3, 70)),
    (cumulative.CumSum(0, exclusive=True, reverse=True), numbered_rows(5, 40)),
]
"""What a group takes in several turns, or lines that lie side by side."""


@pytest.mark.parametrize(("op", "sample"), GROUPED)
def test_groups_of_threads_agree_with_the_reference(op: Op, sample: Sample) -> None:
    check_interpreted(*sample_feeds(op, sample), GROUPS)


@pytest.mark.parametrize(("op", "x"), LONG, ids=lambda x: str(x) if isinstance(x, Op) else "x")
def test_long_lines_by_groups_of_threads(op: Op, x: Array) -> None:
    check_interpreted(op, [x], GROUPS)
    program = lower_graph(graph_of(op, [x])[0], GROUPS)
    functions = [meaning_of(i.function) for i in program.items if isinstance(i, Algorithm)]
    assert all(grid_loop(function) is not None for function in functions)


def test_lines_are_sorted_by_many_groups() -> None:
    x, several = numbered_rows(300, 1).astype(np.uint8), GroupCapacity(8, shared_bytes=700)
    check_interpreted(TopK(300, 0, largest=False), [x], Capacity(1, 1, 1, several))


def widest(op: Op, sample: Sample, target: Target) -> int:
    """Elements in the widest vector of the op's own loops, as ``target`` has them made."""
    graph, _ = graph_of(*sample_feeds(op, sample))
    stages = [s for s in pipeline(target, chosen_options(), NOWHERE) if s.block == "lower"]
    program: TensorProgram = run_stages(stages, graph)
    functions = [meaning_of(i.function) for i in program.items if isinstance(i, Algorithm)]
    assert functions
    found = (e for f in functions for s in statements(f.body) for e in statement_expressions(s))
    return max((inner.lanes for e in found for inner in walk(e)), default=1)


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_a_processor_without_vectors_gets_loops_over_single_elements(
    op: Op, sample: Sample
) -> None:
    target = make_target("c", replace(chosen_target_options(), optimize=0))
    assert target.capacity.lanes == 1
    assert widest(op, sample, target) == 1


@pytest.mark.parametrize(("cpu", "lanes"), [("x86-64-v2", 8), ("x86-64-v3", 8), ("x86-64-v4", 8)])
def test_the_target_says_how_wide_vectors_are(cpu: str, lanes: int) -> None:
    op, long = RowHardmax(axis=1), Sample((tensor(2, 200),), {})
    target = make_target("native", TargetOptions(cpu=cpu))
    assert target.capacity.lanes == widest(op, long, target) == lanes


@pytest.mark.targets("c")
@pytest.mark.parametrize("op", OPS)
def test_native_code_agrees_with_the_reference(op: type[Op], target: str) -> None:
    passing, _ = samples_of(op, expected_failures(target))
    build, feeds, expected = GraphBuilder("all"), dict[str, Array](), dict[str, Array]()
    for number in passing:
        sample = op.samples[number]
        one, operands = sample_feeds(op(**sample.attributes), sample)
        names, own = add_node(build, f"x{number}_", one, operands)
        feeds |= own
        expected |= dict(zip(names, as_tuple(one.reference(*operands)), strict=True))
    compiled = compile_model(build.build(list(expected)), chosen_options(target=target))
    found = compiled.target.load(compiled.artifact, 1).run(feeds)
    for name, wanted in expected.items():
        agree([found[name]], [wanted], ROUNDED.get(op, 0))


def test_groups_count_nothing_too() -> None:
    """What is counted of no elements is written, whatever was there before."""
    build = GraphBuilder("one", dims={"n": DIM})
    graph = build.build(build.add(NonZero(), build.input("x", TensorType((Sym("n"), 3), F32))))
    items = [i for i in lower_graph(graph, GROUPS).items if isinstance(i, Algorithm)]
    counted, added, listed = (compile_loops(meaning_of(item.function)) for item in items)
    for n in (0, 1, 40):
        x, where, count = np.ones(3 * n, np.float32), np.full(6 * n, 7), np.full(1, 7)
        counts, ends = (np.full(max(1, -(-3 * n // 32)), 7) for _ in range(2))
        counted([x, counts], [n])
        added([counts, ends], [n])
        listed([x, counts, ends, where, count], [n])
        assert count == 3 * n


def numbered(dtype: str, count: int = 23) -> Array:
    values = np.random.default_rng(1).integers(0, 9, count)
    return values.astype(DTYPES[dtype].numpy)


@pytest.mark.parametrize("dtype", SORTED_DTYPES)
def test_every_element_type_is_sorted(dtype: str) -> None:
    x = numbered(dtype).reshape(1, 23)
    graphs = GraphBuilder("sorts")
    name = graphs.input("x", TensorType(x.shape, DTYPES[dtype]))
    ops = (TopK(5, 1), TopK(23, 1, largest=False), Unique(), Unique(sorted=False), NonZero())
    outputs = [n for op in ops for n in graphs.add(op, name)]
    session = Session(compile_model(graphs.build(outputs), chosen_options()).artifact)
    expected = [a for op in ops for a in as_tuple(op.reference(x))]
    agree(as_tuple(session(x)), expected)


matrices = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=9),
    elements=st.integers(-3, 3).map(float),
)  # fmt: skip


@settings(max_examples=40, phases=[Phase.explicit, Phase.generate])
@given(x=matrices, data=st.data())
def test_any_matrix(x: Array, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, 1))
    k = data.draw(st.integers(0, x.shape[axis]))
    check_interpreted(TopK(k, axis, data.draw(st.booleans())), (x,))
    check_interpreted(NonZero(), (x,))
    if x.size:
        along = data.draw(st.sampled_from([None, 0, 1]))
        check_interpreted(Unique(along, data.draw(st.booleans())), (x,))
