"""NVIDIA's GPU architectures that code is generated for, and machine code for one of them followed
by its PTX, as artifacts store it."""

from __future__ import annotations

import struct
import zlib

ARCHITECTURES = "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120"
"""From the oldest on; with an ``a``, whose code runs on just this one."""

_MARK = b"PTX behind"
_TAIL = struct.Struct("<Q10s")
"""The end of the code: bytes of the compressed PTX before it, and a magic string."""


def architecture_of(major: int, minor: int) -> str | None:
    """The architecture to compile for on a GPU of this compute capability: the one with
    architecture-specific instructions if there is such a one, else the newest that it runs; None if
    it is older than all."""
    own = f"sm_{major}{minor}a"
    if own in ARCHITECTURES:
        return own
    older = (name for name in ARCHITECTURES if not name.endswith("a"))
    fitting = [name for name in older if int(name.removeprefix("sm_")) <= 10 * major + minor]
    return fitting[-1] if fitting else None


def with_ptx(code: bytes, ptx: str) -> bytes:
    """Machine code, and PTX for drivers that do not accept it."""
    packed = zlib.compress(ptx.encode())
    return code + packed + _TAIL.pack(len(packed), _MARK)


def machine_code(code: bytes) -> bytes:
    """What is loaded first; PTX, if there is nothing else."""
    return code[: len(code) - _behind(code)]


def ptx_behind(code: bytes) -> bytes:
    """The PTX after machine code; empty if there is none."""
    behind = _behind(code)
    return zlib.decompress(code[len(code) - behind : -_TAIL.size]) if behind else b""


def _behind(code: bytes) -> int:
    if len(code) < _TAIL.size:
        return 0
    size, mark = _TAIL.unpack_from(code, len(code) - _TAIL.size)
    return size + _TAIL.size if mark == _MARK else 0
