"""What no schedule may change is the result: candidates of random networks and of every op."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_runs import native, run_scheduled
from machines import chosen_cpu, cpu_named
from op_kernels import CASES, check, graph_of

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.op import Op, Sample
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.types import F32, TensorType
from modelcc.ops.pool import AveragePool
from modelcc.ops.samples import arrays, sizes
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.schedule.listing import Listing, Scheduled
from modelcc.schedule.schedule import Schedule, ScheduleError
from modelcc.schedule.text import parse_schedule, print_schedule
from modelcc.schedule.wanted import Wanted
from modelcc.schedule.workload import workload_key
from modelcc.targets.cpu.candidates import candidates
from modelcc.targets.cpu.lower import schedule_kernel
from modelcc.targets.cpu.processors import PROCESSORS
from modelcc.targets.cpu.schedule import schedule_program, scheduled_kernels
from modelcc.tune.search import BATCH
from tests.passes.tensor.networks import networks
from tests.passes.tensor.test_random_networks import PASSES, assert_same, feeds_of
from tests.shares import Turn
from tests.targets.cpu.test_blocking import product_kernel

SHARE = 12
"""Of so many samples of ops one is tried without ``--all-ops``."""

LONGEST = 40
"""Candidates of a kernel that are drawn from."""


def drawn(kernels: tuple[Scheduled, ...], rng: random.Random) -> dict[str, Schedule]:
    """For each kernel that has any a candidate, by its key."""
    found: dict[str, Schedule] = {}
    for one in kernels:
        options = list(candidates(one.kernel, one.schedule, chosen_cpu()))[:LONGEST]
        if options:
            found[workload_key(one.kernel)] = rng.choice(options)
    return found


def lowered(graph: Graph) -> TensorProgram:
    program = lower_graph(graph)
    for step in PASSES:
        program = step(program)
    return program


@settings(max_examples=25)
@given(networks(), st.integers(0, 1 << 30))
def test_random_networks_mean_the_same_by_any_schedule(graph: Graph, seed: int) -> None:
    feeds, program = feeds_of(graph), lowered(graph)
    wanted = interpret(graph, feeds)
    kernels = scheduled_kernels(program, chosen_cpu())
    chosen = drawn(kernels, random.Random(seed))
    scheduled = schedule_program(program, chosen_cpu(), wanted=Wanted(Listing("", chosen)))
    execute = native(scheduled)
    assert_same(run_scheduled(scheduled, execute, feeds, {}), wanted)
    assert_same(run_scheduled(scheduled, execute, feeds, {}, in_place=True), wanted)


@pytest.mark.parametrize("few", [{"vector_registers": 16}, {"vector_bits": 256}])
def test_what_instructions_have_is_tried_whatever_the_model_says(few: dict[str, int]) -> None:
    right = PROCESSORS["sapphirerapids"].model
    whole = {"widest_bits": right.vector_bits, "most_registers": right.vector_registers}
    wrong = replace(right, **whole, **few)
    kernel = product_kernel(197, 768, 3072)
    best, default = (schedule_kernel(kernel, "p", one).schedule for one in (right, wrong))
    assert best is not None and default is not None and best != default
    assert best in list(islice(candidates(kernel, default, wrong), BATCH))
    functions = [schedule_kernel(kernel, "p", one, (), best).function for one in (right, wrong)]
    assert functions[0] == functions[1]


@pytest.mark.share(SHARE, "sample")
@pytest.mark.parametrize(("op", "sample"), CASES)
def test_ops_mean_the_same_by_any_schedule(op: Op, sample: Sample, turn: Turn) -> None:
    program = FuseKernels()(lower_graph(graph_of(op, sample, arrays(op, sample), constant=False)))
    kernels = scheduled_kernels(program, chosen_cpu())
    for seed in turn.of(range(4), 4):
        chosen = drawn(kernels, random.Random(f"{op} {seed}"))
        scheduled = schedule_program(program, chosen_cpu(), wanted=Wanted(Listing("", chosen)))
        check(op, scheduled, native(scheduled), arrays(op, sample), sizes(op, sample))


@pytest.mark.parametrize("cpu", ["native", "x86-64-v2", "x86-64-v4"])
@settings(max_examples=25)
@given(graph=networks())
def test_the_text_of_a_default_gives_the_same_function(cpu: str, graph: Graph) -> None:
    machine = chosen_cpu() if cpu == "native" else cpu_named(cpu)
    for one in scheduled_kernels(lowered(graph), machine):
        read = parse_schedule(print_schedule(one.schedule))
        assert read == one.schedule
        default = schedule_kernel(one.kernel, "kernel", machine)
        assert schedule_kernel(one.kernel, "kernel", machine, (), read) == default


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_windows_along_a_vector_are_no_tile(cpu: str) -> None:
    machine = cpu_named(cpu)
    make = GraphBuilder()
    x = make.input("x", TensorType((2, 3, 8, 3), F32))
    pool = AveragePool((5, 5), (1, 1), (2, 2), (2, 2), (1, 1))
    for one in scheduled_kernels(lowered(make.build([make.emit(pool, x)])), machine):
        default = schedule_kernel(one.kernel, "kernel", machine)
        assert schedule_kernel(one.kernel, "kernel", machine, (), one.schedule) == default


@settings(max_examples=25)
@given(networks(), networks())
def test_schedules_of_other_kernels_are_refused_or_right(graph: Graph, other: Graph) -> None:
    """A schedule that was made for another kernel: refused with a reason, or as good as any."""
    machine, feeds, program = chosen_cpu(), feeds_of(graph), lowered(graph)
    foreign = [one.schedule for one in scheduled_kernels(lowered(other), machine)]
    accepted: Mapping[str, Schedule] = {}
    for one in scheduled_kernels(program, machine):
        for schedule in foreign:
            try:
                schedule_kernel(one.kernel, "kernel", machine, (), schedule)
            except ScheduleError as error:
                assert str(error)
            else:
                accepted = {**accepted, workload_key(one.kernel): schedule}
    scheduled = schedule_program(program, machine, wanted=Wanted(Listing("", accepted)))
    got = run_scheduled(scheduled, native(scheduled), feeds, {})
    assert_same(got, interpret(graph, feeds))
