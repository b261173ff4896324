"""Passes over graphs and tensor programs for CPUs, before kernels are scheduled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from modelcc.ir.capacity import Capacity
from modelcc.ir.errors import ModelError
from modelcc.ir.instructions import DOT2
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.passes.graph.integer_contractions import IntegerContractions
from modelcc.passes.graph.merge_groups import MergeGroups
from modelcc.passes.graph.tabulate_functions import TabulateFunctions
from modelcc.passes.pass_base import Pass
from modelcc.passes.tensor.fuse_contractions import FuseContractions
from modelcc.passes.tensor.split_blocks import SplitBlocks
from modelcc.schedule.wanted import Wanted
from modelcc.schedule.workload import program_key
from modelcc.targets.base import GraphPasses, TargetOptions, TensorPasses
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.passes.assign_layouts import AssignLayouts
from modelcc.targets.cpu.passes.horizontal_fusion import HorizontalFusion
from modelcc.targets.cpu.passes.pack_channels import PackChannels
from modelcc.targets.cpu.passes.pack_operands import PackOperands
from modelcc.targets.cpu.passes.pack_pairs import PackPairs
from modelcc.targets.cpu.passes.requantization import Requantization
from modelcc.targets.cpu.passes.split_sums import SplitSums
from modelcc.targets.cpu.passes.strassen import WORD as STRASSEN
from modelcc.targets.cpu.passes.strassen import Strassen
from modelcc.targets.cpu.passes.strassen_cost import StrassenCost
from modelcc.targets.cpu.passes.wide_operands import WideOperands
from modelcc.targets.cpu.passes.winograd import WORDS as TILES
from modelcc.targets.cpu.passes.winograd import Winograd
from modelcc.targets.cpu.passes.winograd_cost import WinogradCost
from modelcc.targets.cpu.scheduled_kernel import PARALLEL_CHUNKS
from modelcc.targets.isa.amx import DEPTHS

BLOCK = 16
"""Channels, or columns of an operand, per block of a layout, unless others were chosen for the
former."""

VECTORS, CHANNELS, CONTRACTIONS = "vectors", "channels", "contractions"
CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {VECTORS: ("all",), CHANNELS: ("8", "16", "32"), CONTRACTIONS: ("apart", "fused")}
)
"""Choices for a model as a whole: all vectors and registers of the instruction set, even if the
machine's model has fewer; the number of channels per block; and whether two contractions with row
operations between them are fused, by default where that is estimated to pay."""

ATTENTION_ROWS = 8
"""Minimum number of rows of scores that are computed at once."""

SCORES_BYTES = 512 << 10
"""Bytes of the L2 cache for these rows."""

ANY_SHARE = 1 << 20
"""A factor on the scores of a row that makes them outnumber its summands and results."""

PACKED_ROWS = 12
"""Rows from which on it pays to pack a matrix computed at run time that exceeds its share of the L2
cache: unpacked, its vectors come from lower levels for every tile of rows, and products took up to
2.4 times as long (1024 x 1024 of f32)."""

NEAR_ROWS = 192
"""Rows from which on it pays to pack a matrix within that share.  A copy takes as long as 12 rows
of the product, or less, which gains 6 % and more (256-bit vectors and wider)."""

PARALLEL_FROM = 1 << 15
"""Elements of unstructured work that are worth several threads."""

ELEMENTS = 8
"""Maximum number of 32-bit elements per vector in such work: one register of 256 bits, or two
independent ones of 128.  Two of 256 bits exceed the registers of transforms."""


def scheduled_for(machine: CpuModel, wanted: Wanted) -> CpuModel:
    """The model for default schedules: ``machine``, or its instruction set if that was chosen."""
    return machine.instruction_set if wanted.model.get(VECTORS) == "all" else machine


def capacity_of(machine: CpuModel) -> Capacity:
    """The capacity of ``machine`` for ops that write their own loops."""
    lanes = machine.lanes(32)
    several = min(ELEMENTS, 2 * lanes) if lanes > 1 else 1
    return Capacity(lanes=several, parallel_from=PARALLEL_FROM, shares=PARALLEL_CHUNKS)


def graph_passes(pairs_shorts: bool, multiplies_bytes: bool = False) -> GraphPasses:
    """Rewrites of graphs; ``pairs_shorts``: small integers are multiplied in pairs of i16;
    ``multiplies_bytes``: there are instructions for dot products of bytes."""
    return GraphPasses(
        functions=(TabulateFunctions(),),
        quantised=(IntegerContractions(bytes=not pairs_shorts, dots=multiplies_bytes),),
        convolutions=(MergeGroups(BLOCK),),
        channels=BLOCK,
    )


def tensor_passes(
    machine: CpuModel,
    pairs_shorts: bool,
    options: TargetOptions,
    wanted: Wanted,
    multiplies_bytes: bool = False,
) -> TensorPasses:
    """Rewrites of tensor programs for ``machine``, by default or as ``wanted``.

    ``multiplies_bytes``: there are instructions for dot products of bytes.
    """
    channels = _channels(options, wanted)
    return TensorPasses(
        layouts=(
            WideOperands(_terms_at_once(machine)),
            PackChannels(BLOCK, bytes=not pairs_shorts),
            *_layouts(options, channels, machine.multiplies_tiles),
            PackPairs(BLOCK, bytes=multiplies_bytes),
        ),
        operands=(PackOperands(BLOCK), SplitSums(machine.lanes(32))),
        kernels=(
            *_fused_contractions(wanted.model.get(CONTRACTIONS, "")),
            HorizontalFusion(threads=machine.threads),
            SplitBlocks(),
            *_fewer_multiplications(machine, options, channels, wanted.algorithms),
            # Operands computed at run time, in another order than they are read in, by the cache
            # they fit.
            PackOperands(BLOCK, rows=PACKED_ROWS, near=machine.l2_bytes // 2),
            PackOperands(BLOCK, rows=NEAR_ROWS, near=machine.l1_bytes),
            Requantization(),
        ),
    )


def alternatives(
    program: TensorProgram, machine: CpuModel, options: TargetOptions, wanted: Wanted
) -> Mapping[str, tuple[str, ...]]:
    """Keys of contractions of ``program`` by the algorithms that could compute them and do not."""
    channels = _channels(options, wanted)
    found: dict[str, dict[str, None]] = {}
    for step in _fewer_multiplications(machine, options, channels, {}):
        for kernel in (i for i in program.items if isinstance(i, Kernel)):
            for word in _words(step, kernel, program):
                found.setdefault(word, {})[program_key(kernel, program)] = None
    return {word: tuple(keys) for word, keys in found.items()}


def _words(step: Winograd | Strassen, kernel: Kernel, program: TensorProgram) -> Iterator[str]:
    if isinstance(step, Strassen):
        yield from (STRASSEN,) if step.admits(kernel, program) else ()
        return
    convolution = step.matched(kernel, program)
    if convolution is not None:
        yield from (word for word, m in TILES.items() if step.admitted(convolution, m))


def _channels(options: TargetOptions, wanted: Wanted) -> int:
    if options.optimize == 0 and CHANNELS in wanted.given.model:
        reason = "channels of a model cannot be chosen at level 0, where tensors lie as it says"
        raise ModelError(reason, (), "delete the line, or compile at a higher level")
    return int(wanted.model.get(CHANNELS, BLOCK))


def _fused_contractions(asked: str) -> Iterator[Pass[TensorProgram]]:
    """``asked``: none are fused if ``apart``; if ``fused``, those with few rows or scores are,
    too."""
    if asked == "fused":
        yield FuseContractions(ATTENTION_ROWS, SCORES_BYTES, rows=1, share=ANY_SHARE)
    elif asked != "apart":
        yield FuseContractions(ATTENTION_ROWS, SCORES_BYTES)


def _terms_at_once(machine: CpuModel) -> int:
    """Terms of bf16 products by constants per instruction; 0 if there is none."""
    if machine.multiplies_tiles:
        return min(DEPTHS)
    return DOT2.operands[1].each if machine.multiplies_bf16 else 0


def _layouts(options: TargetOptions, channels: int, tiles: bool) -> Iterator[Pass[TensorProgram]]:
    """At level 0, tensors keep the model's layout, for inspection.  A row of ``tiles`` has two
    blocks of bf16."""
    if options.optimize > 0:
        yield AssignLayouts(channels, several=2 if tiles else 1)


def _fewer_multiplications(
    machine: CpuModel, options: TargetOptions, channels: int, asked: Mapping[str, str]
) -> Iterator[Winograd | Strassen]:
    if options.winograd and options.optimize > 0:
        yield Winograd(WinogradCost(machine), channels, asked)
    if options.strassen and options.optimize > 0:
        yield Strassen(StrassenCost(machine), asked)
