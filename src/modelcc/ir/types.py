"""Tensor types: element type, shape of named symbolic dimensions, physical layout.

A shape is a tuple of :data:`~modelcc.ir.index.Index`: an ``int`` or an expression of named
symbols (``batch``, ``seq + 1``).  A :class:`Layout` says where a logical element lies in memory;
it never changes what an op means, so ops are written on logical indices only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from modelcc.ir.index import Index, ceildiv, floordiv, maximum, mod, product

Array = NDArray[Any]
NumpyType = np.dtype[Any]
Kind = Literal["float", "int", "uint", "bool", "complex", "string"]

MOST_BYTES = 1 << 47
"""Bytes that a tensor may have: the address space of a process is no larger, and offsets within a
tensor fit into 64 bits with ample margin."""


@dataclass(frozen=True)
class DType:
    """An element type: short name (``f32``), kind, width in bits, name of its NumPy dtype."""

    name: str
    kind: Kind
    bits: int
    numpy_name: str

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def numpy(self) -> NumpyType:
        """The NumPy dtype that stores one element (ml_dtypes for small ones)."""
        scalar = getattr(ml_dtypes, self.numpy_name, None)
        return np.dtype(scalar if scalar is not None else self.numpy_name)

    @property
    def bytes(self) -> int:
        """Bytes of one element in an unpacked buffer; sub-byte types take one byte each."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_narrow(self) -> bool:
        """Whether machines lack arithmetic on it: small floats, integers of 4 or 2 bits."""
        return self.bits < 8 or (self.is_float and self.bits == 8)

    @property
    def storage(self) -> DType:
        """The dtype of its elements in buffers of generated code: bytes if it is narrow."""
        return U8 if self.is_narrow else self

    def __str__(self) -> str:
        return self.name


F64 = DType("f64", "float", 64, "float64")
F32 = DType("f32", "float", 32, "float32")
F16 = DType("f16", "float", 16, "float16")
BF16 = DType("bf16", "float", 16, "bfloat16")
F8E3M4 = DType("f8e3m4", "float", 8, "float8_e3m4")
F8E4M3 = DType("f8e4m3", "float", 8, "float8_e4m3")
F8E4M3B11FNUZ = DType("f8e4m3b11fnuz", "float", 8, "float8_e4m3b11fnuz")
F8E4M3FN = DType("f8e4m3fn", "float", 8, "float8_e4m3fn")
F8E4M3FNUZ = DType("f8e4m3fnuz", "float", 8, "float8_e4m3fnuz")
F8E5M2 = DType("f8e5m2", "float", 8, "float8_e5m2")
F8E5M2FNUZ = DType("f8e5m2fnuz", "float", 8, "float8_e5m2fnuz")
F8E8M0 = DType("f8e8m0", "float", 8, "float8_e8m0fnu")
F6E2M3 = DType("f6e2m3", "float", 6, "float6_e2m3fn")
F6E3M2 = DType("f6e3m2", "float", 6, "float6_e3m2fn")
F4E2M1 = DType("f4e2m1", "float", 4, "float4_e2m1fn")
I64 = DType("i64", "int", 64, "int64")
I32 = DType("i32", "int", 32, "int32")
I16 = DType("i16", "int", 16, "int16")
I8 = DType("i8", "int", 8, "int8")
I4 = DType("i4", "int", 4, "int4")
I2 = DType("i2", "int", 2, "int2")
U64 = DType("u64", "uint", 64, "uint64")
U32 = DType("u32", "uint", 32, "uint32")
U16 = DType("u16", "uint", 16, "uint16")
U8 = DType("u8", "uint", 8, "uint8")
U4 = DType("u4", "uint", 4, "uint4")
U2 = DType("u2", "uint", 2, "uint2")
BOOL = DType("bool", "bool", 8, "bool")
C64 = DType("c64", "complex", 64, "complex64")
C128 = DType("c128", "complex", 128, "complex128")
STRING = DType("string", "string", 64, "object")

DTYPES: Mapping[str, DType] = MappingProxyType(
    {
        d.name: d
        for d in (
            *(F64, F32, F16, BF16, F8E3M4, F8E4M3, F8E4M3B11FNUZ, F8E4M3FN, F8E4M3FNUZ),
            *(F8E5M2, F8E5M2FNUZ, F8E8M0),
            *(F6E2M3, F6E3M2, F4E2M1),
            *(I64, I32, I16, I8, I4, I2, U64, U32, U16, U8, U4, U2, BOOL, C64, C128, STRING),
        )
    }
)
_BY_NUMPY: Mapping[str, DType] = MappingProxyType({d.numpy_name: d for d in DTYPES.values()})


def dtype_of(array: Array | NumpyType) -> DType:
    """The :class:`DType` of a NumPy array or dtype; ``TypeError`` if modelcc has none."""
    dtype = array.dtype if isinstance(array, np.ndarray) else array
    found = _BY_NUMPY.get(dtype.name)
    if found is None:
        raise TypeError(f"modelcc has no element type for NumPy dtype {dtype}")
    return found


