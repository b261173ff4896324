"""Workloads: the text of a canonical kernel, and its key in files and databases of schedules."""

from __future__ import annotations

import hashlib

from modelcc.ir.tensor import Kernel, Stage
from modelcc.ir.tensor_text import print_kernel
from modelcc.ir.types import TensorType
from modelcc.schedule.canonical import CanonicalKernel

DIGITS = 16
"""Hexadecimal digits of a key."""


def workload_text(kernel: CanonicalKernel) -> str:
    """Everything that a schedule of ``kernel`` hangs on; equal kernels have equal text."""
    types = {s.output: _plain_type(s) for s in kernel.stages}
    types |= {**dict(kernel.internal), **dict(kernel.types)}
    lines = [f"constants {', '.join(sorted(kernel.constants))}"] if kernel.constants else []
    lines += [f"dimension {name} in {bounds.lo}:{bounds.hi}" for name, bounds in kernel.dims]
    own = Kernel("workload", kernel.inputs, kernel.outputs, kernel.stages)
    return "\n".join((*lines, print_kernel(own, types)))


def workload_key(kernel: CanonicalKernel) -> str:
    """The first digits of the SHA-256 of the text."""
    return hashlib.sha256(workload_text(kernel).encode()).hexdigest()[:DIGITS]


def _plain_type(stage: Stage) -> TensorType:
    return TensorType(tuple(axis.extent for axis in stage.axes), stage.body.dtype)
