"""Kernels that may be launched before the one before them has ended, in LLVM text for NVIDIA's
sm_90 and later (programmatic dependent launch).

    define internal void @k.body(ptr noalias readonly %x, ptr noalias %y) alwaysinline
    define ptx_kernel void @k(ptr %x, ptr %y)      ; waits, then calls it

Every thread of every kernel waits before it reads or writes memory that others have, until the
kernel before has ended and what it wrote is seen (PTX ISA, griddepcontrol).  That one has waited
likewise, so all that came before it has ended, too: what a kernel reads has been written, and what
it writes over, in memory that tensors share, has been read.

What is no constant may be written by others while the kernel is there, so its own parameters are
neither ``noalias`` nor ``readonly``: of that LLVM would make loads by way of a cache that is not
kept coherent (``ld.global.nc``), and it might move them before the wait.  The parameters of the
function within are both, which stays known, as ``alias.scope``, where it is put into the kernel.

Maps of tensors of which boxes are copied are the kernel's own, and fetched before it waits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from modelcc.targets.llvm.values import quoted

WAITING = "@kernels_wait = addrspace(1) constant i32 1"
"""Tells whoever loads a module that its kernels wait."""

LAUNCH = 'call void asm sideeffect "griddepcontrol.launch_dependents;", ""()'
"""The next kernel may be launched as soon as all groups have come here, or have ended."""

_WAIT = 'call void asm sideeffect "griddepcontrol.wait;", "~{memory}"() convergent'
_FETCH = (
    "{ .reg .pred first; .reg .b32 x, y; mov.u32 x, %tid.x; mov.u32 y, %tid.y; or.b32 x, x, y; "
    "setp.eq.u32 first, x, 0; @first prefetch.tensormap [$0]; }"
)
_ALONE = re.compile(r" (?:noalias|readonly|captures\(none\))(?= )")
_MAP = re.compile(r"^ptr byval[^%]*")
_TYPE = re.compile(r"ptr(?: addrspace\(\d+\))?(?= )|[^%]*[^% ]")


def own_parameter(parameter: str, constant: bool) -> str:
    """What a kernel says of a parameter, others being what the function within knows."""
    return parameter if constant else _ALONE.sub("", parameter)


def waiting_kernel(name: str, head: str, parameters: Sequence[str], body: str) -> str:
    """A kernel that begins with ``head``, waits, and does ``body`` with its ``parameters``."""
    inner = f"@{quoted(name + '.body')}"
    within = [_MAP.sub("ptr ", parameter) for parameter in parameters]
    given = ", ".join(map(_argument, within))
    maps = [_name(parameter) for parameter in parameters if _MAP.match(parameter)]
    first = [line for number, one in enumerate(maps) for line in _fetched(number, one)]
    lines = "\n  ".join([*first, _WAIT, f"call void {inner}({given})", "ret void"])
    return (
        f"define internal void {inner}({', '.join(within)}) alwaysinline #0 {{\n{body}\n}}\n\n"
        f"{head} {{\n  {lines}\n}}"
    )


def _argument(parameter: str) -> str:
    found = _TYPE.match(parameter)
    assert found is not None
    return f"{found.group()} {_name(parameter)}"


def _name(parameter: str) -> str:
    return parameter[parameter.index("%") :]


def _fetched(number: int, name: str) -> tuple[str, str]:
    """By one thread."""
    place = f"%.place{number}"
    call = f'call void asm sideeffect "{_FETCH}", "l"(i64 {place})'
    return f"{place} = ptrtoint ptr {name} to i64", call
