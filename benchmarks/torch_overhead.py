"""Overhead of a call of a compiled module.

    python -m benchmarks.torch_overhead

Prints a Markdown table of microseconds per call of modules of almost no work; one thread.
"""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.torch_turns import engines, in_turns, table


class Relu(torch.nn.Module):
    """One operator."""

    def forward(self, x: Any) -> Any:
        """The positive part."""
        return torch.relu(x)


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    models = {"relu of 16": (Relu(), torch.randn(16)),
              "linear 16 x 16": (torch.nn.Linear(16, 16), torch.randn(4, 16))}  # fmt: skip
    rows: dict[str, dict[str, float]] = {}
    for name, (model, x) in models.items():
        ways = engines(model)
        with torch.no_grad():
            rows[name] = in_turns({n: lambda way=way, x=x: way(x) for n, way in ways.items()})
        rows[f"{name}, with gradients"] = in_turns(
            {n: lambda way=way, x=x: way(x) for n, way in ways.items()}
        )
    print(table("µs per call", rows))


if __name__ == "__main__":
    main()
