"""Construction of fused kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from modelcc.ir.scalar_tree import reads, transform
from modelcc.ir.tensor import Kernel, Read, Scalar, Stage

NAME_LENGTH = 48


def kernel_of(
    name: str, stages: Sequence[Stage], outputs: Iterable[str], source: Iterable[str]
) -> Kernel:
    """The kernel of ``stages``, with the inputs that none of them defines; long names are cut."""
    made = {s.output for s in stages}
    read = dict.fromkeys(r.tensor for s in stages for r in reads(s.body))
    inputs = tuple(t for t in read if t not in made)
    return Kernel(name[:NAME_LENGTH], inputs, tuple(outputs), tuple(stages), tuple(source))


def with_stages(kernel: Kernel, stages: Sequence[Stage]) -> Kernel:
    """``kernel`` with other stages, and their inputs, in the original order where possible."""
    made = {s.output for s in stages}
    read = dict.fromkeys(r.tensor for s in stages for r in reads(s.body))
    kept = [name for name in kernel.inputs if name in read]
    more = [name for name in read if name not in kernel.inputs and name not in made]
    return replace(kernel, stages=tuple(stages), inputs=(*kept, *more))


def fused_kernel(
    kernels: Sequence[Kernel], stages: Sequence[Stage], outputs: Iterable[str]
) -> Kernel:
    """The kernel of ``stages`` with ``outputs``, with names and sources of ``kernels``."""
    name = "_".join(dict.fromkeys(k.name for k in kernels))
    source = dict.fromkeys(s for k in kernels for s in k.source)
    kernel = kernel_of(name, stages, dict.fromkeys(outputs), source)
    return replace(kernel, rounding=max(k.rounding for k in kernels))


def with_values(body: Scalar, made: Mapping[str, Scalar]) -> Scalar:
    """``body`` with reads of tensors in ``made`` replaced by their values at this point."""
    return transform(body, lambda s: made.get(s.tensor, s) if isinstance(s, Read) else s)
