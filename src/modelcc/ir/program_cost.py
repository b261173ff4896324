"""Operations and bytes of each step of a host program; see :mod:`modelcc.ir.loop_cost`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from modelcc.ir.index import evaluate
from modelcc.ir.library import meaning_of
from modelcc.ir.loop_cost import Cost, function_cost
from modelcc.ir.program import Allocate, CopyTensor, Launch, Program, Step, Transfer, leaves
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.tensor import ReadSize, View

Work = tuple[int, str, tuple[str, ...], int, int, float]
"""Number of a step, its callee, its sources, its operations, bytes of its buffers, and the greatest
``rounding`` of its launches."""


def step_work(program: Program, env: Mapping[str, int]) -> Iterator[Work]:
    """The work of every step with dimensions and definitions ``env``.

    A loop is one step, its iterations assumed equal to the first (one, if their number is not
    known); a branch costs as much as its more expensive side.
    """
    costs = _Costs(program)
    for number, step in enumerate(program.steps):
        flops, size = _work(step, program, costs, env)
        rounding = max((s.rounding for s in leaves((step,)) if isinstance(s, Launch)), default=1.0)
        yield number, _name(step), step.source, flops, size, rounding


class _Costs:
    """Costs of calls, memoised."""

    def __init__(self, program: Program) -> None:
        self._functions = program.callee
        self._known: dict[tuple[str, tuple[int, ...]], Cost] = {}

    def of(self, name: str, sizes: tuple[int, ...]) -> Cost:
        found = self._known.get((name, sizes))
        if found is None:
            function = meaning_of(self._functions[name])
            found = function_cost(function, dict(zip(function.sizes, sizes, strict=True)))
            self._known[name, sizes] = found
        return found


def _name(step: Step) -> str:
    match step:
        case Launch():
            return step.callee
        case View():
            return f"view {step.input}"
        case CopyTensor():
            return f"copy {step.source_tensor}"
        case ReadSize():
            return f"read {', '.join(step.symbols)}"
        case Transfer():
            return f"transfer {step.tensor} to {step.to}"
        case Allocate():
            return f"allocate {step.name}"
        case Branch():
            return f"branch on {step.condition}"
        case Repeat():
            return f"loop of {' '.join(_name(inner) for inner in step.body)}"


def _work(step: Step, program: Program, costs: _Costs, env: Mapping[str, int]) -> tuple[int, int]:
    match step:
        case Launch():
            cost = costs.of(step.callee, tuple(evaluate(size, env) for size in step.sizes))
            return cost.flops, cost.bytes
        case CopyTensor():
            return 0, 2 * evaluate(program.types[step.target].bytes, env)
        case Transfer():
            return 0, evaluate(program.types[step.tensor].bytes, env)
        case View() | ReadSize() | Allocate():
            return 0, 0
        case Branch():
            sides = (step.then, step.other)
            return max(_total(side, program, costs, env) for side in sides)
        case Repeat():
            trips = 1 if step.trips is None else evaluate(step.trips, env)
            inside = {**env, step.counter: 0}
            flops, size = _total(step.body, program, costs, inside)
            return trips * flops, trips * size


def _total(
    steps: tuple[Step, ...], program: Program, costs: _Costs, env: Mapping[str, int]
) -> tuple[int, int]:
    parts = [_work(step, program, costs, env) for step in steps]
    return sum(flops for flops, _ in parts), sum(size for _, size in parts)
