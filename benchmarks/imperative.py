"""Cost of eager operations: tensors of modelcc and of torch.

    python -m benchmarks.imperative

Prints a Markdown table of CPU microseconds per operation, the median of interleaved rounds, on one
thread: chains of 100 small operations on 1000 floats, followed by reading the value, and one
operation whose value is read immediately.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np

from modelcc.tensor.tensor import Tensor

ROUNDS = 25
CALLS = 20
LENGTH = 100
SIZE = 1000

Chain = Callable[[Any, Any], Any]


def of_tensors(x: Any, y: Any) -> Any:
    """Products with a tensor and sums."""
    for _ in range(LENGTH // 2):
        x = x * y
        x = x + y
    return x


def of_numbers(x: Any, y: Any) -> Any:
    """Products with a number and sums."""
    for _ in range(LENGTH // 2):
        x = x * 1.01
        x = x + 0.5
    return x


def of_functions(x: Any, y: Any) -> Any:
    """Functions of elements, with operations in between."""
    for _ in range(LENGTH // 4):
        x = abs(x.exp() - y)
        x = -x
    return x


def single(x: Any, y: Any) -> Any:
    """One operation."""
    return x * y


CHAINS: Mapping[str, tuple[Chain, int]] = MappingProxyType({
    "x * y + y …": (of_tensors, LENGTH),
    "x * 1.01 + 0.5 …": (of_numbers, LENGTH),
    "-abs(exp(x) - y) …": (of_functions, LENGTH),
    "x * y": (single, 1),
})  # fmt: skip


def calls(chain: Chain) -> dict[str, Callable[[], object]]:
    """The chain by engine; each ends by reading its value."""
    torch: Any = import_module("torch")
    torch.set_num_threads(1)
    arrays = [np.random.default_rng(k).normal(size=SIZE).astype(np.float32) * 0.1 for k in (0, 1)]
    x, y = map(Tensor, arrays)
    a, b = (torch.from_numpy(array) for array in arrays)

    def eager() -> object:
        with torch.no_grad():
            return chain(a, b)

    np.testing.assert_allclose(chain(x, y).numpy(), np.asarray(eager()), 1e-4, 1e-5)
    return {"modelcc": lambda: chain(x, y).numpy(), "torch eager": eager}


def microseconds(
    functions: Mapping[str, Callable[[], object]], operations: int
) -> dict[str, float]:
    """CPU time of one operation by engine, the median over interleaved rounds."""
    found: dict[str, list[float]] = {name: [] for name in functions}
    count = CALLS * LENGTH // operations if operations == 1 else CALLS
    for _ in range(ROUNDS):
        for name, call in functions.items():
            call()
            start = time.process_time()
            for _ in range(count):
                call()
            found[name].append((time.process_time() - start) / count / operations * 1e6)
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    """Measure and print."""
    print("| µs per operation | modelcc | torch eager | ratio |")
    print("|---|---:|---:|---:|")
    for name, (chain, operations) in CHAINS.items():
        ours, theirs = microseconds(calls(chain), operations).values()
        print(f"| `{name}` | {ours:.2f} | {theirs:.2f} | {theirs / ours:.2f} |")


if __name__ == "__main__":
    main()
