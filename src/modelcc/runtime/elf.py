"""What an ELF object file defines and needs (System V ABI, chapter 4; 64 bit, little endian)."""

import struct
from dataclasses import dataclass
from typing import cast

MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243}  # platform.machine() -> e_machine

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_IDENTITY = b"\x7fELF\x02\x01"  # ELF, 64 bit, little endian
_SYMTAB = 2
_LOCAL, _WEAK = 0, 2
_HIDDEN = 2


class NotElfError(Exception):
    """Bytes that are not an ELF object file, or not a whole one."""


@dataclass(frozen=True)
class ObjectSymbols:
    """Global names of an object file; `machine` is ELF's number for the processor."""

    machine: int
    defined: tuple[str, ...]
    undefined: tuple[str, ...]


def read_symbols(contents: bytes) -> ObjectSymbols:
    """The names an object file defines for others, and those it needs (weak ones left out).

    Raises NotElfError.
    """
    if contents[: len(_IDENTITY)] != _IDENTITY:
        raise NotElfError("not a 64-bit little-endian ELF object file")
    try:
        return _read(contents)
    except (struct.error, ValueError, IndexError) as error:
        raise NotElfError("an ELF object file that is cut off or damaged") from error


def _read(contents: bytes) -> ObjectSymbols:
    header = _HEADER.unpack_from(contents)
    machine, offset, count = header[2], header[6], header[12]
    sections = [_SECTION.unpack_from(contents, offset + n * _SECTION.size) for n in range(count)]
    defined: list[str] = []
    undefined: list[str] = []
    for section in sections:
        if section[1] == _SYMTAB:
            strings = cast(int, sections[section[6]][4])
            for at in range(section[4], section[4] + section[5], _SYMBOL.size):
                _sort(contents, at, strings, defined, undefined)
    return ObjectSymbols(machine, tuple(defined), tuple(undefined))


def _sort(contents: bytes, at: int, strings: int, defined: list[str], undefined: list[str]) -> None:
    """Append the symbol at byte `at` to the list it belongs to, if any."""
    name_offset, info, other, section, _, _ = _SYMBOL.unpack_from(contents, at)
    binding = info >> 4
    if binding == _LOCAL or not name_offset:
        return
    start = strings + name_offset
    name = contents[start : contents.index(b"\0", start)].decode()
    if section:
        if other & 3 != _HIDDEN:
            defined.append(name)
    elif binding != _WEAK and name != "_GLOBAL_OFFSET_TABLE_":  # the linker makes that one
        undefined.append(name)
