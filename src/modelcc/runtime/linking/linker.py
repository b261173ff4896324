"""A linker in memory for x86-64 objects, so that running a model needs no LLVM.

Sections are laid out as code, constants, variables, each starting on its own page, and relocated by
the System V ABI for x86-64 (chapter 4.4).  External calls, whose displacement may exceed 32 bits,
go through stubs after the code; a table of addresses (GOT) follows these.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from modelcc.runtime.errors import LoadError
from modelcc.runtime.linking.elf import (
    ABSOLUTE,
    COMMON,
    EXECUTABLE,
    LOADED,
    NO_BITS,
    THREAD_LOCAL,
    UNDEFINED,
    WRITABLE,
    ObjectFile,
    Relocation,
    Section,
    Symbol,
)

_ABS64, _PC32, _PLT32, _GOTPCREL, _PC64 = 1, 2, 4, 9, 24
_GOTPCRELX, _REX_GOTPCRELX = 41, 42
_NONE = 0
_GOT = (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX)
_RELATIVE = (_PC32, _PLT32)
_REACH = 1 << 31
_JUMP = b"\xff\x25\x02\x00\x00\x00\x0f\x0b"  # jmp *2(%rip); ud2; then the address
_JUMP_SIZE = 16
_SLOT_SIZE = 8
_READ, _READ_WRITE, _READ_EXECUTE = 1, 3, 5  # PROT_ of mprotect

Resolve = Callable[[str], int]


@dataclass(frozen=True)
class Linked:
    """Linked code: its pages and the addresses of its definitions."""

    pages: mmap.mmap
    addresses: Mapping[str, int]


def link(objects: Sequence[ObjectFile], resolve: Resolve) -> Linked:
    """``objects`` in executable memory, freed with the result.

    ``resolve`` returns the address of a name that no object defines, 0 if there is none.
    Raises LoadError for what only a static linker can do.
    """
    places, bounds = _layout(objects)
    needed = {s.name for o in objects for s in o.symbols if s.section == UNDEFINED and s.name}
    room = _round(len(needed) * _JUMP_SIZE + _entries(objects) * _SLOT_SIZE)
    pages = _allocated(bounds[-1] + room)
    base = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    image = _Image(objects, places, pages, base, bounds[-1])
    for number, section, at in image.loaded():
        if section.kind != NO_BITS:
            contents = objects[number].contents
            pages[at : at + section.size] = contents[section.offset : section.offset + section.size]
    image.define(resolve)
    for number, item in enumerate(objects):
        for relocation in item.relocations:
            image.relocate(number, relocation)
    # Stubs must be executable, and the table may be, too: it is not written to any more.
    _protect(base, bounds[0], _READ_EXECUTE)
    _protect(base + bounds[0], bounds[1] - bounds[0], _READ)
    _protect(base + bounds[2], room, _READ_EXECUTE)
    exported = {name for item in objects for name in item.defined}
    return Linked(pages, {name: image.globals[name] for name in exported})


def _layout(objects: Sequence[ObjectFile]) -> tuple[dict[tuple[int, int], int], list[int]]:
    """Offset of each section (object, section), and the ends of code, constants and variables."""
    places: dict[tuple[int, int], int] = {}
    bounds: list[int] = []
    end = 0
    for wanted in (EXECUTABLE, 0, WRITABLE):
        for number, item in enumerate(objects):
            for index, section in enumerate(item.sections):
                if not section.flags & LOADED:
                    continue
                if section.flags & THREAD_LOCAL:
                    raise LoadError("cannot link the compiled code: it has thread-local variables")
                if section.flags & (EXECUTABLE | WRITABLE) == wanted:
                    end = -(-end // section.alignment) * section.alignment
                    places[number, index] = end
                    end += section.size
        end = _round(end)
        bounds.append(end)
    return places, bounds


def _entries(objects: Sequence[ObjectFile]) -> int:
    """Upper bound of the entries in the address table."""
    return sum(r.kind in _GOT for item in objects for r in item.relocations)


@dataclass
class _Image:
    """Sections in memory during linking."""

    objects: Sequence[ObjectFile]
    places: Mapping[tuple[int, int], int]
    pages: mmap.mmap
    base: int
    end: int
    globals: dict[str, int] = field(default_factory=dict[str, int])
    jumps: dict[int, int] = field(default_factory=dict[int, int])
    slots: dict[int, int] = field(default_factory=dict[int, int])

    def loaded(self) -> Iterator[tuple[int, Section, int]]:
        """(object, section, offset) of sections in memory."""
        for (number, index), at in self.places.items():
            yield number, self.objects[number].sections[index], at

    def define(self, resolve: Resolve) -> None:
        """Resolves the address of every global name."""
        symbols = [(n, s) for n, o in enumerate(self.objects) for s in o.symbols if not s.local]
        for number, symbol in symbols:
            if symbol.section != UNDEFINED:
                self.globals[symbol.name] = self._place(number, symbol)
        for _, symbol in symbols:
            if symbol.section == UNDEFINED and symbol.name not in self.globals:
                self.globals[symbol.name] = resolve(symbol.name)

    def _place(self, number: int, symbol: Symbol) -> int:
        if symbol.section == ABSOLUTE:
            return symbol.value
        if symbol.section == COMMON or (number, symbol.section) not in self.places:
            raise LoadError(
                f"cannot link the compiled code: '{symbol.name}' is in no section that is loaded"
            )
        return self.base + self.places[number, symbol.section] + symbol.value

    def relocate(self, number: int, relocation: Relocation) -> None:
        """Applies one relocation."""
        start = self.places.get((number, relocation.section))
        if start is None or relocation.kind == _NONE:  # debug information
            return
        symbol = self.objects[number].symbols[relocation.symbol]
        target = self._place(number, symbol) if symbol.local else self.globals[symbol.name]
        at = start + relocation.offset
        here = self.base + at
        match relocation.kind:
            case kind if kind in _GOT:
                self._put_distance(at, self._slot(target) + relocation.addend - here, symbol)
            case kind if kind in _RELATIVE:
                distance = target + relocation.addend - here
                if kind == _PLT32 and not -_REACH <= distance < _REACH:
                    distance = self._jump(target) + relocation.addend - here
                self._put_distance(at, distance, symbol)
            case kind if kind == _ABS64:
                struct.pack_into("<Q", self.pages, at, target + relocation.addend & (1 << 64) - 1)
            case kind if kind == _PC64:
                struct.pack_into("<q", self.pages, at, target + relocation.addend - here)
            case kind:
                raise LoadError(f"cannot link the compiled code: relocation {kind} is unknown")

    def _put_distance(self, at: int, distance: int, symbol: Symbol) -> None:
        if not -_REACH <= distance < _REACH:
            raise LoadError(f"cannot link the compiled code: '{symbol.name}' is out of reach")
        struct.pack_into("<i", self.pages, at, distance)

    def _jump(self, target: int) -> int:
        """Address of a stub that jumps to ``target``."""
        found = self.jumps.get(target)
        if found is None:
            found = self.jumps[target] = self._append(_JUMP + struct.pack("<Q", target))
        return found

    def _slot(self, target: int) -> int:
        """Address of a table entry that holds ``target``."""
        found = self.slots.get(target)
        if found is None:
            found = self.slots[target] = self._append(struct.pack("<Q", target))
        return found

    def _append(self, data: bytes) -> int:
        at = self.end
        self.pages[at : at + len(data)] = data
        self.end += len(data)
        return self.base + at


def _round(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _allocated(size: int) -> mmap.mmap:
    return mmap.mmap(-1, max(size, mmap.PAGESIZE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _protect(address: int, size: int, mode: int) -> None:
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if size and mprotect(address, size, mode):
        raise LoadError(
            f"the system does not let this process execute code it has loaded (error "
            f"{ctypes.get_errno()} of mprotect); its security policy must allow it"
        )
