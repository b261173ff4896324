"""How kernels are scheduled and what they cost, as far as a tree tells.

There is no text of schedules.  What a kernel went through is seen by listening to the planners of
`modelcc.targets.cpu.schedule`; a tree that has others tells nothing.
"""

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
except ImportError:  # a tree that estimates no work, or elsewhere
    function_cost = None

SCHEDULE = "modelcc.targets.cpu.schedule"
PLANNERS: Mapping[str, str] = MappingProxyType(
    {
        "emit_tiled": "tiled",
        "emit_rows": "rows",
        "emit_row_blocks": "row blocks",
        "in_blocks": "phases",
    }
)
"""Functions that lay out (a part of) a kernel, and what to call that."""

WHOLE: Mapping[str, str] = MappingProxyType({"schedule_kernel": "", "schedule_scatter": "scatter"})
"""Functions that schedule a kernel, whose name is their argument or their result's."""

NAMED = 16
"""Size of every named dimension for estimates of work."""


class Plans:
    """Listens to the planners, where there are all of them."""

    def __init__(self) -> None:
        self._module = _module()
        self._seen: list[str] = []
        self._by_name: dict[str, str] = {}

    @contextmanager
    def noted(self) -> Generator[None]:
        """Forgets what it knows and listens."""
        self._by_name.clear()
        if self._module is None:
            yield
            return
        own = {name: getattr(self._module, name) for name in (*PLANNERS, *WHOLE)}
        for name, word in PLANNERS.items():
            setattr(self._module, name, self._part(own[name], word))
        for name, word in WHOLE.items():
            setattr(self._module, name, self._whole(own[name], word))
        try:
            yield
        finally:
            for name, function in own.items():
                setattr(self._module, name, function)

    def of(self, name: str) -> str | None:
        """What the kernel called `name` went through, None if nobody tells."""
        return None if self._module is None else self._by_name.get(name, "")

    def _part(self, function: Callable[..., Any], word: str) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            self._seen.append(word)
            return function(*arguments, **named)

        return run

    def _whole(self, function: Callable[..., Any], word: str) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            self._seen = [word] if word else []
            scheduled = function(*arguments, **named)
            counts = Counter(self._seen).items()
            words = (f"{count} {part}" if count > 1 else part for part, count in counts)
            self._by_name[scheduled.function.name] = ", ".join(words)
            return scheduled

        return run


def _module() -> Any:
    try:
        module = import_module(SCHEDULE)
    except ImportError:
        return None
    return module if all(hasattr(module, name) for name in (*PLANNERS, *WHOLE)) else None


def loops_of(function: Any) -> str:
    """The loops, registers and local buffers of a loop function, counted."""
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
    """Operations and bytes of a call, every named dimension being :data:`NAMED`."""
    if function_cost is None:
        return None, None
    named: dict[str, int] = defaultdict(lambda: NAMED)
    values = [int(evaluate(size, named)) for size in launch.sizes]
    cost = function_cost(function, dict(zip(function.sizes, values, strict=True)))
    return cost.flops, cost.bytes
