"""Copies to shared memory that go on beside: every way in which something meets them."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.loop import Function
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.types import Array

COPY = "copy %s[t] = %x[8*g + t]"
RACES = {
    "one batch too few": (
        f"{COPY} commit copy %s[8 + t] = %x[8*g + t] commit wait 1 barrier"
        " store %y[8*g + t] = load %s[8 + t]",
        "element 8 of %s: .* a copy comes there: a wait is missing",
    ),
    "no batch": (
        f"{COPY} wait 0 barrier store %y[8*g + t] = load %s[t]",
        "element 0 of %s: .* a copy comes there: a wait is missing",
    ),
    "another thread's": (
        f"{COPY} commit wait 0 store %y[8*g + t] = load %s[(t + 1) mod 8]",
        "element 1 of %s: .* a barrier is missing",
    ),
    "written where a copy comes": (
        f"{COPY} commit store %s[t] = f32(0.0) wait 0",
        "element 0 of %s: .* a copy comes there: a wait is missing",
    ),
    "written where a copy reads": (
        "copy %s[t] = %y[8*g + t] commit store %y[8*g + t] = f32(0.0) wait 0",
        "element 0 of %y: .* a copy reads there: a wait is missing",
    ),
    "written by another thread where a copy reads": (
        "copy %s[2*t] = %y[8*g + 2*(t mod 4)] x2 commit barrier"
        " store %y[8*g + (t + 3) mod 8] = f32(0.0) barrier wait 0",
        "element 3 of %y: .* a copy reads there: a wait is missing",
    ),
    "what others still read": (
        f"store %s[t] = f32(1.0) barrier let %a = load %s[(t + 1) mod 8] {COPY} commit wait 0"
        " store %y[8*g + t] = %a",
        "element 1 of %s: .* a barrier is missing",
    ),
}


def group(body: str) -> Function:
    return parse_function(f"""func @f(%x: f32[8*n], %y: mut f32[8*n]; n) {{
      grid g in 0 .. n {{ shared %s: f32[16] thread t in 0 .. 8 {{ {body} }} }}
    }}""")


def run(body: str) -> Array:
    function, y = group(body), np.arange(16, dtype=np.float32)
    verify_function(function)
    interpret_loops(function, [np.arange(1, 17, dtype=np.float32), y], [2])
    return y


@pytest.mark.parametrize("name", RACES)
def test_what_meets_a_copy_is_found(name: str) -> None:
    body, message = RACES[name]
    with pytest.raises(RaceError, match=message):
        run(body)


def test_behind_waits_copies_are_there_and_memory_is_free() -> None:
    """Twice the same memory, whose source is written when all have read it."""
    body = (
        "copy %s[t] = %y[8*g + t] commit wait 0 barrier"
        " store %y[8*g + t] = load %s[7 - t] barrier"
        " copy %s[t] = %y[8*g + t] mask(4 - t) commit copy %s[8 + t] = %x[8*g + t] commit"
        " store %y[8*g + 4 + t mod 4] mask(4 - t) = f32(3.0)"
        " wait 0 barrier store %y[8*g + t] = add(load %s[t], load %s[8 + t])"
    )
    first = np.arange(16, dtype=np.float32).reshape(2, 8)[:, ::-1].copy()
    first[:, 4:] = 0
    wanted = first + np.arange(1, 17, dtype=np.float32).reshape(2, 8)
    np.testing.assert_array_equal(run(body), wanted.ravel())
