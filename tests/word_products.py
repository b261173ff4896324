"""How models multiply integers: counted before anything is scheduled."""

from __future__ import annotations

from onnx import ModelProto

from modelcc.driver import pipeline, target_of
from modelcc.ir.scalar import WORD_DOTS
from modelcc.ir.scalar_tree import walk
from modelcc.ir.tensor import Apply, Kernel, TensorProgram
from modelcc.options import Options
from modelcc.pipeline import before_block, run_stages
from modelcc.targets.base import BuildConfig


def kernels_of(model: ModelProto, options: Options) -> list[Kernel]:
    """The kernels of ``model`` as they are before anything is scheduled."""
    stages = before_block(pipeline(target_of(options), options, BuildConfig()), "schedule")
    program = run_stages(stages, model)
    assert isinstance(program, TensorProgram)
    return [item for item in program.items if isinstance(item, Kernel)]


def word_products(model: ModelProto, options: Options) -> int:
    """How many products of words of several numbers each there are."""
    kernels = kernels_of(model, options)
    nodes = [n for k in kernels for stage in k.stages for n in walk(stage.body)]
    return sum(isinstance(n, Apply) and n.function in WORD_DOTS for n in nodes)
