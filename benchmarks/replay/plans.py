"""Schedules and costs of kernels, as far as a tree reports them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import MappingProxyType
from typing import Any

from modelcc.ir.index import evaluate

try:
    from modelcc.ir.loop_cost import function_cost
except ImportError:  # a tree without work estimates, or with them elsewhere
    function_cost = None

try:
    from modelcc.schedule.text import print_schedule
except ImportError:  # a tree without text of schedules
    print_schedule = None

SCHEDULE = "modelcc.targets.cpu.schedule"
LOWER = "schedule_kernel"
"""The function that lowers a kernel, and receives its schedule."""

NAMED = 16
"""Size of every named dimension for estimates of work."""


class Plans:
    """The text of kernels' schedules, by function names."""

    def __init__(self) -> None:
        self._by_name: dict[str, str] = {}

    @contextmanager
    def noted(self) -> Generator[None]:
        """Clears the records and intercepts the lowering of kernels, if schedules have text."""
        self._by_name.clear()
        if print_schedule is None:
            yield
            return
        module = import_module(SCHEDULE)
        own = getattr(module, LOWER)
        setattr(module, LOWER, self._noting(own, print_schedule))
        try:
            yield
        finally:
            setattr(module, LOWER, own)

    def of(self, name: str) -> str | None:
        """The schedule of the kernel called `name`, None if unknown."""
        return None if print_schedule is None else self._by_name.get(name, "")

    def _noting(
        self, function: Callable[..., Any], text_of: Callable[[Any], str]
    ) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            scheduled = function(*arguments, **named)
            self._by_name[scheduled.function.name] = text_of(scheduled.schedule)
            return scheduled

        return run


def loops_of(function: Any) -> str:
    """Counts of the loops, registers and local buffers of a loop function."""
    counts = Counter[str]()
    _count(function.body, counts)
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


_COUNTED: Mapping[str, str] = MappingProxyType(
    {"Register": "registers", "Alloc": "local buffers", "Prefetch": "prefetches"}
)


def _count(body: Any, counts: Counter[str]) -> None:
    for statement in body:
        kind = type(statement).__name__
        if kind == "For":
            counts[f"{statement.kind} loops"] += 1
        elif kind in _COUNTED:
            counts[_COUNTED[kind]] += 1
        for part in ("then", "other", "body"):
            _count(getattr(statement, part, ()), counts)


def work_of(function: Any, launch: Any) -> tuple[int | None, int | None]:
    """Operations and bytes of a call, with every named dimension :data:`NAMED`."""
    if function_cost is None:
        return None, None
    named: dict[str, int] = defaultdict(lambda: NAMED)
    values = [int(evaluate(size, named)) for size in launch.sizes]
    cost = function_cost(function, dict(zip(function.sizes, values, strict=True)))
    return cost.flops, cost.bytes
