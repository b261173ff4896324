"""The work of compiling is linear in the number of nodes.

What is counted is calls of functions rather than seconds, so that a busy machine changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from cProfile import Profile

import numpy as np
import pytest

import modelcc
from benchmarks.scaling_families import FAMILIES
from modelcc.driver import pipeline, target_of
from modelcc.ir.condition import Condition
from modelcc.ir.index import Sym
from modelcc.ir.tensor import Axis, Item, Kernel, Read, ReadSize, Stage, TensorProgram
from modelcc.ir.types import F32, TensorType
from modelcc.passes.tensor.assert_reads import AssertReads
from modelcc.pipeline import run_stages
from modelcc.targets.base import BuildConfig
from tests.machines import chosen_options

LINEAR = 1.5
"""Growth per node that is borne between a number of nodes and four times as many."""

AFTER = ("emit", "build", "package")
"""Blocks of the pipeline whose work is mostly LLVM's."""


def calls_of(work: Callable[[], object]) -> int:
    """Python and C functions that ``work`` calls."""
    profile = Profile(subcalls=False)
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


def calls_to_plan(family: str, nodes: int) -> int:
    """Calls from the import to the memory plan."""
    options = chosen_options(threads=1)
    stages = pipeline(target_of(options), options, BuildConfig())
    wanted = [stage for stage in stages if stage.block not in AFTER]
    model = FAMILIES[family][0](nodes)
    return calls_of(lambda: run_stages(wanted, model))


@pytest.mark.parametrize(
    ("family", "nodes"),
    [
        ("unary", 100),
        ("binary_earlier", 100),
        ("diamonds", 100),
        ("wide_sum", 100),
        ("many_outputs", 100),
        ("matmul", 100),
        ("residual", 60),
        ("norms", 20),
        ("reshapes", 40),
        ("slices", 45),
        ("split", 80),
        ("named_parts", 160),
        ("named_slices", 12),
        ("sequence", 80),
        ("streaming", 60),
        ("shape_rounds", 70),
        ("speech", 110),
        ("nested_loop", 5),
        ("trees", 3000),
    ],
)
def test_four_times_the_nodes_are_four_times_the_work(family: str, nodes: int) -> None:
    few, many = calls_to_plan(family, nodes), calls_to_plan(family, 4 * nodes)
    assert many / few < 4 * LINEAR


@pytest.mark.parametrize("family", ["unary", "doubling"])
def test_chains_that_are_longer_than_the_stack_compile_and_compute(family: str) -> None:
    model = FAMILIES[family][0](sys.getrecursionlimit() + 100)
    net = modelcc.compile(model, threads=1, cache=None)
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
    assert np.isfinite(np.asarray(net(x))).all()


def test_constraints_on_many_reads_are_linear_work() -> None:
    """Each kernel follows a constraint that makes a name equal, and needs one of its own."""

    def work(parts: int) -> int:
        n, types = Sym("n"), {"x": TensorType((Sym("m"),), F32)}
        items: list[Item] = []
        for k in range(parts):
            stage = Stage(f"y{k}", (Axis("i", n),), (Sym("i"),), Read("x", (Sym("i") + k,), F32))
            types[stage.output] = TensorType((n,), F32)
            items.append(ReadSize((), "x", (Condition(Sym(f"n{k}"), "==", n),)))
            items.append(Kernel("k", ("x",), (stage.output,), (stage,)))
        program = TensorProgram("main", ("x",), tuple(types), tuple(items), types)
        return calls_of(lambda: AssertReads()(program))

    assert work(600) / work(150) < 4 * LINEAR
