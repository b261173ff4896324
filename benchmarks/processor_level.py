"""Restricts all engines to code for an older processor than this one."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import Any

Native = Mapping[str, Any]
"""Options of modelcc: the number of threads, the processor."""

PEERS: Mapping[str, Mapping[str, str]] = {
    "x86-64-v2": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2",
    },
    "x86-64-v3": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
    },
}
"""Environment variables that restrict PyTorch, its libraries and JAX to a level.  PyTorch's own
kernels and those of inductor follow the first, but inductor's compiler still optimises for this
processor."""


def add_level(parser: argparse.ArgumentParser) -> None:
    """The option ``--cpu``."""
    parser.add_argument("--cpu", choices=PEERS, help="level that all engines keep to")


def keep_to(level: str | None) -> None:
    """Restricts subsequent processes to ``level``; this one must not have loaded the libraries'
    kernels yet, which check once."""
    os.environ.update(PEERS.get(level or "", {}))
