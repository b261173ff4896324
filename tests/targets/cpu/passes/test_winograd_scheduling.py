"""What Winograd's algorithms cost when ResNet-50 is scheduled: a few stages, and little time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import onnx

from modelcc.driver import pipeline, target_of
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.options import Options
from modelcc.pipeline import before_block, run_stages
from modelcc.targets.base import BuildConfig
from tests.test_scaling import calls_of

MODEL = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"


@cache
def ready(winograd: bool) -> tuple[TensorProgram, Callable[[], object]]:
    """ResNet-50 before it is scheduled for vectors of 256 bits, and what does that."""
    options = Options(cpu="x86-64-v3", threads=1, winograd=winograd, strassen=False)
    target = target_of(options)
    stages = before_block(pipeline(target, options, BuildConfig()), "schedule")
    program = run_stages(stages, str(MODEL))
    return program, lambda: target.schedule(program)


def kernels(winograd: bool) -> list[Kernel]:
    return [i for i in ready(winograd)[0].items if isinstance(i, Kernel)]


def test_transforms_are_two_stages() -> None:
    """Whatever a tile has: those of each part of the results have the epilogue besides."""
    found = [k for k in kernels(True) if "winograd" in k.name]
    inputs = {len(k.stages) for k in found if k.name == "winograd_input"}
    assert inputs == {2}
    # Four parts at most: whole tiles, two edges, a corner; three stages of input and product.
    assert max(len(k.stages) for k in found) <= 4 * 3
    assert sum(len(k.stages) for k in kernels(True)) < 2.5 * sum(
        len(k.stages) for k in kernels(False)
    )


def test_scheduling_takes_little_longer() -> None:
    """Calls of functions, not seconds: 1.3 times as many, whatever else the machine does."""
    plain, transformed = (calls_of(ready(winograd)[1]) for winograd in (False, True))
    assert transformed < 1.6 * plain
