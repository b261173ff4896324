"""Load object files into this process and call what they define."""

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

import llvmlite.binding as llvm

from modelcc.runtime.elf import MACHINES, NotElfError, ObjectSymbols, read_symbols

_LIBRARY = "program"


class LoadError(Exception):
    """Object files that cannot run in this process, and why."""


class NativeCode:
    """Machine code in this process, which stays there as long as this object lives."""

    def __init__(
        self, jit: llvm.LLJIT, linked: llvm.ResourceTracker, addresses: Mapping[str, int]
    ) -> None:
        """Made by `load_objects`; `jit` and `linked` own the memory."""
        self._linked = linked
        self._jit = jit
        self._addresses = dict(addresses)

    @property
    def names(self) -> tuple[str, ...]:
        """Functions and variables that have an address, sorted."""
        return tuple(sorted(self._addresses))

    def address(self, name: str) -> int:
        """Where the function or variable `name` lies in memory."""
        if name not in self._addresses:
            known = ", ".join(self.names) or "nothing"
            raise LoadError(f"the compiled code does not define '{name}'; it defines {known}")
        return self._addresses[name]


def load_objects(objects: Sequence[bytes], symbols: Mapping[str, int] | None = None) -> NativeCode:
    """Link `objects` (ELF) with each other and with this process, and load them.

    What the objects do not define comes from `symbols` (name to address) first, then from the
    process: the C library with its mathematics and threads. Raises LoadError when a name is
    missing or defined twice, or an object is damaged or made for another processor.
    """
    given = dict(symbols or {})
    contents = [_symbols_of(number, data) for number, data in enumerate(objects)]
    defined = [name for names in contents for name in names.defined]
    _refuse_duplicates(defined)
    _refuse_missing(contents, {*defined, *given})
    library = llvm.JITLibraryBuilder()
    for data in objects:
        library.add_object_img(data)
    for name, address in given.items():
        library.import_symbol(name, address)
    return _link(library, defined)


def load_llvm(text: str, exports: Sequence[str]) -> NativeCode:
    """Compile LLVM text as it is, without optimising it, and load it; for small fixed pieces.

    `exports` are the names to look up. Raises LoadError.
    """
    library = llvm.JITLibraryBuilder().add_ir(text)
    return _link(library, exports)


def _symbols_of(number: int, data: bytes) -> ObjectSymbols:
    try:
        symbols = read_symbols(data)
    except NotElfError as error:
        raise LoadError(f"cannot load object {number}: it is {error}") from error
    here = platform.machine()
    if symbols.machine != MACHINES.get(here):
        made_for = {number: name for name, number in MACHINES.items()}.get(symbols.machine)
        raise LoadError(
            f"cannot load object {number}: it is made for {made_for or 'another processor'}, "
            f"and this process runs on {here}; compile the model for this machine"
        )
    return symbols


def _refuse_duplicates(defined: Sequence[str]) -> None:
    twice = sorted(name for name, count in Counter(defined).items() if count > 1)
    if twice:
        raise LoadError(f"cannot link the compiled code: defined twice: {', '.join(twice)}")


def _refuse_missing(contents: Sequence[ObjectSymbols], known: set[str]) -> None:
    if not llvm.address_of_symbol("expf"):  # this Python itself does not use libm
        llvm.load_library_permanently("libm.so.6")
    needed = {name for names in contents for name in names.undefined} - known
    missing = sorted(name for name in needed if not llvm.address_of_symbol(name))
    if missing:
        raise LoadError(f"cannot link the compiled code: not defined: {', '.join(missing)}")


def _link(library: llvm.JITLibraryBuilder, exports: Sequence[str]) -> NativeCode:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    jit = llvm.create_lljit_compiler(suppress_errors=True)
    library.add_current_process()
    for name in exports:
        library.export_symbol(name)
    try:
        linked = library.link(jit, _LIBRARY)
    except RuntimeError as error:
        raise LoadError(f"cannot link the compiled code: {str(error).strip()}") from error
    return NativeCode(jit, linked, {name: cast(int, linked[name]) for name in exports})
