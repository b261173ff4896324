"""One kernel in the place of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Kernel, Stage

NAME_LENGTH = 48


def fused_kernel(
    kernels: Sequence[Kernel], stages: Sequence[Stage], outputs: Iterable[str]
) -> Kernel:
    """The kernel of ``stages`` that gives ``outputs``, with names and sources of ``kernels``."""
    made = {s.output for s in stages}
    read = dict.fromkeys(r.tensor for s in stages for r in reads(s.body))
    return Kernel(
        "_".join(dict.fromkeys(k.name for k in kernels))[:NAME_LENGTH],
        tuple(t for t in read if t not in made),
        tuple(dict.fromkeys(outputs)),
        tuple(stages),
        tuple(dict.fromkeys(s for k in kernels for s in k.source)),
        max(k.rounding for k in kernels),
    )
