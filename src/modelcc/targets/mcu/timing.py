"""Cycles of kinds of instructions, for estimates.

From the processors' manuals (Arm's technical reference manuals) if these have tables; memory
without wait states.  Dual-issue processors pair a fraction of the instructions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, cast

Kind = Literal[
    "plain", "multiply", "long_multiply", "divide", "load", "store", "pair", "several",
    "registers", "taken", "float", "float_product", "float_divide", "vector",
]  # fmt: skip
"""``several`` registers are moved from or to memory by one instruction, ``registers`` counts them;
``pair`` are two; ``taken`` branches are counted in addition to their kind."""

Counts = Counter[Kind]
"""Number of instructions of each kind."""


def counted(**kinds: int) -> Counts:
    """Counts by the names of kinds."""
    return cast(Counts, Counter(kinds))


ADDED: frozenset[Kind] = frozenset(("registers", "taken"))
"""Kinds that are no instructions of their own."""


@dataclass(frozen=True)
class Timing:
    """Cycles of each kind, 1 by default; ``share`` is the fraction of the total that remains with
    dual issue."""

    cycles: Mapping[Kind, float] = field(default_factory=dict[Kind, float])
    share: float = 1.0

    def estimate(self, counts: Mapping[Kind, float]) -> float:
        """Cycles of ``counts`` instructions."""
        usual: Mapping[Kind, float] = self.cycles
        return self.share * sum(count * usual.get(kind, 1.0) for kind, count in counts.items())


def instructions(counts: Mapping[Kind, float]) -> float:
    """Total instructions."""
    return sum(count for kind, count in counts.items() if kind not in ADDED)


_M3: Mapping[Kind, float] = {
    "load": 2, "store": 1, "pair": 3, "taken": 2, "multiply": 1.5, "long_multiply": 5, "divide": 7,
}  # fmt: skip
_M4: Mapping[Kind, float] = {
    "load": 1.5, "store": 1, "pair": 3, "taken": 2, "divide": 7,
    "float_product": 3, "float_divide": 14,
}  # fmt: skip

TIMINGS: Mapping[str, Timing] = MappingProxyType(
    {
        "mcu": Timing({"load": 2, "taken": 2, "divide": 20}),
        "cortex-m0plus": Timing({"load": 2, "store": 2, "taken": 1}),
        "cortex-m3": Timing(_M3),
        "cortex-m4": Timing(_M4),
        "cortex-m7": Timing({"taken": 1, "divide": 8, "float_product": 2, "float_divide": 14}, 0.7),
        "cortex-m33": Timing({**_M4, "load": 1.5, "pair": 2, "taken": 1.5, "divide": 6}),
        "cortex-m55": Timing({"pair": 2, "divide": 6, "vector": 2, "float_divide": 14}, 0.9),
        "riscv32imc": Timing({"load": 2, "taken": 2, "multiply": 1, "divide": 33}),
    }
)  # fmt: skip
"""By the names of targets."""
