"""Two contractions in blocks of rows and keys: attention, and whatever is built like it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pytest
from kernel_runs import interpreted, logical_shape, native, run_scheduled
from machines import chosen_cpu

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.index import Index, Sym
from modelcc.ir.program import Launch, Program
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.types import F16, F32, Array, DType, TensorType
from modelcc.ops.activation import Relu
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.attention import Attention, LogSoftmax, Softmax
from modelcc.ops.broadcast import ReduceSum
from modelcc.ops.matmul import MatMul
from modelcc.ops.shape import Transpose
from modelcc.ops.transcendental import Sigmoid, Tanh
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.passes.tensor.fuse_contractions import FuseContractions
from modelcc.passes.tensor.inline import InlineStages
from modelcc.schedule.listing import Listing, Scheduled
from modelcc.schedule.schedule import RowBlocks, ScheduleError, Tiled
from modelcc.schedule.text import parse_schedule, print_schedule
from modelcc.schedule.wanted import Wanted
from modelcc.schedule.workload import workload_key
from modelcc.targets.cpu.candidates import candidates
from modelcc.targets.cpu.lower import schedule_kernel
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.passes.pack_operands import PackOperands
from modelcc.targets.cpu.schedule import schedule_program, scheduled_kernels

FEW_KEYS = 32 << 10
"""A cache in which blocks have 16 keys."""

Weights = Callable[[Value], Value]


def softmax(scores: Value) -> Value:
    return of(Softmax(3), scores)


def capped(scores: Value) -> Value:
    return of(Softmax(3), of(Tanh(), scores * 0.2) * 5.0)


def shares(scores: Value) -> Value:
    powers = of(Sigmoid(), scores)
    return powers / of(ReduceSum((3,)), powers)


def shares_of_another(scores: Value) -> Value:
    return of(Relu(), scores) / of(ReduceSum((3,)), of(Sigmoid(), scores))


def squared(scores: Value) -> Value:
    positive = of(Relu(), scores)
    return positive * positive


def unchanged(scores: Value) -> Value:
    return scores * 0.5


def logarithms(scores: Value) -> Value:
    return of(LogSoftmax(3), scores)


def centred(scores: Value) -> Value:
    return scores - of(ReduceSum((3,)), scores) / 40.0


ONLINE = {
    f.__name__: f
    for f in (softmax, capped, shares, shares_of_another, squared, unchanged)
}  # fmt: skip
AT_ONCE = {f.__name__: f for f in (logarithms, centred)}


@dataclass(frozen=True)
class Shape:
    """Batches, heads, rows, keys, summands and columns."""

    b: Index = 1
    h: int = 2
    m: Index = 70
    n: Index = 40
    d: int = 8
    e: int = 16

    def operands(self, make: GraphBuilder, dtype: DType = F32) -> list[str]:
        q = make.input("q", TensorType((self.b, self.h, self.m, self.d), dtype))
        k = make.input("k", TensorType((self.b, self.h, self.n, self.d), dtype))
        v = make.input("v", TensorType((self.b, self.h, self.n, self.e), dtype))
        return [q, k, v]


def graph_of(weights: Weights, shape: Shape) -> Graph:
    make = GraphBuilder()
    q, k, v = (Value(make, name) for name in shape.operands(make))
    mixed = weights(of(MatMul(), q, of(Transpose((0, 1, 3, 2)), k)))
    return make.build([of(MatMul(), mixed, v).name])


def attention_of(shape: Shape, mask: bool = False, dtype: DType = F32, **options: object) -> Graph:
    make = GraphBuilder()
    operands = shape.operands(make, dtype)
    if mask:
        operands.append(make.input("mask", TensorType((shape.b, 1, shape.m, shape.n), dtype)))
    found = make.emit(Attention(**{"scale": 0.3, **options}), *operands)  # type: ignore[arg-type]
    return make.build([make.emit(Transpose((0, 2, 1, 3)), found)])


def fused(graph: Graph) -> TensorProgram:
    steps = (InlineStages(), PackOperands(), FuseKernels(), FuseContractions(8, 512 << 10))
    program = lower_graph(graph)
    for step in steps:
        program = step(program)
    kernels = [i for i in program.items if isinstance(i, Kernel)]
    assert sum(len(k.stages) > 2 or "MatMul_MatMul" in k.name for k in kernels) >= 1
    return program


def machine(small: bool) -> CpuModel:
    return replace(chosen_cpu(), l2_bytes=FEW_KEYS) if small else chosen_cpu()


def feeds(graph: Graph, sizes: dict[str, int]) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    types = {name: graph.types[name] for name in graph.inputs}
    arrays = {n: rng.standard_normal(logical_shape(t, sizes)) * 2 for n, t in types.items()}
    return {n: a.astype(types[n].dtype.numpy) for n, a in arrays.items()}


def check(program: Program, graph: Graph, arrays: dict[str, Array], sizes: dict[str, int]) -> None:
    wanted = interpret(graph, arrays)
    narrow = 2e-3 if any(a.dtype == np.float16 for a in arrays.values()) else 2e-5
    for executor in (interpreted, native):
        found = run_scheduled(program, executor(program), arrays, sizes)
        for name, array in wanted.items():
            scale = np.nanmax(np.abs(array), initial=1.0)
            np.testing.assert_allclose(found[name], array, rtol=0, atol=narrow * scale)


def check_fused(graph: Graph, small: bool, sizes: dict[str, int] | None = None) -> None:
    program = schedule_program(fused(graph), machine(small))
    check(program, graph, feeds(graph, sizes or {}), sizes or {})


@pytest.mark.parametrize("small", [False, True], ids=["at once", "in blocks"])
@pytest.mark.parametrize("name", ONLINE)
def test_weights_of_points_and_of_what_is_known_so_far(name: str, small: bool) -> None:
    check_fused(graph_of(ONLINE[name], Shape()), small)


@pytest.mark.parametrize("name", AT_ONCE)
def test_weights_that_need_all_of_a_row(name: str) -> None:
    check_fused(graph_of(AT_ONCE[name], Shape()), small=True)


@pytest.mark.parametrize("small", [False, True], ids=["at once", "in blocks"])
@pytest.mark.parametrize(
    "shape",
    [Shape(m=64, n=32), Shape(b=3, m=17, n=5, e=3), Shape(m=130, n=49, d=5, e=40), Shape(n=2)],
    ids=str,
)
def test_shapes(shape: Shape, small: bool) -> None:
    check_fused(attention_of(shape), small)


@pytest.mark.parametrize("m, n", [(1, 1), (3, 16), (64, 48), (70, 53)])
def test_symbolic_lengths(m: int, n: int) -> None:
    shape = Shape(b=Sym("b"), m=Sym("m"), n=Sym("n"))
    check_fused(attention_of(shape, mask=True), True, {"b": 2, "m": m, "n": n})


@pytest.mark.parametrize("small", [False, True], ids=["at once", "in blocks"])
@pytest.mark.parametrize("offset", [0, 7])
def test_causal(offset: int, small: bool) -> None:
    check_fused(attention_of(Shape(m=70, n=90), causal=True, offset=offset), small)


@pytest.mark.parametrize("small", [False, True], ids=["at once", "in blocks"])
def test_rows_that_see_nothing_at_first_or_at_all(small: bool) -> None:
    graph = attention_of(Shape(m=20, n=40), mask=True)
    arrays = feeds(graph, {})
    mask = np.zeros_like(arrays["mask"])
    mask[..., 3, :20] = -np.inf
    mask[..., 4, :] = -np.inf
    mask[..., 5, 16:] = -np.inf
    with np.errstate(invalid="ignore"):
        check(
            schedule_program(fused(graph), machine(small)), graph, {**arrays, "mask": mask}, {}
        )  # fmt: skip


@pytest.mark.parametrize("small", [False, True], ids=["at once", "in blocks"])
def test_halves_are_summed_in_single_precision(small: bool) -> None:
    check_fused(attention_of(Shape(m=20), dtype=F16), small)


def test_memory_does_not_grow_with_the_square_of_the_length() -> None:
    shape = Shape(m=4096, n=4096)
    program = schedule_program(fused(attention_of(shape)), chosen_cpu())
    calls = [step for step in program.steps if isinstance(step, Launch)]
    used = {name for call in calls for name in call.arguments}
    sizes = [e for e in (program.types[n].elements for n in used) if isinstance(e, int)]
    assert max(sizes) <= shape.h * 4096 * shape.e


SCHEDULED: dict[str, tuple[Shape, bool, dict[str, int]]] = {
    "at once": (Shape(), False, {}),
    "one block": (Shape(m=40), False, {}),
    "keys in blocks": (Shape(m=130, n=49, d=5, e=40), True, {}),
    "named lengths": (Shape(b=Sym("b"), m=Sym("m"), n=Sym("n")), True, {"b": 2, "m": 70, "n": 53}),
}


def attending(shape: Shape, small: bool) -> Scheduled:
    """The kernel with both products, and its default."""
    kernels = scheduled_kernels(fused(attention_of(shape)), machine(small))
    (found,) = (one for one in kernels if isinstance(one.schedule, RowBlocks))
    return found


@pytest.mark.parametrize("case", SCHEDULED)
def test_the_text_of_a_default_names_the_tiles_of_both_products(case: str) -> None:
    shape, small, _ = SCHEDULED[case]
    one = attending(shape, small)
    text = print_schedule(one.schedule)
    assert "scores=tiled(" in text
    assert "total=tiled(" in text
    assert parse_schedule(text) == one.schedule
    given = schedule_kernel(one.kernel, "kernel", machine(small), (), parse_schedule(text))
    assert given == schedule_kernel(one.kernel, "kernel", machine(small))


@pytest.mark.share(2, "case", "product")
@pytest.mark.parametrize("product", ["scores", "total"])
@pytest.mark.parametrize("case", SCHEDULED)
def test_any_tiles_of_a_product_mean_the_same(case: str, product: str) -> None:
    shape, small, sizes = SCHEDULED[case]
    graph, one = attention_of(shape), attending(shape, small)
    default = schedule_kernel(one.kernel, "kernel", machine(small)).function
    assert isinstance(one.schedule, RowBlocks)
    found = list(islice(candidates(one.kernel, one.schedule, machine(small)), 40))
    found = [c for c in found if c == replace(one.schedule, **{product: getattr(c, product)})]
    made = [schedule_kernel(one.kernel, "kernel", machine(small), (), c) for c in found]
    assert [m.schedule for m in made] == found
    others = [m.schedule for m in made if m.function != default]
    assert others
    for schedule in others[::6]:
        assert schedule is not None
        wanted = Wanted(Listing("", {workload_key(one.kernel): schedule}))
        program = schedule_program(fused(graph), machine(small), wanted=wanted)
        check(program, graph, feeds(graph, sizes), sizes)


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        (Tiled(parallel=16), "forks once, for its blocks"),
        (Tiled("nothing", 8), "nothing"),
    ],
)
def test_tiles_that_do_not_fit_are_refused(scores: Tiled, reason: str) -> None:
    one = attending(Shape(), False)
    assert isinstance(one.schedule, RowBlocks)
    wanted = replace(one.schedule, scores=scores)
    with pytest.raises(ScheduleError, match=reason):
        schedule_kernel(one.kernel, "kernel", machine(False), (), wanted)
