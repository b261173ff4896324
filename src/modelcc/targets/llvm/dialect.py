"""How machines for groups of threads are spoken to in LLVM text, as tables."""

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
"""Threads of a row of AMD's, of which waves have two or four."""

ACROSS = "i32 1985229328, i32 -19088744, i1 false, i1 false"
"""Of ``permlanex16``: each thread takes the register of that at its place in the other row."""


@dataclass(frozen=True)
class Word:
    """A call, of a function that is declared so, with a result of type ``result``."""

    result: str
    call: str
    declaration: str


@dataclass(frozen=True)
class LlvmGroups:
    """What LLVM text for a machine says in its own way.

    Kernels have a calling ``convention`` and stand with what says their ``size`` (``{}`` for the
    number of threads in each of three dimensions, ``{total}`` for their product).  ``group`` and
    ``thread`` are indices in each dimension, ``barriers`` are called one after the other.
    ``memory``, ``shared`` and ``private`` are address spaces, ``generic`` holds all of them.  Of
    shared memory a kernel says at most ``shared_bytes`` itself, whoever launches it the rest.
    ``matrices`` are routines that a warp of ``warp`` threads has instructions for, ``waves`` those
    of AMD's; with ``copies`` it copies asynchronously.  ``exchanges`` is what threads of a warp get
    registers of each other by; with ``rows_exchange`` those that are :data:`ROW` apart have an
    instruction that does not pass through shared memory.  ``meeting`` is a barrier that tells all
    threads whether any of them said so; groups meet only where there is one.  With ``tiles`` it
    copies boxes of tensors, and warps of four as many threads have these instructions.  Kernels
    that may be launched ``ahead`` begin before the one before them has ended, and wait for it.
    ``flags`` stand at the end of a module.
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
"""Of sm_90 and later: programmatic dependent launch."""

NVPTX_90A = replace(NVPTX_90, tiles=TILE_INSTRUCTIONS)
"""Of sm_90a, which alone has them."""

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
"""Its barrier alone does not order memory: fences stand around it.  Registers that only matrix
cores reach (AGPRs) are left alone: LLVM 22 would move a loop's sums among them in each round.
Kernels take nothing of the launch but their arguments.  Code objects are of version 5, which ROCm
takes since its release 6; LLVM 22 would make them of version 6."""

AMDGPU_CHIPS: Mapping[str, LlvmGroups] = {
    chip: replace(
        AMDGPU, waves=waves, warp=waves.layout.wave, rows_exchange=waves.layout.wave == 2 * ROW
    )
    for known in (amd_mfma, amd_wmma)
    for chip, waves in known.WAVE_MATRICES.items()
}
"""By their instructions for matrices; those of gfx11 and gfx12 have waves of 32 threads, as LLVM
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
"""The functions are OpenCL's, by the names that C++ would give them.  All threads must meet at the
same barrier, of which LLVM would else make one for those that go another way."""
