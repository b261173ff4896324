"""Selects the processor's instructions for arithmetic, and expands those that it lacks.

    let %y = add(%s, dot_bytes(%a, %b))
    let %t = dot4(load %u[0] x4, load %w[0] x4, %s)

becomes, for a processor with the first and without the second::

    let %y = add_dot_bytes(%a, %b, %s)
    let %isa0 = load %u[0] x4
    let %isa1 = load %w[0] x4
    let %t = muladd(convert[i32](shuffle[3](%isa0, %isa0)), …)

The semantics of instructions is all that this uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from modelcc.ir.instructions import LANE, vectors
from modelcc.ir.loop import Const, Expr, Function, Instruction, Intrinsic, Load, ScalarCall, Stmt
from modelcc.ir.loop_traversal import (
    map_blocks,
    map_routines,
    mentions,
    operands,
    statement_expressions,
    walk,
    with_operands,
    with_statement_expressions,
)
from modelcc.passes.loop.elementary.builder import CodeBuilder, Term, builder_for

Available = Mapping[Instruction, frozenset[int]]
"""Instructions of a processor, and the lane counts of each."""


def expand_instructions(function: Function, available: Available) -> Function:
    """``function``, and routines that it calls, with ``available`` instructions only."""
    called = map_routines(function.body, lambda routine: expand_instructions(routine, available))
    function = replace(function, body=called) if called != function.body else function
    patterns = sorted(filter(_is_pattern, available), key=_size, reverse=True)
    innermost = {_calls(i)[-1] for i in patterns}

    def concerns(e: Expr) -> bool:
        """Whether it may match an instruction, or is an unavailable one."""
        if isinstance(e, Intrinsic):
            return e.lanes not in available.get(e.instruction, ())
        return isinstance(e, ScalarCall) and e.function in innermost

    if not mentions(function.body, concerns):
        return function
    expander = _Expander(builder_for(function, "isa"), available, patterns)
    return replace(function, body=expander.block(function.body))


def _is_pattern(instruction: Instruction) -> bool:
    """Whether it equals scalar functions of numbers in each lane, to the last bit."""
    parts = walk(instruction.meaning)
    return instruction.exact and all(
        isinstance(e, ScalarCall | Const) or (isinstance(e, Load) and e.offset == LANE)
        for e in parts
    )


def _calls(instruction: Instruction) -> list[str]:
    return [e.function for e in walk(instruction.meaning) if isinstance(e, ScalarCall)]


def _size(instruction: Instruction) -> int:
    return len(_calls(instruction))


class _Expander:
    def __init__(
        self, builder: CodeBuilder, available: Available, patterns: Sequence[Instruction]
    ) -> None:
        self._builder = builder
        self._available = available
        self._patterns = patterns

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The statements, each after the ones it now depends on."""
        result: list[Stmt] = []
        for s in body:
            expressions = [self._expression(e) for e in statement_expressions(s)]
            result += self._builder.take()
            result.append(map_blocks(with_statement_expressions(s, expressions), self.block))
        return tuple(result)

    def _expression(self, e: Expr) -> Expr:
        chosen = self._selected(e) or e
        inner = operands(chosen)
        e = with_operands(chosen, [self._expression(o) for o in inner]) if inner else chosen
        if not isinstance(e, Intrinsic) or self._has(e.instruction, e.lanes):
            return e
        args = tuple(self._builder.let(Term(a)).expr for a in e.args)
        return vectors(Intrinsic(e.instruction, args))

    def _selected(self, e: Expr) -> Intrinsic | None:
        """The instruction that computes ``e`` and as many of its subexpressions as possible."""
        for instruction in self._patterns if isinstance(e, ScalarCall) else ():
            if self._has(instruction, e.lanes):
                bindings = dict(_matched(instruction.meaning, e))
                if None not in bindings:
                    args = tuple(bindings[o.name] for o in instruction.operands)
                    return Intrinsic(instruction, args)
        return None

    def _has(self, instruction: Instruction, lanes: int) -> bool:
        return lanes in self._available.get(instruction, ())


def _matched(pattern: Expr, e: Expr) -> Iterator[tuple[str | None, Expr]]:
    """The operands of ``pattern`` in ``e``; None for parts that do not match."""
    match pattern, e:
        case Load(), _ if pattern.dtype == e.dtype:
            yield pattern.buffer, e
        case ScalarCall(), ScalarCall() if (
            pattern.function == e.function and pattern.dtype == e.dtype
        ):
            for part, arg in zip(pattern.args, e.args, strict=True):
                yield from _matched(part, arg)
        case Const(), Const() if replace(pattern, lanes=e.lanes) == e:
            pass
        case _:
            yield None, e
