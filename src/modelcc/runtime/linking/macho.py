"""Symbol names of Mach-O object files, which LLVM emits and links on macOS (64 bit, little endian).

The structures are those of Apple's headers ``mach-o/loader.h`` and ``mach-o/nlist.h``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

PROCESSORS: Mapping[str, int] = MappingProxyType({"x86_64": 0x01000007, "aarch64": 0x0100000C})
"""CPU_TYPE_X86_64 and CPU_TYPE_ARM64."""

_MAGIC, _OBJECT, _SYMTAB = 0xFEEDFACF, 1, 2
_HEADER, _COMMAND, _TABLE = struct.Struct("<8I"), struct.Struct("<2I"), struct.Struct("<6I")
_SYMBOL = struct.Struct("<IBBHQ")
_STAB, _PRIVATE, _TYPE, _EXTERNAL, _UNDEFINED = 0xE0, 0x10, 0x0E, 0x01, 0x00
_WEAK = 0x40


class NotMachError(Exception):
    """Bytes that are not a Mach-O object file, or a truncated one."""


@dataclass(frozen=True)
class MachObject:
    """Names as in C, without the leading underscore they have in the file; ``processor`` is Apple's
    code."""

    processor: int
    defined: tuple[str, ...]
    undefined: tuple[str, ...]


def read_mach_object(contents: bytes) -> MachObject:
    """The names that the object file in ``contents`` exports and imports; raises NotMachError."""
    if len(contents) < _HEADER.size or contents[:4] != _MAGIC.to_bytes(4, "little"):
        raise NotMachError("not a 64-bit Mach-O object file, as macOS has them")
    try:
        return _read(contents)
    except (struct.error, ValueError) as error:
        raise NotMachError("a Mach-O object file that is cut off or damaged") from error


def _read(contents: bytes) -> MachObject:
    header: Sequence[int] = _HEADER.unpack_from(contents)
    if header[3] != _OBJECT:
        raise ValueError("no object file")
    defined: list[str] = []
    undefined: list[str] = []
    for name, kind, about in _symbols(contents, header[4]):
        if kind & _STAB or kind & _PRIVATE or not kind & _EXTERNAL:
            continue
        if kind & _TYPE != _UNDEFINED:
            defined.append(name)
        elif not about & _WEAK:
            undefined.append(name)
    return MachObject(header[1], tuple(defined), tuple(undefined))


def _symbols(contents: bytes, commands: int) -> Iterator[tuple[str, int, int]]:
    """Names, with their symbol types and descriptors."""
    at = _HEADER.size
    for _ in range(commands):
        command, size = _COMMAND.unpack_from(contents, at)
        if command == _SYMTAB:
            _, _, first, count, strings, _ = _TABLE.unpack_from(contents, at)
            for number in range(count):
                place, kind, _, about, _ = _SYMBOL.unpack_from(
                    contents, first + number * _SYMBOL.size
                )
                start = strings + place
                name = contents[start : contents.index(b"\0", start)].decode()
                yield name.removeprefix("_"), kind, about
        at += size
