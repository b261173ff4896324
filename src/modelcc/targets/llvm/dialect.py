"""What differs between GPUs in LLVM IR, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from modelcc.ir.loop import Function
from modelcc.targets.isa import amd_mfma, amd_wmma
from modelcc.targets.isa.nvidia_mma import MATRIX_INSTRUCTIONS, MatrixInstruction
from modelcc.targets.isa.nvidia_wgmma import TILE_INSTRUCTIONS, TileInstruction
from modelcc.targets.isa.wave_fragments import WaveMatrices

ROW = 16
"""Threads of a row on AMD's GPUs, of which waves have two or four."""

ACROSS = "i32 1985229328, i32 -19088744, i1 false, i1 false"
"""Operands of ``permlanex16``: each thread gets the register of the same lane in the other row."""


@dataclass(frozen=True)
class Word:
    """A call with a result of type ``result``, and its declaration."""

    result: str
    call: str
    declaration: str


@dataclass(frozen=True)
class LlvmGroups:
    """Constructs of LLVM IR for a machine.

    Kernels have a calling ``convention`` and an attribute of their ``size`` (``{}`` for the number
    of threads in each of three dimensions, ``{total}`` for their product).  ``group`` and
    ``thread`` are indices in each dimension, ``barriers`` are called one after the other.
    ``memory``, ``shared`` and ``private`` are address spaces, ``generic`` contains all of them.
    Static shared memory is limited to ``shared_bytes``; the launch sets the size of dynamic one.
    ``matrices`` are routines that a warp of ``warp`` threads has instructions for, ``waves`` those
    of AMD's; with ``copies``, copies are asynchronous.  ``exchanges`` is the instruction of warp
    shuffles; with ``rows_exchange``, threads :data:`ROW` apart have one that does not pass through
    shared memory.  ``meeting`` is a barrier that returns whether any thread's predicate holds;
    arrivals need one.  With ``tiles``, the machine copies boxes of tensors (TMA), and warpgroups
    have these instructions.  Kernels that may be launched ``ahead`` begin before the previous one
    has ended, and wait for it (programmatic dependent launch).  A grid has up to ``across`` groups
    in its second and third dimension (0: any number); ``row`` is the number in the second one.
    ``flags`` are at the end of a module.
    """

    name: str
    convention: str
    size: str
    group: tuple[Word, Word, Word]
    thread: tuple[Word, Word, Word]
    barriers: tuple[Word, ...]
    memory: int = 1
    shared: int = 3
    private: int = 0
    generic: int = 0
    shared_bytes: int | None = None
    warp: int = 0
    matrices: Mapping[Function, MatrixInstruction] = field(
        default_factory=dict[Function, MatrixInstruction], hash=False
    )
    waves: WaveMatrices | None = field(default=None, hash=False)
    copies: bool = False
    exchanges: Literal["", "shfl", "bpermute"] = ""
    rows_exchange: bool = False
    tiles: Mapping[Function, TileInstruction] = field(
        default_factory=dict[Function, TileInstruction], hash=False
    )
    meeting: Word | None = None
    ahead: bool = False
    across: int = 0
    row: Word | None = None
    flags: str = ""


def _sreg(name: str) -> tuple[Word, Word, Word]:
    full = (f"@llvm.nvvm.read.ptx.sreg.{name}.{axis}()" for axis in "xyz")
    x, y, z = (Word("i32", f"i32 {one}", f"declare i32 {one}") for one in full)
    return x, y, z


def _amd(name: str) -> tuple[Word, Word, Word]:
    full = (f"@llvm.amdgcn.{name}.{axis}()" for axis in "xyz")
    x, y, z = (Word("i32", f"i32 {one}", f"declare i32 {one}") for one in full)
    return x, y, z


def _spirv(name: str) -> tuple[Word, Word, Word]:
    declared = f"declare spir_func i64 @{name}(i32)"
    x, y, z = (Word("i64", f"spir_func i64 @{name}(i32 {n})", declared) for n in range(3))
    return x, y, z


def _effect(call: str, declaration: str) -> Word:
    return Word("void", call, declaration)


NVPTX = LlvmGroups(
    name="nvptx",
    convention="ptx_kernel",
    size='"nvvm.reqntid"="{},{},{}"',
    group=_sreg("ctaid"),
    thread=_sreg("tid"),
    barriers=(
        _effect(
            "void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",
            "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)",
        ),
    ),
    shared_bytes=48 << 10,
    across=65535,
    row=_sreg("nctaid")[1],
    warp=32,
    matrices=MATRIX_INSTRUCTIONS,
    copies=True,
    exchanges="shfl",
    meeting=Word(
        "i1",
        "i1 @llvm.nvvm.barrier.cta.red.or.aligned.all(i32 0, i1 {})",
        "declare i1 @llvm.nvvm.barrier.cta.red.or.aligned.all(i32, i1)",
    ),
)

NVPTX_90 = replace(NVPTX, ahead=True)
"""sm_90 and later: programmatic dependent launch."""

NVPTX_90A = replace(NVPTX_90, tiles=TILE_INSTRUCTIONS)
"""sm_90a, the only architecture with wgmma."""

AMDGPU = LlvmGroups(
    name="amdgpu",
    convention="amdgpu_kernel",
    size='"amdgpu-flat-work-group-size"="{total},{total}" "amdgpu-agpr-alloc"="0" '
    '"amdgpu-no-implicitarg-ptr" "amdgpu-no-dispatch-ptr" "amdgpu-no-dispatch-id" '
    '"amdgpu-no-queue-ptr" '
    "!reqd_work_group_size !{{i32 {}, i32 {}, i32 {}}}",
    group=_amd("workgroup.id"),
    thread=_amd("workitem.id"),
    barriers=(_effect("void @llvm.amdgcn.s.barrier()", "declare void @llvm.amdgcn.s.barrier()"),),
    private=5,
    warp=64,
    exchanges="bpermute",
    flags='!llvm.module.flags = !{!0}\n!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}',
)
"""Its barrier alone does not order memory: fences surround it.  Accumulation registers (AGPRs) are
not used: LLVM 22 would move a loop's sums to and from them in each round.  Kernels use nothing of
the launch except their arguments.  Code objects have version 5, which ROCm accepts since its
release 6; LLVM 22 would make them version 6."""

AMDGPU_CHIPS: Mapping[str, LlvmGroups] = {
    chip: replace(
        AMDGPU, waves=waves, warp=waves.layout.wave, rows_exchange=waves.layout.wave == 2 * ROW
    )
    for known in (amd_mfma, amd_wmma)
    for chip, waves in known.WAVE_MATRICES.items()
}
"""By architecture, with matrix instructions; gfx11 and gfx12 have waves of 32 threads, as LLVM
compiles for them."""

SPIRV = LlvmGroups(
    name="spirv",
    convention="spir_kernel",
    size="!reqd_work_group_size !{{i32 {}, i32 {}, i32 {}}}",
    group=_spirv("_Z12get_group_idj"),
    thread=_spirv("_Z12get_local_idj"),
    barriers=(
        _effect(
            "spir_func void @_Z7barrierj(i32 3)",
            "declare spir_func void @_Z7barrierj(i32) convergent",
        ),
    ),
    generic=4,
)
"""The functions are OpenCL's, with C++ name mangling.  Barriers are convergent, or LLVM would
duplicate them for divergent branches."""
