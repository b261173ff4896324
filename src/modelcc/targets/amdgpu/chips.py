"""AMD's GPUs by architecture, as compilers call it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from modelcc.targets.gpu.attention.wave_attention import MATRIX, RDNA3, RDNA4
from modelcc.targets.gpu.machine import GPUS, GpuModel
from modelcc.targets.gpu.products.tensor_product import BYTES, DEEP, EXACT, WHOLE_ROWS

CHIPS: Mapping[str, GpuModel] = {
    "gfx90a": replace(GPUS["mi250"], matrix=("mma", MATRIX, EXACT), matrix_subnormals=False),
    "gfx942": replace(GPUS["mi300"], matrix=("mma", MATRIX, EXACT)),
    "gfx950": replace(GPUS["mi350"], matrix=("mma", MATRIX, EXACT, BYTES, DEEP)),
    "gfx1100": replace(GPUS["rx7900"], matrix=(WHOLE_ROWS, RDNA3)),
    "gfx1201": replace(GPUS["rx9070"], matrix=("mma", BYTES, RDNA4)),
}
"""Machine models by architecture, with the instructions that kernels for it can be printed with:
before gfx950, 8-bit floats have other formats than ours, and RDNA 3 (gfx11) has none."""

DEFAULT = "gfx942"
