"""Fourier transforms, with complex numbers as pairs on the graph level."""

from __future__ import annotations

from modelcc.exporters.stablehlo.builder import Hlo
from modelcc.exporters.stablehlo.writing import Names, Types, Writing
from modelcc.frontends.kit.errors import number_of
from modelcc.ir.types import C64, C128, F32, TensorType
from modelcc.ops.fourier import FourierTransform


def fourier(at: Writing, op: FourierTransform, inputs: Names, types: Types) -> tuple[Hlo]:
    """``fft`` of complex or real numbers; StableHLO scales inverse ones by the length."""
    hlo, domain, (type,), x = at.hlo, at.domain(), types, at.values[inputs[0]]
    length = number_of(op.length, "length")
    numbers = C64 if type.dtype == F32 else C128
    if not op.real:
        parts = [_part(at, x, n) for n in range(2)]
        names = ", ".join(p.name for p in parts)
        x = hlo.convert_by(f"complex {names}", TensorType(x.shape[:2], numbers), *parts)
    kind = "RFFT" if op.real else "IFFT" if op.inverse else "FFT"
    result = TensorType(type.shape[:2], numbers)
    found = hlo.convert_by(f"fft {x.name}, type = {kind}, length = [{length}]", result, x)
    plain = TensorType(type.shape[:2], type.dtype)
    halves = [hlo.convert_by(f"{n} {found.name}", plain, found) for n in ("real", "imag")]
    columns = [domain.reshape(h, (*h.shape, 1)) for h in halves]
    made = hlo.concatenate(columns, 2, type)
    if op.inverse == op.divided:
        return (made,)
    factor = domain.broadcast(hlo.scalar(length, type.dtype), (), type)
    return (hlo.elementwise("multiply" if op.inverse else "divide", made, factor),)


def _part(at: Writing, x: Hlo, number: int) -> Hlo:
    rows, length, _ = x.shape
    one = at.domain().slice(x, (0, 0, number), (rows, length, 1), (1, 1, 1))
    return at.domain().reshape(one, (rows, length))
