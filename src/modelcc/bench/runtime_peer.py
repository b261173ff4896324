"""modelcc's runtime as :mod:`modelcc.bench.worker` runs it: without the compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypedDict

from modelcc.ir.types import Array
from modelcc.runtime.opening import load


class Settings(TypedDict):
    """Where the artifact is, and how many threads run it."""

    artifact: str
    threads: int


def bench_engine(
    _model: str, options: Settings
) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The compiled model in the file ``options["artifact"]``."""
    return load(options["artifact"], options["threads"]).run
