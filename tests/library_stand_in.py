"""What stands for libraries of NVIDIA's in tests: functions with addresses, on the memory of the
stand-in for the driver, and the objects that they make."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from cuda_driver import FakeDriver


class FakeLibrary:
    """Its functions, methods of these names, have addresses; ``failures`` are what was wrong with
    calls, ``asked`` what was computed."""

    signatures: Mapping[str, tuple[Any, ...]] = {}

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.failures: list[Exception] = []
        self.asked: list[tuple[int, ...]] = []
        self._objects: dict[int, dict[Any, Any]] = {}
        self._made_so_far = 0
        self._functions = {name: self._function(name) for name in self.signatures}

    def _function(self, name: str) -> Any:
        plain: Callable[..., None] = getattr(self, name)

        def call(*given: int) -> int:
            try:
                plain(*given)
            except Exception as error:  # nothing passes through a function of C
                self.failures.append(error)
                return 14
            return 0

        return ctypes.CFUNCTYPE(ctypes.c_int32, *self.signatures[name])(call)

    def function(self, library: object, spec: object, name: str) -> Any:
        """In place of what finds functions of libraries."""
        return self._functions[name]

    def _made(self, place: int, **held: object) -> None:
        assert self.driver._context() is not None  # pyright: ignore[reportPrivateUsage]
        self._made_so_far += 1
        number = 1000 + self._made_so_far
        self._objects[number] = {**held}
        ctypes.c_int64.from_address(place).value = number

    def destroy(self, number: int) -> None:
        """What gives objects back."""
        del self._objects[number]

    @property
    def held(self) -> int:
        """Objects that nobody has given back."""
        return len(self._objects)

    def on_device(self, place: int, size: int) -> None:
        """Bytes at a place are the GPU's."""
        self.driver._on_device(place, size)  # pyright: ignore[reportPrivateUsage]

    def ask(self, stream: int, work: Callable[[], None]) -> None:
        """Work that the GPU does when somebody waits for it."""
        self.driver._stream(stream).ask(work)  # pyright: ignore[reportPrivateUsage]
