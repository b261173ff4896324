"""Sizes of memory as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from modelcc.ir.errors import ModelError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Z]*)")
_UNITS: Mapping[str, int] = MappingProxyType(
    {
        "": 1, "B": 1,
        "K": 2**10, "M": 2**20, "G": 2**30,
        "KIB": 2**10, "MIB": 2**20, "GIB": 2**30,
        "KB": 10**3, "MB": 10**6, "GB": 10**9,
    }
)  # fmt: skip


def bytes_of(text: str, what: str = "") -> int:
    """``64K`` and ``64KiB`` are 65,536 bytes, ``64KB`` 64,000, ``300`` as many.

    :class:`ModelError` says that anything else is no size, after ``what`` has it.
    """
    found = _SIZE.fullmatch(text.strip().upper())
    unit = _UNITS.get(found[2]) if found else None
    if found is None or unit is None:
        hint = "write a number of bytes, or 64K, 1.5MiB, 500MB"
        raise ModelError(f"{what}{text!r} is no size", (), hint)
    return int(float(found[1]) * unit)
