"""Updates of few places in parts are what NumPy makes of them; those of many places stay whole."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runs import interpreted
from op_kernels import assert_close
from scatters import Updates

from modelcc.ir.loop_interpreter import OutOfBoundError
from modelcc.ir.tensor import Scatter, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ops.runtime_index import Combination
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.targets.gpu.machine import H100, PROCESSOR
from modelcc.targets.gpu.passes.split_scatters import SplitScatters
from modelcc.targets.gpu.schedule import schedule_groups


def split(updates: Updates) -> TensorProgram:
    program = SplitScatters(H100)(updates.program())
    verify_tensor_program(program)
    return program


def parts_of(updates: Updates) -> int:
    """1 where they stay whole."""
    program = split(updates)
    (item,) = (item for item in program.items if isinstance(item, Scatter))
    if item.stage.output in program.outputs:
        return 1
    (parts, *_) = program.types[item.stage.output].static_shape()
    return parts


FEW = {
    "places": Updates((2,), (2048,), 0),
    "rows": Updates((2, 12), (1024, 1)),
    "rows of rows": Updates((3, 2, 4), (2, 700, 2)),
    "lists": Updates((3, 2), (3, 1500), 1),
}


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["f32", "i32"])
@pytest.mark.parametrize("name", FEW)
def test_parts_together_are_the_whole(name: str, dtype: str, reduction: Combination) -> None:
    few = FEW[name]
    updates = Updates(few.shape, few.places, few.axis, reduction, dtype)
    program, feeds = split(updates), updates.feeds(2)
    assert len(program.items) == 4
    if reduction == "mul" and dtype == "f32":
        feeds["x2"] = np.exp(feeds["x2"] / 100)
    (name,) = program.outputs
    assert_close(run_program(program, feeds, {})[name], updates.wanted(feeds))


def test_parts_run_by_groups_of_threads() -> None:
    updates = FEW["rows"]
    program = schedule_groups(FuseKernels()(split(updates)), None, H100)
    feeds = updates.feeds(3)
    assert_close(updates.run(program, interpreted(program), feeds), updates.wanted(feeds))
    feeds["x1"][700] = 2
    with pytest.raises(OutOfBoundError, match="index 2 is outside"):
        updates.run(program, interpreted(program), feeds)


def test_few_places_are_split() -> None:
    """Histograms, and types of tokens."""
    assert parts_of(Updates((2,), (1_000_000,), 0)) > 1000
    assert 16 < parts_of(Updates((1000,), (1_000_000,), 0)) <= 250
    assert parts_of(Updates((2, 768), (4096, 1))) >= 16


@pytest.mark.parametrize(
    "updates",
    [
        Updates((1_000_000,), (1_000_000,), 0),
        Updates((50_000, 768), (4096, 1)),
        Updates((2,), (16,), 0),
        Updates((2,), (1_000_003,), 0),
        Updates((2,), (2048,), 0, "none"),
        Updates((9, 11), (30, 1), named=True),
        Updates((4096, 8), (1, 1)),
    ],
    ids=["many places", "an embedding", "few updates", "a prime", "the last", "named", "a row"],
)
def test_the_others_stay_whole(updates: Updates) -> None:
    assert parts_of(updates) == 1


def test_a_processor_gains_nothing() -> None:
    program = FEW["places"].program()
    assert SplitScatters(PROCESSOR)(program).items == program.items
