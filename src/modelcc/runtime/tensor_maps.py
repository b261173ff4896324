"""Maps of tensors that NVIDIA's GPUs copy boxes of: what a kernel says of them beside its code, and
what the driver makes of it, which depends on where tensors are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from modelcc.ir.index import Index, evaluate, parse_index

_TYPES = {"f16": "FLOAT16", "bf16": "BFLOAT16"}
_ELEMENT_BYTES = 2
_KEPT = 64
"""Places and sizes of which a kernel's maps are kept."""

Encoded: TypeAlias = tuple[Any, ...]
"""Objects of the driver's, which tell where the 128 bytes of each map are."""


@dataclass(frozen=True)
class TensorMap:
    """Of a kernel's argument by its number: elements of a type, in the kernel's sizes."""

    argument: int
    dtype: str
    offset: Index
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]
    box: tuple[int, ...]

    def encoded(self, api: Any, address: int, values: Mapping[str, int]) -> tuple[Any, ...]:
        """What the driver ``api`` says, and its map of the tensor from ``address`` on: innermost
        axis first, rows of 128 bytes swizzled, zeros outside."""
        first = address + evaluate(self.offset, values) * _ELEMENT_BYTES
        sizes = [api.cuuint64_t(evaluate(n, values)) for n in reversed(self.sizes)]
        strides = [
            api.cuuint64_t(evaluate(n, values) * _ELEMENT_BYTES) for n in reversed(self.strides)
        ]
        box = [api.cuuint32_t(n) for n in reversed(self.box)]
        ones = [api.cuuint32_t(1) for _ in self.box]
        kind = f"CU_TENSOR_MAP_DATA_TYPE_{_TYPES[self.dtype]}"
        return api.cuTensorMapEncodeTiled(
            getattr(api.CUtensorMapDataType, kind),
            len(box),
            first,
            sizes,
            strides[1:],
            box,
            ones,
            api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            api.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )


class KernelMaps:
    """The maps that a kernel takes behind its sizes, made once for where its tensors are."""

    def __init__(self, text: bytes) -> None:
        data = json.loads(text)
        self._names: list[str] = data["sizes"]
        self._maps = tuple(
            TensorMap(argument, dtype, parse_index(offset), _indices(sizes), _indices(strides),
                      tuple(box))
            for argument, dtype, offset, sizes, strides, box in data["maps"]
        )  # fmt: skip
        self._made: dict[tuple[int, ...], Encoded] = {}

    def of(
        self,
        api: Any,
        addresses: Sequence[int],
        sizes: Sequence[int],
        checked: Callable[[tuple[Any, ...]], Any],
    ) -> Encoded:
        """The maps of tensors at ``addresses``; ``checked`` gives what the driver returns, or
        raises."""
        key = (*addresses, *sizes)
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= _KEPT:
                self._made.clear()
            values = dict(zip(self._names, sizes, strict=True))
            found = self._made[key] = tuple(
                checked(one.encoded(api, addresses[one.argument], values)) for one in self._maps
            )
        return found


def _indices(texts: Sequence[str]) -> tuple[Index, ...]:
    return tuple(map(parse_index, texts))
