"""Workloads: the text of a canonical kernel, and its key in files and databases of schedules."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace

from modelcc.ir.index import Bounds
from modelcc.ir.tensor import Kernel, Stage, TensorProgram
from modelcc.ir.tensor_text import print_kernel
from modelcc.ir.types import TensorType
from modelcc.schedule.canonical import CanonicalKernel, canonical, with_numbers

DIGITS = 16
"""Hexadecimal digits of a key."""


def workload_text(kernel: CanonicalKernel) -> str:
    """Everything that a schedule of ``kernel`` depends on; equal kernels have equal text."""
    types = {s.output: plain_type(s) for s in kernel.stages}
    types |= {**dict(kernel.internal), **dict(kernel.types)}
    lines = [f"constants {', '.join(sorted(kernel.constants))}"] if kernel.constants else []
    lines += [f"dimension {name} in {bounds.lo}:{bounds.hi}" for name, bounds in kernel.dims]
    own = Kernel("workload", kernel.inputs, kernel.outputs, kernel.stages)
    return "\n".join((*lines, print_kernel(own, types)))


def workload_key(kernel: CanonicalKernel) -> str:
    """The first digits of the SHA-256 of the text."""
    return hashlib.sha256(workload_text(kernel).encode()).hexdigest()[:DIGITS]


def contraction_key(
    kernel: Kernel, types: Mapping[str, TensorType], constants: Collection[str], dims: Bounds
) -> str:
    """The key by which the algorithm of a contraction is chosen: that of its workload, without the
    halos that other kernels need around its tensors."""
    numbered, _ = with_numbers(kernel)
    workload, _ = canonical(numbered, types, frozenset(constants), dims)
    bare = tuple((name, _without_border(type_)) for name, type_ in workload.types)
    return workload_key(replace(workload, types=bare))


def program_key(kernel: Kernel, program: TensorProgram) -> str:
    """The :func:`contraction_key` of a kernel outside of loops of ``program``."""
    return contraction_key(kernel, program.types, program.constants, program.dims)


def _without_border(type_: TensorType) -> TensorType:
    layout = type_.layout
    if layout is None or not any(map(any, layout.halo)):
        return type_
    return type_.with_layout(replace(layout, halo=((0, 0),) * len(layout.halo)))


def plain_type(stage: Stage) -> TensorType:
    """The dense type of a stage's result, in the order of its axes."""
    return TensorType(tuple(axis.extent for axis in stage.axes), stage.body.dtype)
