"""Warps that take turns at products: what is copied meanwhile, who may not be late, and what it
becomes where there is no such thing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from attention_programs import attention, feeds_of
from group_products import without

from modelcc.ir.condition import Condition
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Sym
from modelcc.ir.loop import For, Function, If, Predicate, Stmt, TakeTurns
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import map_blocks, statements
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tiles import WaitArrival, WaitRoutines
from modelcc.ir.types import Array
from modelcc.passes.loop.expand_tiles import expand_tiles
from modelcc.schedule.group_schedule import TensorAttention
from modelcc.targets.gpu.schedule import schedule_groups

TWO = TensorAttention(128, 64, "wgmma")
WHOLE = attention(1, 1, 128, 310, 16, 16, "f16", "{} * 0.5", "f16")
SEEN = "select(ge(index(i - j + 200):i64, 0), {} * 0.25, -inf)"
"""Rows see three blocks of 64 keys, and some of three further ones, of which one has 10 keys."""
CAUSAL = attention(1, 1, 128, 330, 16, 32, "bf16", SEEN, "bf16")


def function_of(program: TensorProgram) -> Function:
    (function,) = schedule_groups(program, TWO).functions
    assert isinstance(function, Function)
    return function


def run(function: Function, program: TensorProgram) -> Array:
    feeds = feeds_of(program)
    wanted = run_program(program, feeds, {})["y"]
    given = [*feeds.values(), np.zeros(wanted.shape, wanted.dtype)]
    interpret_loops(function, given, [])
    return given[-1]


@pytest.mark.parametrize("program", [WHOLE, CAUSAL], ids=["whole", "causal"])
@pytest.mark.parametrize("expanded", [False, True])
def test_all_blocks_are_there_in_time(program: TensorProgram, expanded: bool) -> None:
    """More than there is memory for."""
    function = function_of(program)
    wanted = run_program(program, feeds_of(program), {})["y"]
    found = run(expand_tiles(function) if expanded else function, program)
    given = (one.astype(np.float32) for one in (found, wanted))
    np.testing.assert_allclose(*given, rtol=1e-2, atol=1e-2)


def test_the_text_says_it_all() -> None:
    function = function_of(WHOLE)
    assert parse_function(print_function(function)) == function


def with_turns(function: Function, change: Callable[[TakeTurns], Sequence[Stmt]]) -> Function:
    def rewrite(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        each = (change(s) if isinstance(s, TakeTurns) else (map_blocks(s, rewrite),) for s in body)
        return tuple(chain.from_iterable(each))

    return replace(function, body=rewrite(function.body))


def test_who_copies_without_turns_overwrites_what_is_read() -> None:
    function = function_of(WHOLE)
    loops = (s for s in statements(function.body) if isinstance(s, For) and s.kind == "thread")
    first = Predicate(tuple(Condition(Sym(loop.variable), "==", 0) for loop in loops))

    def at_once(s: TakeTurns) -> Sequence[Stmt]:
        return (*s.first, If(first, s.copies), *s.rest)

    with pytest.raises(RaceError, match="it may still be read"):
        run(with_turns(function, at_once), WHOLE)


def test_each_wait_is_needed() -> None:
    """Number 0 only where queries come last."""
    function = function_of(WHOLE)
    waiting = (WaitArrival, WaitRoutines)
    kinds = [type(s) for s in statements(function.body) if isinstance(s, waiting)]
    before = [WaitArrival, WaitArrival, WaitRoutines, WaitArrival]
    assert kinds == [*before, WaitArrival, WaitRoutines, WaitArrival, WaitRoutines, WaitRoutines]
    for number in range(1, len(kinds)):
        with pytest.raises(RaceError):
            run(without(function, waiting, number), WHOLE)


def test_only_one_thread_comes_to_copies() -> None:
    def waiting(s: TakeTurns) -> Sequence[Stmt]:
        return (replace(s, copies=(*s.copies, WaitRoutines(0))),)

    with pytest.raises(ModelError, match="only some threads may reach it"):
        verify_function(with_turns(function_of(WHOLE), waiting))
