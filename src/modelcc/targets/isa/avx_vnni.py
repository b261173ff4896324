"""AVX-VNNI: the dot products of AVX-512 VNNI, for processors without AVX-512."""

from __future__ import annotations

from modelcc.targets.isa.vnni import encodings

_WHERE = (("+avxvnni",), ("__AVXVNNI__",))
_VEX = "{vex} vpdpbusd"
"""The same name in the encoding without masks."""

ENCODINGS = (
    *encodings(8, *_WHERE, "_mm256_dpbusd_avx_epi32", _VEX),
    *encodings(4, *_WHERE, "_mm_dpbusd_avx_epi32", _VEX),
)
