"""Sizes read from memory: text, meaning and native code of programs that depend on data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from modelcc.driver import check_stage, compile_model
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.graph_verifier import verify_graph
from modelcc.ir.index import DIM, Range, Sym
from modelcc.ir.index_upper import upper_bound
from modelcc.ir.program import Allocate, Program
from modelcc.ir.program_interpreter import interpret_program
from modelcc.ir.program_parser import parse_program
from modelcc.ir.program_text import print_program
from modelcc.ir.program_verifier import verify_program
from modelcc.ir.tensor import ReadSize as ReadItem
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_text import print_tensor_program
from modelcc.ir.types import F32, I64, Array, TensorType
from modelcc.ops.comparison import Greater
from modelcc.ops.control import If
from modelcc.ops.elementwise import Add, Exp, Mul, Neg, Sub
from modelcc.ops.nonzero import NonZero
from modelcc.ops.reduce import ReduceSum
from modelcc.ops.runtime_size import ReadSize
from modelcc.ops.shape import Iota, Slice, Transpose
from modelcc.pipeline import StageRun
from modelcc.runtime.errors import RunError
from modelcc.runtime.session import Session
from tests.machines import chosen_options

n, k = Sym("n"), Sym("k")


def selection() -> Graph:
    """Places of what is not 0, by a size that has a bound."""
    build = GraphBuilder("selection", {"k": Range(0, n * 3)})
    x = build.input("x", TensorType((n, 3), F32))
    where, count = build.add(NonZero(), build.emit(Mul(), x, x))
    build.emit(ReadSize(("k",)), count, source=("NonZero_0",))
    found = build.emit(Slice((0, 0), (2, k), (1, 1)), where)
    rows = build.emit(Transpose((1, 0)), found)
    flat = build.emit(Slice((0, 0), (1, k), (1, 1)), where)
    return build.build([rows, flat])


def counting() -> Graph:
    """Numbers up to one that is an input and has no bound; kept for two readers."""
    build = GraphBuilder("counting", {"k": Range(0, None)})
    size = build.input("size", TensorType((1,), I64))
    build.emit(ReadSize(("k",)), size, source=("Range_0",))
    numbers = build.emit(Iota((k,), 0, 0, 1, F32))
    negative = build.emit(Neg(), build.emit(Mul(), numbers, numbers))
    squares = build.emit(Exp(), negative)
    (back,) = build.add(Slice((k - 1,), (k,), (-1,)), squares)
    return build.build([squares, back])


def counted(depth: int) -> Graph:
    """The sum of as many numbers as an input says, and of those that a branch in it counts.

    Each of the graphs has the name ``k`` for its own number.
    """
    build = GraphBuilder(f"depth{depth}", {"k": Range(0, 9)})
    size = build.input("size", TensorType((1,), I64))
    build.emit(ReadSize(("k",)), size)
    total = build.emit(ReduceSum((0,), False), build.emit(Iota((k,), 0, 0, 1, F32)))
    if depth:
        less = build.emit(Sub(), size, build.constant(np.array([1])))
        large = build.emit(Greater(), total, build.constant(np.array(4, np.float32)))
        branch = counted(depth - 1)
        total = build.emit(Add(), total, build.emit(If(branch, branch), large, less))
    return build.build([total])


def levels(graph: Graph, target: str = "native") -> tuple[list[object], Session]:
    """Every program on the way to code, verified, and the compiled model."""
    seen: list[object] = [graph]

    def note(run: StageRun) -> None:
        check_stage(run)
        seen.append(run.after)

    compiled = compile_model(graph, chosen_options(target=target), observer=note)
    return seen, Session(compiled.artifact)


def outputs(program: object, feeds: dict[str, Array]) -> list[Array] | None:
    """What a program on any level with an interpreter gives."""
    match program:
        case Graph():
            return list(interpret(program, feeds).values())
        case TensorProgram():
            sizes = {"n": feeds["x"].shape[0]} if "x" in feeds else {}
            return list(run_program(program, feeds, sizes).values())
        case Program():
            return list(interpret_program(program, feeds).values())
        case _:
            return None


MATRICES = [
    np.array([[1, 0, 2], [0, 0, 3]], np.float32),
    np.zeros((4, 3), np.float32),
    np.ones((7, 3), np.float32),
    np.ones((1, 3), np.float32),
]


@pytest.mark.parametrize("target", ["native", "c"])
def test_a_bounded_size_on_every_level(target: str) -> None:
    programs, session = levels(selection(), target)
    for x in MATRICES:
        for program in programs:
            found = outputs(program, {"x": x})
            if found is not None:
                np.testing.assert_array_equal(found[0], np.argwhere(x))
        rows, flat = session(x)
        np.testing.assert_array_equal(rows, np.argwhere(x))
        np.testing.assert_array_equal(flat, np.argwhere(x)[:, :1].T)


@pytest.mark.parametrize("target", ["native", "c"])
def test_an_unbounded_size_on_every_level(target: str) -> None:
    programs, session = levels(counting(), target)
    for size in (0, 1, 5, 16, 100, 3):
        feeds = {"size": np.array([size])}
        expected = np.exp(-(np.arange(size, dtype=np.float32) ** 2))
        for found in (*(outputs(p, feeds) for p in programs), session(feeds["size"])):
            if found is not None:
                np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-30)
                np.testing.assert_allclose(found[1], expected[::-1], rtol=1e-5, atol=1e-30)


def test_bodies_have_names_of_their_own_for_what_they_read() -> None:
    graph = counted(2)
    programs, session = levels(graph)
    wanted = sum(range(7)) + sum(range(6)) + sum(range(5))
    feeds = {"size": np.array([7])}
    assert np.asarray(session(feeds["size"])).item() == wanted
    for program in programs:
        assert outputs(program, feeds) in (None, [wanted])


def test_text_reads_back() -> None:
    for graph in (selection(), counting()):
        for program in levels(graph)[0]:
            if isinstance(program, TensorProgram):
                text = print_tensor_program(program)
                assert parse_tensor_program(text, {}) == program
            if isinstance(program, Program):
                assert parse_program(print_program(program), {}) == program


def program_of(graph: Graph) -> Program:
    return next(p for p in levels(graph)[0] if isinstance(p, Program) and p.placement)


def test_memory_with_a_bound_is_planned_and_other_memory_allocated() -> None:
    bounded, unbounded = program_of(selection()), program_of(counting())
    assert set(bounded.allocated) == set(bounded.outputs)
    assert bounded.read_sizes == ("k",)
    assert all(not b.segment for b in bounded.placed.bindings.values())
    kinds = [type(step) for step in unbounded.steps]
    first, reads = kinds.index(Allocate), kinds.count(ReadItem)
    assert first == reads > 1  # after the read and all that is asserted of it, before the rest


def test_a_size_out_of_bounds_ends_the_run() -> None:
    graph = counting()
    _, session = levels(graph)
    with pytest.raises(RunError, match=r"Range_0: 'k' is -2, but must be at least 0"):
        session(np.array([-2]))
    with pytest.raises(ModelError, match=r"size 'k' is -2, outside of 0"):
        interpret(graph, {"size": np.array([-2])})
    with pytest.raises(ModelError, match=r"Range_0: k >= 0 does not hold: k = -2"):
        interpret_program(program_of(graph), {"size": np.array([-2])})


def test_use_before_reading_is_refused() -> None:
    program = program_of(selection())
    late = [s for s in program.steps if isinstance(s, ReadItem)]
    early = [s for s in program.steps if not isinstance(s, ReadItem)]
    with pytest.raises(ModelError, match="'k'"):
        verify_program(replace(program, steps=(*early, *late)))


def test_constraints_are_checked() -> None:
    build = GraphBuilder("even", {"k": Range(0, 9)})
    x = build.input("x", TensorType((1,), I64))
    build.emit(ReadSize(("k",), ((k % 2, "==", 0),)), x)
    graph = build.build([build.emit(Iota((k,), 0, 0, 1, F32))])
    verify_graph(graph)
    _, session = levels(graph)
    assert np.asarray(session(np.array([4]))).tolist() == [0, 1, 2, 3]
    with pytest.raises(RunError, match="k mod 2"):
        session(np.array([3]))


def test_constraints_that_few_sizes_meet_do_not_hold_up_the_verifier() -> None:
    """That of the last size depends on all of them: backtracking would try every combination."""
    names = tuple(f"k{i}" for i in range(24))
    total = sum((Sym(name) for name in names), start=Sym("k24"))
    build = GraphBuilder("many", {name: Range(0, 9) for name in (*names, "k24")})
    x = build.input("x", TensorType((25,), I64))
    build.emit(ReadSize((*names, "k24"), ((total % 1009, "==", 1000),)), x)
    made = build.emit(Iota((Sym("k24"),), 0, 0, 1, F32))
    verify_program(program_of(build.build([made])))


def test_upper_bounds() -> None:
    bounds = {"k": Range(0, 3 * n), "j": Range(-2, None), "n": DIM}
    assert upper_bound(4 * k + 64, {"k"}, bounds) == 12 * n + 64
    assert upper_bound(k * n, {"k"}, bounds) == 3 * n * n
    assert upper_bound(n - k, {"k"}, bounds) == n
    assert upper_bound((k + 63) // 64, {"k"}, bounds) == (3 * n + 63) // 64
    assert upper_bound(Sym("j"), {"j"}, bounds) is None
    assert upper_bound(-Sym("j"), {"j"}, bounds) == 2
