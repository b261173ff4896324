"""Named ranges in the traces of NVIDIA's profilers, where the package ``nvtx`` is installed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from typing import Any

Ranges = Callable[[str], AbstractContextManager[Any]]


def profiler_ranges() -> Ranges:
    """A function that makes a named range around a block; without the package, it does nothing."""
    try:
        nvtx: Any = import_module("nvtx")
    except ImportError:
        return nullcontext
    return partial(nvtx.annotate, domain="modelcc")
