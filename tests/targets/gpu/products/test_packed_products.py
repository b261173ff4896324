"""Weights of few bits: their words are read once and decoded in registers, on the way to shared
memory or to a sum."""

from __future__ import annotations

import numpy as np
import pytest
from group_products import program_of
from kernel_runs import interpreted, run_scheduled

from modelcc.ir.loop import Function
from modelcc.ir.loop_text import print_function
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.schedule.canonical import canonical
from modelcc.schedule.group_schedule import GroupProduct, GroupReduction, TensorProduct
from modelcc.targets.cuda.chips import CHIPS
from modelcc.targets.gpu.lower import default_schedule
from modelcc.targets.gpu.schedule import schedule_groups

GPU = CHIPS["sm_80"].gpu


def product(rows: int, dtype: str) -> TensorProgram:
    """Rows by words of eight fields, with a scale for each 32 terms."""
    weight = "f32(and(shr(%w[b, w, j], index(4*f):u32), 15:u32)) * %s[b, j]"
    term = weight if dtype == "f32" else f"f32({dtype}({weight}))"
    x = "%x[i, 32*b + 8*w + f]"
    wide = x if dtype == "f32" else f"f32({x})"
    return program_of(
        f"""%x: {dtype}[{rows}, 64], %w: u32[2, 4, 48], %s: f32[2, 48]) -> (%y: f32[{rows}, 48]) {{
          %y: f32[{rows}, 48] = [i < {rows}, j < 48] sum[b < 2, w < 4, f < 8]
            {wide} * ({term}) }}""",
        {},
    )


CASES = {
    "tensor cores": (product(20, "f16"), TensorProduct(16, 48, 64, 1, 1, 2), 8),
    "threads": (product(20, "f32"), GroupProduct(32, 32, 16, 4, 4, 4), 4),
    "one row": (product(1, "f32"), GroupReduction(8, 32, True, 4), 4),
}


@pytest.mark.parametrize("name", CASES)
def test_words_are_decoded_where_they_are_used(name: str) -> None:
    program, schedule, fields = CASES[name]
    scheduled = schedule_groups(program, schedule, GPU)
    (function,) = scheduled.functions
    assert isinstance(function, Function)
    assert f"splat[{fields}](%x1_0)" in print_function(function)
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.integers(-4, 5, program.types["x"].static_shape()),
        "w": rng.integers(0, 1 << 32, (2, 4, 48), np.uint32),
        "s": rng.integers(-4, 5, (2, 48)),
    }
    feeds = {n: value.astype(program.types[n].dtype.numpy) for n, value in feeds.items()}
    found = run_scheduled(scheduled, interpreted(scheduled), feeds, {})
    np.testing.assert_array_equal(found["y"], run_program(program, feeds, {})["y"])


def test_defaults_are_such() -> None:
    for rows, dtype, kind in ((128, "f16", TensorProduct), (1, "f32", GroupReduction)):
        program = product(rows, dtype)
        (item,) = program.items
        assert isinstance(item, Kernel)
        kernel = canonical(item, program.types, frozenset(), program.dims)[0]
        schedule = default_schedule(kernel, GPU)
        assert isinstance(schedule, kind)
        assert not isinstance(schedule, GroupReduction) or schedule.lanes == 4
