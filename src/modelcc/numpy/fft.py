"""Discrete Fourier transforms under the names of ``numpy.fft``.

Spectra are complex tensors.  f32 and narrower floats are transformed as f32, others as f64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import sqrt
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from modelcc.frontends.kit.complex_values import part_type
from modelcc.frontends.kit.fourier import KEPT, Form, along_axis, long_tables
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index
from modelcc.ir.types import C64, F32, DType
from modelcc.numpy.arrays import asarray, of_array
from modelcc.numpy.joining import stack
from modelcc.ops.fourier_tables import tables
from modelcc.tensor.axes import Axes, axes_of, axis_of
from modelcc.tensor.builder import TensorBuilder
from modelcc.tensor.complex_tensor import ComplexTensor
from modelcc.tensor.lazy import apply, callers_line
from modelcc.tensor.promotion import is_complex, named_type, promoted
from modelcc.tensor.tensor import Tensor

Norm = Literal["backward", "ortho", "forward"] | None
"""Which direction is divided by the length: the inverse, both by its square root, or the forward
one."""

Complex = ComplexTensor[Tensor]
Lengths = Sequence[int | None] | None

FORWARD, INVERSE = Form(False, False), Form(True, False)
REAL, TO_REAL = Form(False, True), Form(True, True)

_OTHER: Mapping[Norm, Norm] = MappingProxyType(
    {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}
)
"""The normalisation that divides in the opposite direction."""


def fft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Complex:
    """The transform along ``axis``, of ``n`` elements: truncated or zero-padded."""
    return _transformed(a, n, axis, norm, FORWARD)


def ifft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Complex:
    """The inverse of :func:`fft`."""
    return _transformed(a, n, axis, norm, INVERSE)


def rfft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Complex:
    """The first ``n // 2 + 1`` elements of :func:`fft` of real numbers; the others are their
    mirrored conjugates."""
    if is_complex(asarray(a)):
        raise ModelError("rfft of complex numbers", callers_line(), "use fft, or a.real")
    return _transformed(a, n, axis, norm, REAL)


def irfft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Tensor:
    """The inverse of :func:`rfft`, ``n`` real numbers (by default an even number)."""
    return _transformed(a, n, axis, norm, TO_REAL)


def hfft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Tensor:
    """The real spectrum of a Hermitian signal given by its first half."""
    return irfft(asarray(a).conj(), n, axis, _OTHER[norm])


def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Complex:
    """The inverse of :func:`hfft`."""
    return rfft(a, n, axis, _OTHER[norm]).conj()


def fftn(a: Any, s: Lengths = None, axes: Axes = None, norm: Norm = None) -> Complex:
    """Along several axes, by default all."""
    return _along(a, s, axes, norm, FORWARD)


def ifftn(a: Any, s: Lengths = None, axes: Axes = None, norm: Norm = None) -> Complex:
    """The inverse of :func:`fftn`."""
    return _along(a, s, axes, norm, INVERSE)


def rfftn(a: Any, s: Lengths = None, axes: Axes = None, norm: Norm = None) -> Complex:
    """:func:`rfft` along the last one of the axes, then :func:`fft` along the others."""
    lengths, places = _places(a, s, axes)
    first = rfft(a, lengths[-1], places[-1], norm)
    return _along(first, lengths[:-1], places[:-1], norm, FORWARD)


def irfftn(a: Any, s: Lengths = None, axes: Axes = None, norm: Norm = None) -> Tensor:
    """The inverse of :func:`rfftn`, by default of even length along the last axis."""
    lengths, places = _places(a, s, axes)
    inner = _along(a, lengths[:-1], places[:-1], norm, INVERSE)
    return irfft(inner, lengths[-1], places[-1], norm)


def fft2(a: Any, s: Lengths = None, axes: Axes = (-2, -1), norm: Norm = None) -> Complex:
    """:func:`fftn` along two axes."""
    return fftn(a, s, axes, norm)


def ifft2(a: Any, s: Lengths = None, axes: Axes = (-2, -1), norm: Norm = None) -> Complex:
    """:func:`ifftn` along two axes."""
    return ifftn(a, s, axes, norm)


def rfft2(a: Any, s: Lengths = None, axes: Axes = (-2, -1), norm: Norm = None) -> Complex:
    """:func:`rfftn` along two axes."""
    return rfftn(a, s, axes, norm)


def irfft2(a: Any, s: Lengths = None, axes: Axes = (-2, -1), norm: Norm = None) -> Tensor:
    """:func:`irfftn` along two axes."""
    return irfftn(a, s, axes, norm)


def fftfreq(n: int, d: float = 1.0, dtype: Any = None) -> Tensor:
    """The frequencies of :func:`fft` of ``n`` elements with spacing ``d``, by default f32."""
    return _frequencies(np.fft.fftfreq(n, d), dtype)


def rfftfreq(n: int, d: float = 1.0, dtype: Any = None) -> Tensor:
    """The frequencies of :func:`rfft` of ``n`` elements with spacing ``d``, by default f32."""
    return _frequencies(np.fft.rfftfreq(n, d), dtype)


def _frequencies(values: Any, dtype: Any) -> Tensor:
    kind = F32 if dtype is None else named_type(dtype)
    return of_array(values.astype(kind.numpy))


def fftshift(x: Any, axes: Axes = None) -> Tensor:
    """Moves frequency 0 to the middle of each of ``axes``."""
    return _shifted(x, axes, 1)


def ifftshift(x: Any, axes: Axes = None) -> Tensor:
    """The inverse of :func:`fftshift`."""
    return _shifted(x, axes, -1)


def _shifted(x: Any, axes: Axes, sign: int) -> Tensor:
    value = asarray(x)
    places = axes_of(axes, value.ndim)
    return value.roll([sign * (value.shape[a] // 2) for a in places], places)


def _along(a: Any, s: Lengths, axes: Axes, norm: Norm, form: Form) -> Any:
    lengths, places = _places(a, s, axes)
    found: Any = asarray(a)
    for n, axis in reversed(list(zip(lengths, places, strict=True))):
        found = _transformed(found, n, axis, norm, form)
    return found


def _places(a: Any, s: Lengths, axes: Axes) -> tuple[Sequence[int | None], tuple[int, ...]]:
    """A length (None: the operand's) and an axis for each."""
    rank = asarray(a).ndim
    if axes is None and s is not None:
        axes = tuple(range(rank - len(s), rank))
    places = axes_of(axes, rank)
    lengths: Sequence[int | None] = [None] * len(places) if s is None else s
    if len(lengths) != len(places):
        raise ModelError(f"{len(lengths)} lengths for {len(places)} axes", callers_line())
    return lengths, places


def _transformed(a: Any, n: int | None, axis: int, norm: Norm, form: Form) -> Any:
    """The transform, normalised by ``norm``."""
    x: Any = asarray(a)
    place = axis_of(axis, x.ndim)
    length = _length(x.shape[place], n, form)
    part = part_type(promoted(x.dtype, C64))
    parts = [x.real, x.imag] if is_complex(x) else [x]
    cut = (*(slice(None),) * place, slice(0, form.used(length)))
    value = stack([p[cut].cast(part) for p in parts], -1)
    build = TensorBuilder(Tensor)

    def factors(length: Index, dtype: DType) -> Sequence[str]:
        return [build.name(table) for table in _tables(length, dtype)]

    found = build.tensor(along_axis(build, build.name(value), place, form, length, factors))
    scale = _scale(norm, length, form.inverse)
    found = found if scale == 1 else found * scale
    real = found[..., 0]
    return real if found.shape[-1] == 1 else ComplexTensor(real, found[..., 1])


def _length(extent: Index, n: int | None, form: Form) -> int:
    """The length of the transform."""
    length = 2 * (extent - 1) if n is None and form == TO_REAL else extent if n is None else n
    if not isinstance(extent, int) or not isinstance(length, int):
        raise ModelError(f"a Fourier transform along an axis of {extent} elements", callers_line(),
                         "transform along axes whose extents are numbers")  # fmt: skip
    if length < 1:
        raise ModelError(f"a Fourier transform of {length} elements", callers_line(),
                         "give 1 at least")  # fmt: skip
    return length


def _scale(norm: Norm, length: int, inverse: bool) -> float:
    """The remaining factor: the inverse is divided by the length already."""
    match norm:
        case None | "backward":
            return 1.0
        case "ortho":
            return sqrt(length) if inverse else 1 / sqrt(length)
        case "forward":
            return float(length) if inverse else 1 / length
        case _:
            raise ModelError(f"norm={norm!r}", callers_line(), "'backward', 'ortho' or 'forward'")


@lru_cache(16)
def _tables(length: int, dtype: DType) -> Sequence[Tensor]:
    if length <= KEPT:
        return [of_array(table) for table in tables(length, dtype)]
    made = long_tables(length, dtype)
    found = apply(Tensor, made, ())
    return found if made.sizes[1] else found[:1]
