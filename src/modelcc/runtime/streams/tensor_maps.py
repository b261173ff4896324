"""Tensor maps of NVIDIA's GPUs (TMA descriptors): the list besides a kernel's code, and their
encoding by the driver, which depends on addresses."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from modelcc.ir.index import Index, evaluate, parse_index
from modelcc.runtime.errors import RunError

_TYPES = {"f16": ("FLOAT16", 2), "bf16": ("BFLOAT16", 2), "u8": ("UINT8", 1)}
"""The driver's names of types, and their bytes; 8-bit floats are copied as bytes."""

_KEPT = 64
"""Addresses and sizes for which a kernel's maps are kept."""

_MAP_BYTES = 128
"""Bytes of a map, which is also its alignment: the driver requires that since CUDA 13, and half of
it before.  Objects of the package ``cuda-bindings`` are not aligned."""

_ENCODE = b"cuTensorMapEncodeTiled"
_ENCODE_SINCE = 12000
_ENCODE_TYPE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, *(ctypes.c_void_p,) * 5,
    *(ctypes.c_int,) * 4,
)  # fmt: skip
"""The driver's function: the map's address, type and number of axes, the tensor's address, sizes,
strides, box and element strides along these axes, and four modes."""


@dataclass(frozen=True)
class TensorMap:
    """The map of a kernel's argument by its number: elements of a type, in the kernel's sizes."""

    argument: int
    dtype: str
    offset: Index
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]
    box: tuple[int, ...]

    def start(self, addresses: Sequence[int], values: Mapping[str, int]) -> int:
        """The address of its first element."""
        return addresses[self.argument] + evaluate(self.offset, values) * _TYPES[self.dtype][1]

    def is_empty(self, values: Mapping[str, int]) -> bool:
        """Whether the tensor has no elements."""
        return any(evaluate(n, values) == 0 for n in self.sizes)

    def one_element(self) -> TensorMap:
        """The same box of a tensor of one element, with strides that the driver accepts."""
        rank, (_, size) = len(self.box), _TYPES[self.dtype]
        return replace(self, sizes=(1,) * rank, strides=(16 // size,) * rank)

    def encode(
        self, api: Any, encode: Callable[..., int], to: int, first: int, values: Mapping[str, int]
    ) -> None:
        """Has the driver's function write a map of the tensor from address ``first`` on: innermost
        axis first, 128-byte swizzle, zeros outside."""
        word, size = _TYPES[self.dtype]
        sizes = [evaluate(n, values) for n in reversed(self.sizes)]
        strides = [evaluate(n, values) * size for n in reversed(self.strides)]
        rank = len(self.box)
        kind = f"CU_TENSOR_MAP_DATA_TYPE_{word}"
        status = encode(
            to,
            int(getattr(api.CUtensorMapDataType, kind)),
            rank,
            first,
            (ctypes.c_uint64 * rank)(*sizes),
            (ctypes.c_uint64 * rank)(*strides[1:]),
            (ctypes.c_uint32 * rank)(*reversed(self.box)),
            (ctypes.c_uint32 * rank)(*(1 for _ in self.box)),
            int(api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE),
            int(api.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B),
            int(api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B),
            int(api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        )
        if status:
            raise RunError(
                f"the driver makes no map of {sizes} elements of {self.dtype}, {strides[1:]} bytes "
                f"apart, at {first:#x} (error {status}): axes have 1 to 2^32 elements, place and "
                "strides are multiples of 16 bytes, strides below 2^40"
            )


class KernelMaps:
    """The maps that a kernel takes after its sizes, encoded once per set of addresses."""

    def __init__(self, text: bytes) -> None:
        data = json.loads(text)
        self._names: list[str] = data["sizes"]
        self._maps = tuple(
            TensorMap(argument, dtype, parse_index(offset), _indices(sizes), _indices(strides),
                      tuple(box))
            for argument, dtype, offset, sizes, strides, box in data["maps"]
        )  # fmt: skip
        self._made: dict[tuple[int, ...], tuple[object, Sequence[int]]] = {}

    def of(
        self,
        api: Any,
        addresses: Sequence[int],
        sizes: Sequence[int],
        checked: Callable[[tuple[Any, ...]], Any],
    ) -> Sequence[int]:
        """Addresses of the maps of tensors at ``addresses``; ``checked`` returns the results of the
        driver's package, or raises."""
        key = (*addresses, *sizes)
        if key not in self._made:
            if len(self._made) >= _KEPT:
                self._made.clear()
            encode = _encode_of(api, checked)
            values = dict(zip(self._names, sizes, strict=True))
            held = ctypes.create_string_buffer((len(self._maps) + 1) * _MAP_BYTES)
            first = ctypes.addressof(held) + -ctypes.addressof(held) % _MAP_BYTES
            places = range(first, first + len(self._maps) * _MAP_BYTES, _MAP_BYTES)
            whole = [m.start(addresses, values) for m in self._maps if not m.is_empty(values)]
            for one, place in zip(self._maps, places, strict=True):
                if whole and one.is_empty(values):
                    # The driver rejects maps of empty tensors; nothing reads what is copied.
                    one.one_element().encode(api, encode, place, whole[0], values)
                else:
                    one.encode(api, encode, place, one.start(addresses, values), values)
            self._made[key] = held, places
        return self._made[key][1]


def _encode_of(api: Any, checked: Callable[[tuple[Any, ...]], Any]) -> Callable[..., int]:
    """The driver's function; RunError if it is too old to have it."""
    place = checked(api.cuGetProcAddress(_ENCODE, _ENCODE_SINCE, api.cuuint64_t(0)))
    if not place:
        raise RunError("the driver has no maps of tensors: update it to that of CUDA 12 or later")
    return _ENCODE_TYPE(int(place))


def _indices(texts: Sequence[str]) -> tuple[Index, ...]:
    return tuple(map(parse_index, texts))
