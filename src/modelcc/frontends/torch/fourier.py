"""Handlers of Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence

from modelcc.frontends.kit.complex_values import as_parts, of_parts
from modelcc.frontends.kit.fourier import Form, transformed
from modelcc.frontends.torch.aten import Aten, table
from modelcc.ir.index import Index, product
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.generate import Indices
from modelcc.ops.transcendental import Sqrt
from modelcc.ops.views import reshaped

BY_ROOT, BY_LENGTH = 1, 2
"""PyTorch's codes of normalisation modes; others mean none."""


def real_to_complex(call: Aten, x: Value, dims: Sequence[int], scale: int, onesided: bool) -> Value:
    """The spectrum; ``onesided`` only its half along the last of ``dims``."""
    found = _along(call, reshaped(x, *x.type.shape, 1), dims[-1:], Form(False, onesided), ())
    lengths = [x.type.shape[d] for d in dims]
    whole = _along(call, found, dims[:-1], Form(False, False), ())
    return _complex(call, _scaled(call, whole, product(lengths), scale, 0))


def complex_to_complex(
    call: Aten, x: Value, dims: Sequence[int], scale: int, forward: bool
) -> Value:
    parts = Value(call, as_parts(call.emitter, x.name))
    count = product(parts.type.shape[:-1][d] for d in dims)
    found = _along(call, parts, dims, Form(not forward, False), ())
    return _complex(call, _scaled(call, found, count, scale, 0 if forward else BY_LENGTH))


def complex_to_real(call: Aten, x: Value, dims: Sequence[int], scale: int, length: Index) -> Value:
    """``length`` real numbers from the half spectrum along the last of ``dims``."""
    parts = Value(call, as_parts(call.emitter, x.name))
    parts = _along(call, parts, dims[:-1], Form(True, False), ())
    found = _along(call, parts, dims[-1:], Form(True, True), (length,))
    found = reshaped(found, *found.type.shape[:-1])
    count = product(found.type.shape[d] for d in dims)
    return _scaled(call, found, count, scale, BY_LENGTH)


def _along(
    call: Aten, x: Value, dims: Sequence[int], form: Form, lengths: Sequence[Index]
) -> Value:
    """``x`` [..., parts] transformed along ``dims``, with the given lengths or its own."""
    rank = x.type.rank - 1
    for n, dim in enumerate(dims):
        axis = dim % rank
        length = lengths[n] if lengths else x.type.shape[axis]
        x = Value(call, transformed(call, x.name, axis, form, length))
    return x


def _scaled(call: Aten, x: Value, count: Index, wanted: int, done: int) -> Value:
    """Divided by ``count`` or its root for the ``wanted`` normalisation, given the one already
    ``done``."""
    if wanted == done:
        return x
    power = {BY_ROOT: -0.5, BY_LENGTH: -1.0}
    exponent = power.get(wanted, 0.0) - power.get(done, 0.0)
    if isinstance(count, int):
        return x * math.pow(count, exponent)
    number = call.made(Indices((count,), (), x.type.dtype))
    size = of(Sqrt(), number) if abs(exponent) == 0.5 else number
    return x * size if exponent > 0 else x / size


def _complex(call: Aten, parts: Value) -> Value:
    return Value(call, of_parts(call.emitter, parts.name))


FOURIER = table(_fft_r2c=real_to_complex, _fft_c2c=complex_to_complex, _fft_c2r=complex_to_real)
