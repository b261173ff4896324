"""Loads object files into this process and calls their functions."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from types import MappingProxyType

from modelcc.ir.types import Array
from modelcc.runtime.devices.device_calls import DeviceCalls
from modelcc.runtime.devices.device_states import DeviceStates
from modelcc.runtime.errors import InputError, LoadError
from modelcc.runtime.linking.elf import MACHINES, NotElfError, ObjectFile, read_object
from modelcc.runtime.linking.linker import Linked, link
from modelcc.runtime.linking.macho import PROCESSORS, MachObject, NotMachError, read_mach_object
from modelcc.runtime.linking.symbols import ALLOWED, ObjectNames, needed
from modelcc.runtime.machine import architecture

_LIBRARIES = (None, "libm.so.6")
"""Libraries searched for system names: this process, then those that Python itself need not use."""

_LLVM = "modelcc.runtime.linking.llvm_linker"
"""Links where :mod:`modelcc.runtime.linking.linker` cannot; imported on demand, for its size."""


class NativeCode:
    """Machine code in this process, loaded as long as this object lives.

    ``calls`` are those on device memory, if supported.
    """

    def __init__(self, owner: object, addresses: Mapping[str, int]) -> None:
        """Made by `load_objects`; `owner` keeps the memory."""
        self.calls: DeviceCalls | None = None
        self._owner = owner
        self._addresses = dict(addresses)

    def take_failure(self) -> BaseException | None:
        """The exception that ended this thread's last run on a device, if any; cleared by the
        call."""
        return None

    def limit(self, seconds: float | None) -> None:
        """Time limit of runs in seconds (None: none); InputError if not supported."""
        if seconds is not None:
            raise InputError("limit", "a device that can be left at work", "code of another kind",
                             "leave the limit out")  # fmt: skip

    def keep(self, inputs: Mapping[str, Array]) -> DeviceStates | None:
        """Device copies of ``inputs`` that are always these arrays, which calls mutate; None: the
        arrays are always current."""
        del inputs
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """Functions and variables that have an address, sorted."""
        return tuple(sorted(self._addresses))

    def address(self, name: str) -> int:
        """Address of the function or variable `name`."""
        if name not in self._addresses:
            known = ", ".join(self.names) or "nothing"
            raise LoadError(f"the compiled code does not define '{name}'; it defines {known}")
        return self._addresses[name]


def load_objects(
    objects: Sequence[bytes],
    symbols: Mapping[str, int] = MappingProxyType({}),
    lookup: Callable[[str], int] = lambda name: 0,
) -> NativeCode:
    """Links `objects` (ELF, or Mach-O on macOS) with each other and with this process, and loads
    them.

    Undefined names are resolved from `symbols` (name to address) first, then from `lookup` (0:
    unknown), then from the system's C library if it is one of `symbols.ALLOWED`. Raises LoadError
    when a name is missing or defined twice, or an object is damaged or for another processor.
    """
    files = [_read(number, data) for number, data in enumerate(objects)]
    defined = [name for file in files for name in file.defined]
    _refuse_duplicates(defined)
    external = _external(files, symbols, lookup)
    elf = [file for file in files if isinstance(file, ObjectFile)]
    if architecture() == "x86_64" and len(elf) == len(files):
        linked = _linked(elf, external)
        return NativeCode(linked, linked.addresses)
    by_llvm: Callable[..., NativeCode] = import_module(_LLVM).link_objects
    return by_llvm(objects, external, defined)


def _linked(files: Sequence[ObjectFile], external: Mapping[str, int]) -> Linked:
    try:
        return link(files, lambda name: external.get(name, 0))
    except (struct.error, ValueError, LookupError, OverflowError, OSError) as error:
        raise LoadError(f"cannot link the compiled code: it is damaged ({error})") from error


def load_llvm(text: str, exports: Sequence[str]) -> NativeCode:
    """Compiles LLVM text without optimisation, and loads it; for small fixed pieces.

    `exports` are the names to look up. Raises LoadError.
    """
    compiled: Callable[..., NativeCode] = import_module(_LLVM).load_llvm
    return compiled(text, exports)


def _read(number: int, data: bytes) -> ObjectFile | MachObject:
    mac = sys.platform == "darwin"
    try:
        file = read_mach_object(data) if mac else read_object(data)
    except (NotElfError, NotMachError) as error:
        raise LoadError(
            f"cannot load object {number}: it is {error}; compile the model on this machine"
        ) from error
    here, known = architecture(), PROCESSORS if mac else MACHINES
    machine = file.processor if isinstance(file, MachObject) else file.machine
    if machine != known.get(here):
        made_for = {number: name for name, number in known.items()}.get(machine)
        raise LoadError(
            f"cannot load object {number}: it is made for {made_for or 'another processor'}, "
            f"and this process runs on {here}; compile the model for this machine"
        )
    return file


def _refuse_duplicates(defined: Sequence[str]) -> None:
    twice = sorted(name for name, count in Counter(defined).items() if count > 1)
    if twice:
        raise LoadError(f"cannot link the compiled code: defined twice: {', '.join(twice)}")


def _external(
    files: Sequence[ObjectNames], given: Mapping[str, int], lookup: Callable[[str], int]
) -> dict[str, int]:
    """Addresses of the undefined names of `files`."""
    found = {
        name: given.get(name) or lookup(name) or _address_in_system(name) for name in needed(files)
    }
    missing = sorted(name for name, address in found.items() if not address)
    if missing:
        raise LoadError(f"cannot link the compiled code: not defined: {', '.join(missing)}")
    return found


def _address_in_system(name: str) -> int:
    for library in _LIBRARIES if name in ALLOWED else ():
        with suppress(OSError, AttributeError):
            function = ctypes.CDLL(library)[name]
            return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0
