"""Parallel loops as functions of their own mean the same on any ranges of iterations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from loop_programs import CASES, Case, captures, check

from modelcc.ir.loop import Function, ParallelCall
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_parser import parse_function, parse_functions
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import parallel_loop, takes_pool
from modelcc.ir.loop_verifier import verify_function
from modelcc.passes.loop import outline_parallel as module
from modelcc.passes.loop.outline_parallel import outline_parallel

PARALLEL = [case for case in CASES if parallel_loop(case.function)]


def _interpreted(
    function: Function, arguments: dict[str, np.ndarray], sizes: Mapping[str, int]
) -> None:
    arrays = [arguments[parameter.buffer.name] for parameter in function.parameters]
    interpret_loops(function, arrays, [sizes[name] for name in function.sizes])


def test_example() -> None:
    before, after = (parse_functions(part)[0] for part in _example())
    outlined = outline_parallel(before)
    assert outlined == after
    assert outline_parallel(outlined) == outlined


def _example() -> list[str]:
    parts = (module.__doc__ or "").split("becomes::")
    return [part[part.index("func @") : part.rindex("}") + 1] for part in parts]


@pytest.mark.parametrize("case", PARALLEL, ids=lambda c: c.name)
def test_means_the_same(case: Case) -> None:
    outlined = outline_parallel(case.function)
    verify_function(outlined)
    assert parse_function(print_function(outlined)) == outlined
    assert takes_pool(outlined) and not parallel_loop(outlined)
    check(Case(outlined, case.arguments, case.sizes, case.expected, case.tolerance), _interpreted)


def test_captures_buffers_values_and_indices() -> None:
    outlined = outline_parallel(captures(22).function)
    (call,) = (s for s in outlined.body if isinstance(s, ParallelCall))
    assert [p.buffer.name for p in call.outlined.parameters] == ["x", "t", "y"]
    assert [value.name for value in call.outlined.values] == ["s", "m", ".g"]
    assert call.outlined.sizes == ("n", ".begin", ".end")


def test_a_function_without_a_parallel_loop_stays() -> None:
    for case in CASES:
        if not parallel_loop(case.function):
            assert outline_parallel(case.function) is case.function


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("for i in 0 .. 4 { parallel j in 0 .. 4 { } }", "besides its outermost one"),
        ("parallel i in 0 .. 4 { } parallel j in 0 .. 4 { }", "besides its outermost one"),
        ("register %a = f32(1.0) parallel i in 0 .. 4 { store %y[i] = %a }", "register 'a'"),
    ],
)
def test_refuses(body: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        outline_parallel(parse_function(f"func @f(%y: mut f32[4]) {{ {body} }}"))


def test_only_a_part_of_the_iterations_runs() -> None:
    body = "for i in 1 .. 9 step 2 part 1 .. 3 { store %y[i] = f32(1.0) }"
    y = np.zeros(9, np.float32)
    interpret_loops(parse_function(f"func @f(%y: mut f32[9]) {{ {body} }}"), [y], [])
    assert y.nonzero()[0].tolist() == [3, 5]
