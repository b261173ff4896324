"""modelcc's runtime as an engine of :mod:`modelcc.bench.worker`: without the compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypedDict

from modelcc.ir.types import Array
from modelcc.runtime.opening import load


class Settings(TypedDict):
    """Path of the artifact, and number of threads."""

    artifact: str
    threads: int


def bench_engine(
    _model: str, options: Settings
) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The compiled model in the file ``options["artifact"]``."""
    return load(options["artifact"], options["threads"]).run