@dataclass(frozen=True)
class Part:
    """One physical dimension: ``(logical index of axis // div) % mod`` (``mod`` None: no limit)."""

    axis: int
    div: int = 1
    mod: int | None = None


@dataclass(frozen=True)
class Layout:
    """Physical order of a tensor, outermost part first, with an optional border.

    ``parts`` of one axis must partition it: ``(c//16, …, c%16)``.  An axis whose extent is not a
    multiple of its block is padded up; pad elements are unspecified.  ``halo[a] = (before, after)``
    elements of ``fill`` surround logical axis ``a``: index ``-before … extent+after-1`` may be
    read.
    """

    parts: tuple[Part, ...]
    halo: tuple[tuple[int, int], ...]
    fill: int = 0

    @property
    def rank(self) -> int:
        return len(self.halo)

    @property
    def is_row_major(self) -> bool:
        """Whether this is the plain C order with no border."""
        return self == row_major(self.rank)

    def physical_shape(self, shape: Sequence[Index]) -> tuple[Index, ...]:
        """Extents of the physical dimensions for a logical ``shape``."""
        return tuple(self._part_extent(p, shape) for p in self.parts)

    def _part_extent(self, part: Part, shape: Sequence[Index]) -> Index:
        before, after = self.halo[part.axis]
        if part.mod is not None:
            return part.mod
        return ceildiv(shape[part.axis] + before + after, part.div)

    def offset(self, indices: Sequence[Index], shape: Sequence[Index]) -> Index:
        """Element offset of logical ``indices`` from the start of the buffer."""
        offset: Index = 0
        for part, extent in zip(self.parts, self.physical_shape(shape), strict=True):
            i = floordiv(indices[part.axis] + self.halo[part.axis][0], part.div)
            offset = offset * extent + (i if part.mod is None else mod(i, part.mod))
        return offset

    def size(self, shape: Sequence[Index]) -> Index:
        """Elements of the physical buffer, padding and border included."""
        return product(self.physical_shape(shape))

    def __str__(self) -> str:
        def one(p: Part) -> str:
            div = f"/{p.div}" if p.div != 1 else ""
            return f"d{p.axis}{div}" + (f"%{p.mod}" if p.mod is not None else "")

        halo = " halo" + ",".join(f"{b}:{a}" for b, a in self.halo)
        halo += f" fill{self.fill}" if self.fill else ""
        border = halo if any(b or a for b, a in self.halo) else ""
        return f"<{' '.join(one(p) for p in self.parts)}{border}>"


def row_major(rank: int) -> Layout:
    """C order without border."""
    return Layout(tuple(Part(a) for a in range(rank)), ((0, 0),) * rank)


def blocked(rank: int, axis: int, block: int) -> Layout:
    """Row-major with ``axis`` split: ``axis // block`` in its place, ``axis % block`` innermost.

    ``blocked(4, 1, 16)`` is NCHW16c (Georganas et al., "Anatomy of high-performance deep learning
    convolutions on SIMD architectures", 2018).
    """
    outer = tuple(Part(a, block if a == axis else 1) for a in range(rank))
    return Layout((*outer, Part(axis, 1, block)), ((0, 0),) * rank)


@dataclass(frozen=True)
class TensorType:
    """Shape, element type and layout (None: row-major) of a tensor."""

    shape: tuple[Index, ...]
    dtype: DType
    layout: Layout | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every extent is a number."""
        return all(isinstance(d, int) for d in self.shape)

    @cached_property
    def physical(self) -> Layout:
        """The layout, made explicit."""
        return self.layout if self.layout is not None else row_major(self.rank)

    @property
    def elements(self) -> Index:
        """Number of logical elements."""
        return product(self.shape)

    @cached_property
    def bytes(self) -> Index:
        """Bytes of the physical buffer."""
        return self.physical.size(self.shape) * self.dtype.bytes

    @property
    def room(self) -> Index:
        """Bytes of all elements, with extents of 0 as 1: an upper bound of all extent products."""
        return product(maximum(1, extent) for extent in self.shape) * self.dtype.bytes

    def static_shape(self) -> tuple[int, ...]:
        """The shape as numbers; ``ValueError`` if a dimension is symbolic."""
        if any(not isinstance(d, int) for d in self.shape):
            raise ValueError(f"{self} has symbolic dimensions where numbers are needed")
        return tuple(d for d in self.shape if isinstance(d, int))

    def with_layout(self, layout: Layout | None) -> TensorType:
        return TensorType(self.shape, self.dtype, layout)

    def __str__(self) -> str:
        dims = ", ".join(str(d) for d in self.shape)
        return f"{self.dtype}[{dims}]{self.layout if self.layout is not None else ''}"
