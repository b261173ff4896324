"""Cases of the op matrix, as programs of kernels for groups of threads."""

from __future__ import annotations

from op_kernels import CASES, graph_of

from modelcc.ir.op import Op, Sample
from modelcc.ir.program import Program
from modelcc.ops.samples import arrays
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.schedule.schedule import Schedule
from modelcc.targets.gpu.machine import PROCESSOR, GpuModel
from modelcc.targets.gpu.schedule import schedule_groups

BY_NAME = {str(case.id): case for case in CASES}
FIRST = [case for name, case in BY_NAME.items() if name.endswith("-0")]
"""One case of each op."""

POINTWISE = ("Add-0", "Gelu-0", "Where-0", "Cast-0", "Transpose-0", "Pad-0")
REDUCTIONS = ("ReduceSum-0", "ReduceMax-0", "ArgMax-0", "Softmax-0", "LayerNorm-0", "MaxPool-0")
TILES = ("MatMul-0", "MatMul-9", "Gemm-1", "Einsum-0", "Conv-0", "Attention-0", "MatMulInteger-0")
SHOWN = [BY_NAME[name] for name in (*POINTWISE, *REDUCTIONS, *TILES)]
"""What each of the schedules is for."""


def grouped(
    op: Op, sample: Sample, wanted: Schedule | None = None, machine: GpuModel = PROCESSOR
) -> Program:
    """The program of one case, which keeps its named dimensions."""
    graph = graph_of(op, sample, arrays(op, sample), False)
    return schedule_groups(FuseKernels()(lower_graph(graph)), wanted, machine)
