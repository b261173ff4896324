"""Resources of kernels, read from their machine code.

A cubin is an ELF file; its section ``.nv.info`` has attributes of kernels, each a format, a number
and, in the format of sized values, a size and the value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from modelcc.runtime.linking.elf import NotElfError, ObjectFile, read_object
from modelcc.targets.kernel_use import CompiledKernel

_INFO = 0x7000_0000
"""The type of attribute sections; that of the whole file is linked to no other section."""

_SIZED = 4
_FRAME, _REGISTERS = 0x11, 0x2F
"""Attributes: the symbol of a kernel, and bytes of its stack or registers of a thread."""


def compiled_kernels(code: bytes) -> dict[str, CompiledKernel]:
    """Resources by symbols; empty if there is no machine code, as in PTX."""
    try:
        file = read_object(code)
    except NotElfError:
        return {}
    numbers: dict[str, dict[int, int]] = {}
    for attribute, value in _attributes(file):
        if attribute in (_FRAME, _REGISTERS):
            symbol, number = struct.unpack("<II", value)
            numbers.setdefault(file.symbols[symbol].name, {})[attribute] = number
    return {
        name: CompiledKernel(found[_REGISTERS], found.get(_FRAME, 0))
        for name, found in numbers.items()
        if _REGISTERS in found
    }


def _attributes(file: ObjectFile) -> Iterator[tuple[int, bytes]]:
    """Numbers and values of the file's own attributes."""
    for section in file.sections:
        if section.kind != _INFO or section.info:
            continue
        at, end = section.offset, section.offset + section.size
        while at < end:
            form, attribute, size = struct.unpack_from("<BBH", file.contents, at)
            at += 4
            if form == _SIZED:
                yield attribute, file.contents[at : at + size]
                at += size
