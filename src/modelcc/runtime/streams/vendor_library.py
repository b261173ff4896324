"""Libraries of a device's vendor, whose computations have descriptors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

from modelcc.runtime.errors import RunError

MOST_PLANS = 256
"""Descriptors of a library that are kept, for different sizes or addresses."""

ELEMENT_BYTES: Mapping[str, int] = MappingProxyType({"f32": 4, "f16": 2, "bf16": 2, "i8": 1})
"""Bytes of elements of the tensors that are passed, and of workspace."""

Plan = TypeVar("Plan")


class VendorLibrary(Protocol):
    """A library on one GPU, whose context is current when it is used."""

    def ask(
        self, elements: Sequence[str], addresses: Sequence[int], numbers: Sequence[int], stream: int
    ) -> None:
        """Issues a computation in ``stream``, of tensors with ``elements`` of these types at
        ``addresses``, with ``numbers`` as the library's module defines them."""

    def close(self) -> None:
        """Frees what it holds."""


class LibraryCalls:
    """Functions of the ``library``, which return a status; ``function`` gives their addresses."""

    def __init__(
        self,
        library: str,
        signatures: Mapping[str, tuple[Any, ...]],
        function: Callable[[str], int],
    ) -> None:
        self._library = library
        self._functions = {
            name: ctypes.CFUNCTYPE(ctypes.c_int32, *types)(function(name))
            for name, types in signatures.items()
        }

    def __call__(self, name: str, *given: Any) -> None:
        """Calls one; :class:`RunError` if it fails."""
        status = self._functions[name](*given)
        if status:
            raise RunError(f"{name} of {self._library} failed with status {status}")

    def made(self, name: str, *given: Any) -> ctypes.c_void_p:
        """What a function creates, and writes to its first argument."""
        handle = ctypes.c_void_p()
        self(name, ctypes.addressof(handle), *given)
        return handle


class Plans(Generic[Plan]):
    """Up to :data:`MOST_PLANS` entries by key; ``forget`` frees one."""

    def __init__(self, forget: Callable[[Plan], None]) -> None:
        self._forget = forget
        self._kept: dict[Hashable, Plan] = {}

    def of(self, key: Hashable, make: Callable[[], Plan]) -> Plan:
        """The one for ``key``, created if there is none."""
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= MOST_PLANS:
                self._forget(self._kept.pop(next(iter(self._kept))))
            found = self._kept[key] = make()
        return found

    def clear(self) -> None:
        """Frees all."""
        while self._kept:
            self._forget(self._kept.popitem()[1])
