"""THE pipeline: from a model to code, as one list of stages.

Blocks are the levels of the design; each stage is a pass or a lowering from one level to the next.
One observer sees every stage with the program before and after it, and the seconds it took.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from modelcc.artifact.file import Artifact, read_artifact, write_artifact
from modelcc.compile_cache import (
    ArtifactCache,
    compiler_fingerprint,
    external_files,
    file_digest,
)
from modelcc.frontends.onnx import import_onnx
from modelcc.frontends.onnx.loader import Model as OnnxModel
from modelcc.ir.graph import Graph
from modelcc.ir.op import ModelError
from modelcc.ir.program import Program
from modelcc.options import Options
from modelcc.packaging import package
from modelcc.passes.graph.canonicalise import Canonicalise
from modelcc.passes.graph.common_subexpressions import CommonSubexpressions
from modelcc.passes.graph.dead_code import DeadCode
from modelcc.passes.graph.fold_constants import FoldConstants
from modelcc.passes.program.from_scheduled import lower_to_program
from modelcc.passes.program.order import order_steps
from modelcc.passes.program.plan_memory import plan_memory
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.fuse import Fuse
from modelcc.pipeline import Observer, Stage, block, numbered, run_stages
from modelcc.targets.base import Module, Target, TargetOptions, Workplace
from modelcc.targets.registry import make_target

ModelSource = OnnxModel | Graph
"""A path of an .onnx file, its bytes, an ``onnx.ModelProto``, or a graph built by hand."""


@dataclass(frozen=True)
class Emitted:
    """A program and its source modules."""

    program: Program
    modules: tuple[Module, ...]


@dataclass(frozen=True)
class Built:
    """A program, its source modules and their object files."""

    program: Program
    modules: tuple[Module, ...]
    objects: tuple[bytes, ...]


def pipeline(target: Target, options: Options, workplace: Workplace) -> tuple[Stage, ...]:
    """All stages from a model to an artifact, in order."""
    stages = (
        *block("import", ("import", Import(options))),
        *block(
            "graph",
            Canonicalise(),
            FoldConstants(),
            CommonSubexpressions(),
            DeadCode(),
        ),
        *block("lower", lower_graph),
        *block("tensor", Fuse()),
        *block("schedule", ("schedule", target.schedule)),
        *block("program", order_steps, ("plan_memory", _planned), LegalizeFunctions(target)),
        *block("emit", ("emit", Emit(target))),
        *block("build", ("build", Build(target, workplace))),
        *block("package", ("package", Package(target))),
    )
    return _restricted(numbered(stages), options)
