"""Parser of ELF object files (System V ABI, chapter 4; 64 bit, little endian)."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

MACHINES: Mapping[str, int] = MappingProxyType(
    {"x86_64": 62, "aarch64": 183, "riscv64": 243}
)  # platform.machine() -> e_machine

UNDEFINED, ABSOLUTE, COMMON = 0, 0xFFF1, 0xFFF2
"""Special section indices of symbols."""

NO_BITS = 8
"""Type of a section of zeros without data in the file (SHT_NOBITS)."""

WRITABLE, LOADED, EXECUTABLE, THREAD_LOCAL = 1, 2, 4, 0x400
"""Flags of sections."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")
_IDENTITY = b"\x7fELF\x02\x01"  # ELF, 64 bit, little endian
_SYMTAB, _RELA = 2, 4
_LOCAL, _WEAK = 0, 2
_HIDDEN = 2


class NotElfError(Exception):
    """Bytes that are not an ELF object file, or a truncated one."""


@dataclass(frozen=True)
class Section:
    """A section's header; ``info`` of relocations is the section that they apply to."""

    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int


@dataclass(frozen=True)
class Symbol:
    """A name and its address: ``value`` bytes into ``section``, or undefined."""

    name: str
    section: int
    value: int
    local: bool
    weak: bool
    hidden: bool


@dataclass(frozen=True)
class Relocation:
    """Bytes ``offset`` of ``section`` get an address computed from ``symbol`` and ``addend``."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class ObjectFile:
    """An object file; ``machine`` is ELF's code of the processor."""

    contents: bytes
    machine: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]

    @property
    def defined(self) -> tuple[str, ...]:
        """Global names that the object exports."""
        own = (s for s in self.symbols if s.section != UNDEFINED and not s.local and s.name)
        return tuple(symbol.name for symbol in own if not symbol.hidden)

    @property
    def undefined(self) -> tuple[str, ...]:
        """Global names that the object imports (without weak ones)."""
        other = (s for s in self.symbols if s.section == UNDEFINED and not s.local and s.name)
        made = "_GLOBAL_OFFSET_TABLE_"  # defined by the linker
        return tuple(symbol.name for symbol in other if not symbol.weak and symbol.name != made)


def read_object(contents: bytes) -> ObjectFile:
    """The object file in ``contents``; raises NotElfError."""
    if contents[: len(_IDENTITY)] != _IDENTITY:
        raise NotElfError("not a 64-bit little-endian ELF object file")
    try:
        return _read(contents)
    except (struct.error, ValueError, IndexError) as error:
        raise NotElfError("an ELF object file that is cut off or damaged") from error


def _read(contents: bytes) -> ObjectFile:
    header: Sequence[int] = _HEADER.unpack_from(contents)
    machine, start, count = header[2], header[6], header[12]
    sections = tuple(_section(contents, start + n * _SECTION.size) for n in range(count))
    symbols: list[Symbol] = []
    relocations: list[Relocation] = []
    for section in sections:
        if section.kind != NO_BITS and section.offset + section.size > len(contents):
            raise ValueError("a section ends behind the file")
        if section.kind == _SYMTAB:
            symbols += _symbols(contents, section, sections[section.link].offset)
        elif section.kind == _RELA:
            relocations += _relocations(contents, section)
    return ObjectFile(contents, machine, sections, tuple(symbols), tuple(relocations))


def _section(contents: bytes, at: int) -> Section:
    values: Sequence[int] = _SECTION.unpack_from(contents, at)
    _, kind, flags, _, offset, size, link, info, alignment, _ = values
    return Section(kind, flags, offset, size, link, info, max(1, alignment))


def _symbols(contents: bytes, table: Section, strings: int) -> list[Symbol]:
    found: list[Symbol] = []
    block = contents[table.offset : table.offset + table.size]
    for name_offset, info, other, section, value, _ in _SYMBOL.iter_unpack(block):
        start = strings + name_offset
        name = contents[start : contents.index(b"\0", start)].decode()
        binding, hidden = info >> 4, other & 3 == _HIDDEN
        found.append(Symbol(name, section, value, binding == _LOCAL, binding == _WEAK, hidden))
    return found


def _relocations(contents: bytes, table: Section) -> list[Relocation]:
    block = contents[table.offset : table.offset + table.size]
    return [
        Relocation(table.info, offset, kind, symbol, addend)
        for offset, kind, symbol, addend in _RELOCATION.iter_unpack(block)
    ]
