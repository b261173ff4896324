"""Conversions between ``float`` and the 16-bit floats, rounded to nearest even.

A bf16 is the upper half of a float.  The exponent bias of f16 is smaller by 112: rescaling by a
multiplication also handles subnormal numbers; the sum with 0.5, whose last bit weighs 2^-24, rounds
small floats to the spacing of f16's subnormals.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from modelcc.ir.types import F16, F32, U32, DType
from modelcc.targets.c.prelude import Prelude

_BODIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "bf16_f32": ("return (V)(__builtin_convertvector(h, U) << 16);",),
        "f32_bf16": (
            "U u = (U)a, nan = (U)(a != a);",
            "U rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;",
            "U quiet = (u >> 16) | 0x40;",
            "return __builtin_convertvector((nan & quiet) | (~nan & rounded), H);",
        ),
        "f16_f32": (
            "U u = __builtin_convertvector(h, U);",
            "U sign = (u & 0x8000) << 16, moved = (u & 0x7fff) << 13;",
            "U special = (U)(moved >= 0x0f800000);",
            "U scaled = (U)((V)moved * 0x1p112f);",
            "return (V)(sign | (special & (moved | 0x7f800000)) | (~special & scaled));",
        ),
        "f32_f16": (
            "U u = (U)a & 0x7fffffff, sign = ((U)a >> 16) & 0x8000;",
            "U tiny = (U)(u < 0x38800000), nan = (U)(u > 0x7f800000);",
            "U normal = (u + 0xfff + ((u >> 13) & 1) - 0x38000000) >> 13;",
            "U small = (U)((V)u + 0.5f) - 0x3f000000;",
            "U huge = (U)(u >= 0x477ff000);",
            "U h = (tiny & small) | (~tiny & ((huge & 0x7c00) | (~huge & normal)));",
            "return __builtin_convertvector(sign | h | (nan & 0x7e00), H);",
        ),
    }
)

_SCALAR: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "bf16_f32": ("return f32_of_u32_bits((uint32_t)h << 16);",),
        "f32_bf16": (
            "const uint32_t u = u32_of_f32_bits(a);",
            "if (a != a) return (uint16_t)((u >> 16) | 0x40);",
            "return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);",
        ),
        "f16_f32": (
            "const uint32_t sign = (h & 0x8000u) << 16, moved = (h & 0x7fffu) << 13;",
            "const float scaled = f32_of_u32_bits(moved) * 0x1p112f;",
            "if (moved >= 0x0f800000) return f32_of_u32_bits(sign | moved | 0x7f800000);",
            "return f32_of_u32_bits(sign | u32_of_f32_bits(scaled));",
        ),
        "f32_f16": (
            "const uint32_t bits = u32_of_f32_bits(a), u = bits & 0x7fffffff;",
            "const uint32_t sign = (bits >> 16) & 0x8000;",
            "const uint32_t normal = (u + 0xfff + ((u >> 13) & 1) - 0x38000000) >> 13;",
            "const uint32_t small = u32_of_f32_bits(f32_of_u32_bits(u) + 0.5f) - 0x3f000000;",
            "if (u > 0x7f800000) return (uint16_t)(sign | 0x7e00);",
            "if (u >= 0x477ff000) return (uint16_t)(sign | 0x7c00);",
            "return (uint16_t)(sign | (u < 0x38800000 ? small : normal));",
        ),
    }
)
"""The same for scalars."""


class HalfFunctions:
    """Names of conversion functions, defined in ``prelude``."""

    def __init__(self, prelude: Prelude) -> None:
        self._prelude = prelude

    def widen(self, source: DType, lanes: int) -> str:
        """``(bits) -> float``."""
        return self._function(f"{source}_f32", "h", lanes, "H", "V", _kind(source))

    def narrow(self, target: DType, lanes: int) -> str:
        """``(float) -> bits``."""
        return self._function(f"f32_{target}", "a", lanes, "V", "H", _kind(target))

    def _function(
        self, body: str, argument: str, lanes: int, parameter: str, result: str, kind: str
    ) -> str:
        way = f"{'from' if result == 'V' else 'to'}_{kind}"
        if lanes == 1:
            known = dict(self._prelude.dialect.halves)
            for ends in () if body in known else ((U32, F32), (F32, U32)):
                self._prelude.bitcast(*ends)
            types = {"V": "float", "H": "uint16_t"}
            own = f"{types[parameter]} {argument}"
            lines = [known[body]] if body in known else list(_SCALAR[body])
            return self._prelude.function(f"f32_{way}", types[result], own, lambda: lines)
        names = {
            "V": self._prelude.vector(F32, lanes),
            "U": self._prelude.bits(32, lanes),
            "H": self._prelude.bits(16, lanes),
        }
        spelled = [_spelled(line, names) for line in _BODIES[body]]
        own = f"{names[parameter]} {argument}"
        return self._prelude.function(f"f32x{lanes}_{way}", names[result], own, lambda: spelled)


def _kind(dtype: DType) -> str:
    return "f16" if dtype == F16 else "bf16"


def _spelled(line: str, names: Mapping[str, str]) -> str:
    for letter, name in names.items():
        line = line.replace(f"({letter})", f"({name})").replace(f", {letter})", f", {name})")
        if line.startswith(f"{letter} "):
            line = name + line[1:]
    return line
