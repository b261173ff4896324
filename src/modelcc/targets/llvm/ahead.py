"""Programmatic dependent launch: kernels that may be launched before the previous one has ended, in
LLVM IR for NVIDIA's sm_90 and later.

    define internal void @k.body(ptr noalias readonly %x, ptr noalias %w, …) alwaysinline
    define ptx_kernel void @k(ptr %x, ptr noalias readonly %w, ptr %y) {
      call void @prefetch(ptr %w, i64 8388608, i32 2)
      call void asm sideeffect "griddepcontrol.wait;", …
      call void @k.body(…)

Every thread of every kernel waits before it accesses memory that others access, until the previous
kernel has ended and its writes are visible (PTX ISA, griddepcontrol).  That one has waited
likewise, so all earlier kernels have ended, too: what a kernel reads has been written, and what it
overwrites, in memory that tensors share, has been read.

Other kernels may write anything but constants while the kernel is resident, so its own parameters
are neither ``noalias`` nor ``readonly``: LLVM would turn loads into non-coherent ones
(``ld.global.nc``), and might move them before the wait.  The parameters of the inner function are
both, which remains known, as ``alias.scope``, when it is inlined.

Tensor maps are the kernel's own, and prefetched before it waits.  So are operands that no earlier
kernel writes: resident groups prefetch them to L2 while the previous kernel computes.  That is no
load: L2 also has what is written meanwhile.  The kernel after an ``early`` one may be launched at
once, and prefetch its own; all others say when there is room (``statements.py``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from modelcc.targets.llvm.values import quoted

WAITING = "@kernels_wait = addrspace(1) constant i32 1"
"""Tells the loader of a module that its kernels wait."""

LAUNCH = 'call void asm sideeffect "griddepcontrol.launch_dependents;", ""()'
"""The next kernel may be launched as soon as all groups have executed this, or have ended."""

PREFETCH = """\
define internal void @prefetch(ptr addrspace(1) %x, i64 %bytes, i32 %resident) #0 {
  %tx = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ty = call i32 @llvm.nvvm.read.ptx.sreg.tid.y()
  %tz = call i32 @llvm.nvvm.read.ptx.sreg.tid.z()
  %txy = or i32 %tx, %ty
  %thread = or i32 %txy, %tz
  %gx = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %gy = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
  %gz = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.z()
  %nx = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %ny = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.y()
  %nz = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.z()
  %planes = mul i32 %gz, %ny
  %row = add i32 %planes, %gy
  %rows = mul i32 %row, %nx
  %group = add i32 %rows, %gx
  %nxy = mul i32 %nx, %ny
  %groups = mul i32 %nxy, %nz
  %units = call i32 asm "mov.u32 $0, %nsmid;", "=r"()
  %room = mul i32 %units, %resident
  %all = icmp ult i32 %groups, %room
  %there = select i1 %all, i32 %groups, i32 %room
  %late = icmp uge i32 %group, %there
  %other = icmp ne i32 %thread, 0
  %group64 = zext i32 %group to i64
  %there64 = zext i32 %there to i64
  %begin = mul i64 %group64, 16384
  %step = mul i64 %there64, 16384
  %none = icmp uge i64 %begin, %bytes
  %idle = or i1 %late, %other
  %nothing = or i1 %idle, %none
  br i1 %nothing, label %end, label %piece
piece:
  %at = phi i64 [ %begin, %0 ], [ %next, %piece ]
  %left = sub i64 %bytes, %at
  %whole = icmp ugt i64 %left, 16384
  %size = select i1 %whole, i64 16384, i64 %left
  %size32 = trunc i64 %size to i32
  %p = getelementptr i8, ptr addrspace(1) %x, i64 %at
  call void asm sideeffect "cp.async.bulk.prefetch.L2.global [$0], $1;", "l,r"(
    ptr addrspace(1) %p, i32 %size32)
  %next = add i64 %at, %step
  %more = icmp ult i64 %next, %bytes
  br i1 %more, label %piece, label %end
end:
  ret void
}"""
"""One thread of each of the first groups, ``resident`` of which fit on an SM, prefetches pieces of
16 KB, strided (PTX ISA, cp.async.bulk.prefetch)."""

PREFETCH_WORDS = tuple(
    f"declare i32 @llvm.nvvm.read.ptx.sreg.{name}.{axis}()"
    for name in ("tid", "ctaid", "nctaid")
    for axis in "xyz"
)
"""Declarations for it."""

_UNIT = 16
"""Prefetched bytes are a multiple of this."""

_WAIT = 'call void asm sideeffect "griddepcontrol.wait;", "~{memory}"() convergent'
_FETCH = (
    "{ .reg .pred first; .reg .b32 x, y; mov.u32 x, %tid.x; mov.u32 y, %tid.y; or.b32 x, x, y; "
    "setp.eq.u32 first, x, 0; @first prefetch.tensormap [$0]; }"
)
_ALONE = re.compile(r" (?:noalias|readonly|captures\(none\))(?= )")
_MAP = re.compile(r"^ptr byval[^%]*")
_TYPE = re.compile(r"ptr(?: addrspace\(\d+\))?(?= )|[^%]*[^% ]")


def own_parameter(parameter: str, constant: bool) -> str:
    """A kernel's parameter, without attributes that only hold for the inner function."""
    return parameter if constant else _ALONE.sub("", parameter)


@dataclass(frozen=True)
class Beginning:
    """What a kernel does before it waits: prefetch the first bytes of ``operands``, which are
    LLVM's names, by groups of which ``resident`` fit on an SM; if ``early``, let the next kernel
    launch."""

    operands: tuple[tuple[str, int], ...] = ()
    resident: int = 1
    early: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """Statements."""
        calls = (
            f"call void @prefetch(ptr addrspace(1) {name}, i64 {size - size % _UNIT}, "
            f"i32 {self.resident})"
            for name, size in self.operands
        )
        return (*calls, LAUNCH) if self.early else tuple(calls)


def waiting_kernel(
    name: str, head: str, parameters: Sequence[str], body: str, beginning: Beginning
) -> str:
    """A kernel that begins with ``head``, waits, and calls ``body`` with its ``parameters``."""
    inner = f"@{quoted(name + '.body')}"
    within = [_MAP.sub("ptr ", parameter) for parameter in parameters]
    given = ", ".join(map(_argument, within))
    maps = [operand_name(parameter) for parameter in parameters if _MAP.match(parameter)]
    first = [line for number, one in enumerate(maps) for line in _fetched(number, one)]
    lines = "\n  ".join(
        [*first, *beginning.lines, _WAIT, f"call void {inner}({given})", "ret void"]
    )
    return (
        f"define internal void {inner}({', '.join(within)}) alwaysinline #0 {{\n{body}\n}}\n\n"
        f"{head} {{\n  {lines}\n}}"
    )


def _argument(parameter: str) -> str:
    found = _TYPE.match(parameter)
    assert found is not None
    return f"{found.group()} {operand_name(parameter)}"


def operand_name(parameter: str) -> str:
    """LLVM's name of a parameter."""
    return parameter[parameter.index("%") :]


def _fetched(number: int, name: str) -> tuple[str, str]:
    """Prefetches a tensor map, by one thread."""
    place = f"%.place{number}"
    call = f'call void asm sideeffect "{_FETCH}", "l"(i64 {place})'
    return f"{place} = ptrtoint ptr {name} to i64", call
