"""What processors want done to graphs and tensor programs before kernels are scheduled."""

from __future__ import annotations

from collections.abc import Iterator

from modelcc.ir.tensor import TensorProgram
from modelcc.passes.graph.integer_contractions import IntegerContractions
from modelcc.passes.graph.merge_groups import MergeGroups
from modelcc.passes.pass_base import Pass
from modelcc.passes.tensor.fuse_contractions import FuseContractions
from modelcc.passes.tensor.split_blocks import SplitBlocks
from modelcc.targets.base import GraphPasses, TargetOptions, TensorPasses
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.passes.assign_layouts import AssignLayouts
from modelcc.targets.cpu.passes.join_parts import JoinParts
from modelcc.targets.cpu.passes.pack_channels import PackChannels
from modelcc.targets.cpu.passes.pack_operands import PackOperands
from modelcc.targets.cpu.passes.pack_pairs import PackPairs
from modelcc.targets.cpu.passes.strassen import Strassen
from modelcc.targets.cpu.passes.strassen_cost import StrassenCost
from modelcc.targets.cpu.passes.winograd import Winograd
from modelcc.targets.cpu.passes.winograd_cost import WinogradCost

BLOCK = 16
"""Channels, or columns of an operand, that lie together."""

ATTENTION_ROWS = 8
"""Rows of scores that are computed at once, at least."""

SCORES_BYTES = 512 << 10
"""What such rows may take of the second cache."""

PACKED_ROWS = 12
"""Rows from which on it pays to pack a matrix that comes at run time."""


def graph_passes(pairs_shorts: bool) -> GraphPasses:
    """Rewrites of graphs; ``pairs_shorts``: small integers are multiplied in pairs of i16."""
    return GraphPasses(
        integers=(IntegerContractions(bytes=not pairs_shorts),),
        convolutions=(MergeGroups(BLOCK),),
    )


def tensor_passes(
    machine: CpuModel, pairs_shorts: bool, options: TargetOptions, direct: frozenset[str]
) -> TensorPasses:
    """Rewrites of tensor programs for ``machine``; contractions with the keys ``direct`` are left
    as they are."""
    return TensorPasses(
        layouts=(PackChannels(BLOCK, bytes=not pairs_shorts), *_layouts(options), PackPairs(BLOCK)),
        operands=(PackOperands(BLOCK),),
        kernels=(
            FuseContractions(ATTENTION_ROWS, SCORES_BYTES),
            JoinParts(threads=machine.threads),
            SplitBlocks(),
            *_fewer_multiplications(machine, options, direct),
            # What neither fits into the first cache nor lies in the order in which it is read.
            PackOperands(BLOCK, rows=PACKED_ROWS, near=machine.l1_bytes),
        ),
    )


def _layouts(options: TargetOptions) -> Iterator[Pass[TensorProgram]]:
    """At level 0 tensors lie as the model says, for whoever looks at them."""
    if options.optimize > 0:
        yield AssignLayouts(BLOCK)


def _fewer_multiplications(
    machine: CpuModel, options: TargetOptions, direct: frozenset[str]
) -> Iterator[Pass[TensorProgram]]:
    if options.winograd and options.optimize > 0:
        yield Winograd(WinogradCost(machine), BLOCK, direct)
    if options.strassen and options.optimize > 0:
        yield Strassen(StrassenCost(machine), direct)
