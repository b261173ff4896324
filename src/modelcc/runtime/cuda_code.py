"""Machine code for one architecture of NVIDIA's, followed by its PTX, as artifacts store it."""

from __future__ import annotations

import struct
import zlib

_MARK = b"PTX behind"
_TAIL = struct.Struct("<Q10s")
"""The end of the code: bytes of the compressed PTX before it, and a magic string."""


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
