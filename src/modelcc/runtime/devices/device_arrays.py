"""Tensors in a device's memory: callers', by DLPack or CUDA's array interface, and results."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np

from modelcc.artifact.manifest import TensorSpec
from modelcc.ir.types import Array, NumpyType
from modelcc.runtime.devices.device import DeviceMemory, PointerDevice
from modelcc.runtime.devices.device_results import DeviceResults
from modelcc.runtime.devices.pending_calls import PendingCall
from modelcc.runtime.dlpack import (
    CPU,
    CUDA,
    CUDA_MANAGED,
    LEGACY_STREAM,
    ROCM,
    dlpack_kind,
    is_contiguous,
    make_capsule,
    read_capsule,
)
from modelcc.runtime.errors import InputError


class DeviceArray:
    """A result in a GPU's memory, for libraries that take ``__dlpack__`` or
    ``__cuda_array_interface__``.

    The GPU may still be computing it: work of consumers comes after that.
    """

    def __init__(
        self,
        results: DeviceResults,
        number: int,
        memory: DeviceMemory,
        dtype: NumpyType,
        shape: tuple[int, ...],
        waiting: AbstractSet[int] | None = None,
        made: PendingCall | None = None,
    ) -> None:
        """A result of calls with ``out="device"``, as output of this ``number``; streams
        ``waiting`` come after it (None: all do; it is complete).  ``made`` is a call that may yet
        fail."""
        self._results = results
        self._device = results.device
        self._number = number
        self._memory = memory
        self._made = made
        results.hold(memory)
        self._waiting = waiting
        self.dtype = dtype
        self.shape = shape

    def __del__(self) -> None:
        if hasattr(self, "_waiting"):
            self._results.give(self._number, self._memory)

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype} {list(self.shape)} on {self._device.name}>"

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.dtype.itemsize * prod(self.shape)

    def numpy(self) -> Array:
        """A copy in the host's memory; RunError if the call that made it has failed."""
        array: Array = np.empty(self.shape, self.dtype)
        self._results.fetch(self._memory, array, self._made)
        return array

    def address_on(self, device: PointerDevice, dtype: NumpyType) -> int | None:
        """Its address for work of this device; None if it is another's, or has other elements."""
        if device is not self._device or dtype != self.dtype:
            return None
        return device.address(self._memory)

    def complete_for(self, device: PointerDevice) -> None:
        """Waits for it, before a call that takes it, unless it is known to be valid and of the same
        device, which works in order; RunError if the call that made it has failed."""
        if device is not self._device or not (self._made is None or self._made.succeeded):
            self._complete(earlier=True)

    def source(self) -> PendingCall | None:
        """The call that made it, if its outcome is not known yet; RunError if it has failed, for a
        call that takes the result.  The caller has the device's lock."""
        if self._made is None:
            return None
        self._made.refuse(earlier=True)
        return None if self._made.ended else self._made

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("what is in a GPU's memory comes to NumPy as a copy")
        found = self.numpy()
        return found if dtype is None else found.astype(cast(Any, dtype))

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device.dlpack, self._device.index

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule; memory is not reused before ``stream`` has done its work so far."""
        del max_version  # a consumer of any version accepts the first
        if dl_device is not None and dl_device[0] == CPU and copy is not False:
            return cast(Any, self.numpy()).__dlpack__()
        if copy or (dl_device is not None and dl_device != self.__dlpack_device__()):
            raise BufferError("this tensor is not copied: copy what it becomes")
        if stream == -1:
            self._complete()  # the consumer does not wait
        else:
            self._hand_over(self._device.default_stream if stream is None else stream)
        address = self._device.address(self._memory) if self.nbytes else 0
        return make_capsule(address, self.__dlpack_device__(), self.dtype, self.shape, self)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        if self.dtype.isbuiltin != 1:
            raise AttributeError(f"CUDA's array interface has no {self.dtype}: use __dlpack__")
        self._complete()
        self._hand_over(self._device.default_stream)
        address = self._device.address(self._memory) if self.nbytes else 0
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (address, False),
            "strides": None,
            "stream": None,
            "version": 3,
        }

    def _hand_over(self, stream: int) -> None:
        if self._made is not None:
            self._made.refuse()
        waits = self._waiting is None or stream in self._waiting
        self._results.hand_over(self._memory, stream, waits)

    def _complete(self, earlier: bool = False) -> None:
        if self._waiting is not None:
            self._results.finish(self._made, earlier)
            self._waiting = None


@dataclass(frozen=True)
class DeviceTensor:
    """A caller's tensor in a device's memory, which ``owner`` keeps alive."""

    memory: DeviceMemory
    address: int
    shape: tuple[int, ...]
    owner: object


def is_in_a_gpu(value: object) -> bool:
    """Whether an argument says that it is in a GPU's memory."""
    if isinstance(value, np.ndarray | np.generic):
        return False
    ask = getattr(value, "__dlpack_device__", None)
    if ask is None:
        return hasattr(value, "__cuda_array_interface__")
    try:
        return ask()[0] in (CUDA, CUDA_MANAGED, ROCM)
    except Exception:  # whatever the exporter raises; NumPy reports it, too
        return False


def device_tensor(device: PointerDevice, spec: TensorSpec, value: Any) -> DeviceTensor:
    """``value``, which is in a GPU's memory, for work that ``device`` issues from now on;
    InputError if it is elsewhere, has other elements, or is not contiguous."""
    by_dlpack = hasattr(value, "__dlpack__")
    read = _by_dlpack if by_dlpack else _by_array_interface
    try:
        address, shape, elements, contiguous, owner = read(device, value)
    except Exception as error:  # whatever the exporter raises
        given = f"a {type(value).__name__} that does not share its memory ({error})"
        expected = f"a tensor in the memory of {device.name}"
        raise _unfit(spec, expected, given, "detach it, or make it anew there") from error
    wanted = dlpack_kind(spec.dtype.numpy) if by_dlpack else spec.dtype.numpy.str
    if elements != wanted:
        given = f"elements of the kind {elements}"
        raise _unfit(spec, f"{spec.dtype.numpy} elements, {spec}", given, "convert it there")
    if not contiguous:
        raise _unfit(spec, "a contiguous tensor", f"strides in shape {list(shape)}", "copy it")
    size = prod(shape) * spec.dtype.numpy.itemsize
    memory = device.foreign(address, size, f"input '{spec.name}'")
    return DeviceTensor(memory, address, shape, owner)


def _by_dlpack(device: PointerDevice, value: Any) -> tuple[int, Any, Any, bool, object]:
    capsule = value.__dlpack__(stream=device.stream)
    found = read_capsule(capsule)
    return found.address, found.shape, found.kind, found.contiguous, capsule


def _by_array_interface(device: PointerDevice, value: Any) -> tuple[int, Any, Any, bool, object]:
    found = value.__cuda_array_interface__
    shape, strides = tuple(found["shape"]), found.get("strides")
    elements, size = str(found["typestr"]), np.dtype(found["typestr"]).itemsize
    if found.get("mask") is not None:
        raise ValueError("it has a mask")
    stream = found.get("stream") if found["version"] >= 3 else LEGACY_STREAM
    if stream is not None:
        device.wait_for(device.default_stream if stream == LEGACY_STREAM else stream)
    steps = None if strides is None else tuple(step // size for step in strides)
    contiguous = steps is None or is_contiguous(shape, steps)
    return found["data"][0], shape, elements, contiguous, value


def _unfit(spec: TensorSpec, expected: str, given: str, remedy: str) -> InputError:
    return InputError(f"input '{spec.name}'", expected, given, remedy)
