"""Kernels of contractions, as text, on groups of threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product

import numpy as np
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.index import evaluate
from modelcc.ir.loop import Function, Stmt
from modelcc.ir.loop_interpreter import compile_loops
from modelcc.ir.loop_traversal import map_blocks
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.types import Array
from modelcc.schedule.group_schedule import GroupSchedule
from modelcc.targets.gpu.schedule import schedule_groups


def program_of(kernel: str, sizes: Mapping[str, int]) -> TensorProgram:
    """A program of one kernel, given from its inputs on; the names in ``sizes`` that its inputs
    begin with are dimensions."""
    inputs, outputs = kernel.split("->")[0], kernel.split("->")[1].split("{")[0]
    found = ", ".join(part.split(":")[0] for part in outputs.strip(" ()\n").split(", %"))
    found = found.replace(", ", ", %")
    named = [name for name in sizes if f"[{name}, " in inputs or f", {name}]" in inputs]
    dims = f"dims({', '.join(f'{name} in 1:' for name in named)}) " if named else ""
    text = f"program @p({inputs.strip()} -> ({found}) {dims}{{ kernel @k({kernel} }}"
    return parse_tensor_program(text, {})


def feeds_of(program: TensorProgram, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Small whole numbers: sums of their products are exact in any order."""
    rng = np.random.default_rng(1)
    types = {name: program.types[name] for name in program.inputs}
    shapes = {n: [evaluate(e, sizes) for e in t.shape] for n, t in types.items()}
    return {n: rng.integers(-4, 5, shapes[n]).astype(t.dtype.numpy) for n, t in types.items()}


def function_of(program: TensorProgram, schedule: GroupSchedule) -> Function:
    """The one function of a program."""
    (function,) = schedule_groups(program, schedule).functions
    assert isinstance(function, Function)
    return function


def assert_same_meaning(
    program: TensorProgram, schedule: GroupSchedule, sizes: Mapping[str, int]
) -> None:
    """Scheduled, the program computes what the tensor level says, and no threads race."""
    feeds, env = feeds_of(program, sizes), {d: sizes[d] for d in program.dims}
    scheduled = schedule_groups(program, schedule)
    wanted = run_program(program, feeds, env)
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, env)
    for output in program.outputs:
        np.testing.assert_array_equal(found[output], wanted[output])


def run_in_order(function: Function, order: int) -> list[Array]:
    """All that a function writes, by groups in one of many orders."""
    rng = np.random.default_rng(0)

    def groups(*extents: int) -> Iterable[tuple[int, ...]]:
        found = [*product(*map(range, extents))]
        return [found[n] for n in np.random.default_rng(order).permutation(len(found))]

    arrays: list[Array] = []
    for p in function.parameters:
        assert isinstance(p.buffer.size, int)
        dtype, zero = p.buffer.dtype, p.mutable and not p.buffer.dtype.is_float
        data = rng.standard_normal(p.buffer.size) * (0 if zero else 1)
        arrays.append(data.astype(dtype.numpy))
    compile_loops(function, groups)(arrays, [])
    return [a for a, p in zip(arrays, function.parameters, strict=True) if p.mutable]


def without(function: Function, kinds: tuple[type[Stmt], ...], number: int) -> Function:
    """``function`` without statement ``number`` of those of ``kinds``."""
    passed = 0

    def stays(statement: Stmt) -> bool:
        nonlocal passed
        if not isinstance(statement, kinds):
            return True
        passed += 1
        return passed - 1 != number

    def rewrite(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map_blocks(s, rewrite) for s in body if stays(s))

    return replace(function, body=rewrite(function.body))
