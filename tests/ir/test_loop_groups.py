"""Groups of threads: what they compute, and every way in which they depend on who comes first."""

from __future__ import annotations

import re

import numpy as np
import pytest

from modelcc.ir import loop
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Sym
from modelcc.ir.loop_group_verifier import GroupLimits
from modelcc.ir.loop_groups import DivergenceError, RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import launch_extents
from modelcc.ir.loop_verifier import verify_function
from modelcc.targets.c.emitter import emit_c
from modelcc.targets.llvm.emitter import emit_llvm

SUMS = """func @sums(%x: f32[64*n], %y: mut f32[n]; n) {
  grid g in 0 .. n {
    shared %part: f32[64]
    thread t in 0 .. 64 {
      store %part[t] = load %x[64*g + t]
      barrier
      if predicate(t == 0) {
        register %sum = f32(0.0)
        for i in 0 .. 64 {
          %sum = add(%sum, load %part[i])
        }
        store %y[g] = %sum
      }
    }
  }
}
"""

TRANSPOSED = """func @transpose(%x: f32[m*n], %y: mut f32[m*n]; m, n) {
  grid gi in 0 .. (m + 3) floordiv 4 {
    grid gj in 0 .. (n + 3) floordiv 4 {
      shared %tile: f32[16]
      thread ti in 0 .. 4 {
        thread tj in 0 .. 4 {
          local %own: f32[1]
          if predicate(4*gi + ti < m, 4*gj + tj < n) {
            store %own[0] = load %x[(4*gi + ti)*n + 4*gj + tj]
            store %tile[4*ti + tj] = load %own[0]
          }
          barrier
          if predicate(4*gi + tj < m, 4*gj + ti < n) {
            store %y[(4*gj + ti)*m + 4*gi + tj] = load %tile[4*tj + ti]
          }
        }
      }
    }
  }
}
"""


EXCHANGED = """func @exchanged(%x: f32[8*n], %y: mut f32[8*n]; n) {
  grid g in 0 .. n {
    thread w in 0 .. 2 {
      thread t in 0 .. 4 {
        register %sum = load %x[8*g + 4*w + t]
        register %other = %sum
        for i in 0 .. 2 {
          exchange %other across 1
          %sum = add(%sum, %other)
          %other = %sum
        }
        exchange %sum across 2
        store %y[8*g + 4*w + t] = %sum
      }
    }
  }
}
"""


@pytest.mark.parametrize("text", [SUMS, TRANSPOSED, EXCHANGED])
def test_text_reads_back_and_is_accepted(text: str) -> None:
    function = parse_function(text)
    verify_function(function, GroupLimits(shared_bytes=256, threads=64))
    assert parse_function(print_function(function)) == function
    assert print_function(parse_function(print_function(function))) == print_function(function)


def test_threads_of_a_group_share_memory() -> None:
    x = np.arange(192, dtype=np.float32)
    y = np.zeros(3, np.float32)
    interpret_loops(parse_function(SUMS), [x, y], [3])
    np.testing.assert_array_equal(y, x.reshape(3, 64).sum(1))


def test_threads_of_a_warp_exchange_registers() -> None:
    """Each pair's sum twice over, of the other pair of its warp."""
    x, y = np.arange(24, dtype=np.float32), np.zeros(24, np.float32)
    interpret_loops(parse_function(EXCHANGED), [x, y], [3])
    pairs = 2 * x.reshape(-1, 2, 2).sum(2)[:, ::-1]
    np.testing.assert_array_equal(y, pairs.repeat(2, 1).reshape(-1))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("0 .. 4 {", "0 .. 3 {", "3 threads do not exchange across 1"),
        ("across 2", "across 4", "4 threads do not exchange across 4"),
        ("%sum across", "%x across", "threads exchange registers, and %x is none"),
        ("exchange %sum across 2", "if predicate(t < 2) { exchange %sum across 2 }", "only some"),
    ],
)
def test_exchanges_that_threads_cannot_do_are_refused(
    before: str, after: str, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        verify_function(parse_function(EXCHANGED.replace(before, after)))


def test_the_example_of_the_loop_level_is_one() -> None:
    text = f"func @halves{(loop.__doc__ or '').split('func @halves')[1]}"
    function = parse_function(text)
    verify_function(function)
    x, y = np.arange(128, dtype=np.float32), np.zeros(64, np.float32)
    interpret_loops(function, [x, y], [2])
    np.testing.assert_array_equal(y.reshape(2, 32), x.reshape(2, 2, 32).sum(1))


def test_grids_of_two_dimensions() -> None:
    x = np.arange(70, dtype=np.float32).reshape(7, 10)
    y = np.zeros((10, 7), np.float32)
    function = parse_function(TRANSPOSED)
    interpret_loops(function, [x, y], [7, 10])
    np.testing.assert_array_equal(y, x.T)
    m, n = Sym("m"), Sym("n")
    assert launch_extents(function) == (((n + 3) // 4, (m + 3) // 4), (4, 4))


def group(body: str, shared: str = "", grid: str = "g in 0 .. 2", threads: str = "t in 0 .. 4"):
    """A function whose threads do ``body``."""
    text = f"""func @f(%x: f32[16], %y: mut f32[16], %k: i64[16]; n) {{
      grid {grid} {{ {shared} thread {threads} {{ {body} }} }} }}"""
    return parse_function(text)


def run(body: str, shared: str = "shared %s: f32[8]", grid: str = "g in 0 .. 2") -> np.ndarray:
    """What ``%y`` holds afterwards."""
    y = np.zeros(16, np.float32)
    function = group(body, shared, grid)
    verify_function(function)
    interpret_loops(function, [np.arange(16, dtype=np.float32), y, np.arange(16)], [4])
    return y


RACES = {
    "store %s[0] = f32(1.0)": (
        "element 0 of %s: thread (t=0) writes it and thread (t=1) writes it, without a barrier "
        "between them, in group (g=0): a race"
    ),
    "store %s[t] = f32(1.0) let %a = load %s[(t + 3) mod 4]": (
        "element 0 of %s: thread (t=0) writes it and thread (t=1) reads it, without a barrier "
        "between them, in group (g=0): a barrier is missing"
    ),
    "store %s[t] = f32(1.0) let %a = load %s[(t + 1) mod 4]": (
        "element 1 of %s: thread (t=0) reads it and thread (t=1) writes it, without a barrier "
        "between them, in group (g=0): a barrier is missing"
    ),
    "store %s[t] = f32(1.0) barrier let %a = load %s[3] store %s[t] = f32(2.0)": (
        "element 3 of %s: thread (t=0) reads it and thread (t=3) writes it, without a barrier"
    ),
    "store %y[4*g] = f32(1.0)": (
        "element 0 of %y: thread (t=0) writes it and thread (t=1) writes it"
    ),
    "store %y[t] = f32(1.0)": (
        "element 0 of %y: group (g=0) writes it and group (g=1) writes it; nothing orders groups"
    ),
    "let %a = load %y[4 + t] store %y[4*g + t] = %a": (
        "element 4 of %y: group (g=0) reads it and group (g=1) writes it; nothing orders groups"
    ),
    "store %y[4*g + t] = f32(1.0) barrier let %a = load %y[0]": (
        "element 0 of %y: group (g=0) writes it and group (g=1) reads it; nothing orders groups"
    ),
    "scatter %s[0; convert[i64](load %k[2])] = f32(1.0)": "element 2 of %s: thread (t=0) writes",
    "store %s[2*t] = load %x[t] x2 barrier store %s[t] = f32x2(0.0)": (
        "element 1 of %s: thread (t=0) writes it and thread (t=1) writes it"
    ),
    "for i in 0 .. 2 { store %s[t] = load %s[(t + i) mod 4] barrier }": (
        "element 1 of %s: thread (t=0) reads it and thread (t=1) writes it"
    ),
}


@pytest.mark.parametrize("body", RACES)
def test_a_race_is_found_and_its_threads_are_named(body: str) -> None:
    with pytest.raises(RaceError, match=re.escape(RACES[body])) as caught:
        run(body)
    assert f"%{caught.value.buffer}" in RACES[body]
    assert f"element {caught.value.element} " in RACES[body]


ORDERED = (
    "store %s[t] = f32(1.0) barrier store %y[4*g + t] = load %s[(t + 1) mod 4]",
    "store %s[t] = f32(1.0) barrier if predicate(t == 0) { store %s[1] = f32(2.0) }",
    "store %y[4*g + t] = f32(1.0) barrier store %y[4*g + 3 - t] = f32(2.0)",
    "if predicate(t == 0) { store %y[4*g] = f32(1.0) store %y[4*g] = f32(2.0) }",
    "for i in 0 .. 3 { store %s[t + 4*(i mod 2)] = load %x[t] barrier }",
    "let %a = load %x[0] store %s[2*t] = splat[2](%a)",
    "store %s[t] mask(1 - t) = f32x4(1.0)",
)


@pytest.mark.parametrize("body", ORDERED)
def test_what_is_in_order_is_no_race(body: str) -> None:
    run(body)


def test_without_its_barrier_the_sum_is_refused() -> None:
    function = parse_function(SUMS.replace("barrier", ""))
    verify_function(function)  # where the barrier has to be, only a run tells
    with pytest.raises(RaceError, match=r"element 1 of %part: thread \(t=0\) reads it and thread"):
        interpret_loops(function, [np.zeros(64, np.float32), np.zeros(1, np.float32)], [1])


def test_threads_at_different_barriers_are_found_by_running_too() -> None:
    function = group("if predicate(t == 2) { barrier } barrier")
    with pytest.raises(DivergenceError, match=r"\(t=0\) is at barrier 2 and thread \(t=2\) is at"):
        interpret_loops(function, [np.zeros(16, np.float32)] * 2 + [np.zeros(16, np.int64)], [4])


def test_parameters_of_one_memory_are_one() -> None:
    function = group("store %y[4*g + t] = load %x[(4*g + t + 1) mod 8]")
    y = np.zeros(16, np.float32)
    with pytest.raises(RaceError, match="element 1 of %x: thread"):
        interpret_loops(function, [y, y, np.zeros(16, np.int64)], [4])


DIVERGENT = (
    "if predicate(t < 2) { barrier }",
    "for i in 0 .. t { barrier }",
    "for i in t .. 4 { barrier }",
    "index j = load %k[t] if predicate(j < 2) { barrier }",
    "let %a = load %x[t] if gt(%a, f32(0.0)) { if predicate(n < 2) { barrier } }",
    "if gt(load %y[0], f32(0.0)) { barrier }",
    "register %r = f32(0.0) while lt(%r, f32(4.0)) { barrier %r = add(%r, f32(1.0)) }",
)


@pytest.mark.parametrize("body", DIVERGENT)
def test_a_barrier_that_only_some_threads_reach_is_refused(body: str) -> None:
    with pytest.raises(ModelError, match="barrier: only some threads may reach it, inside '"):
        verify_function(group(body))


def test_barriers_in_what_all_threads_do_alike_are_fine() -> None:
    loop = "if predicate(n < 4) { for i in 0 .. n { barrier } }"
    condition = "if gt(load %x[0], f32(0.0)) { barrier }"
    for body in (loop, condition):
        verify_function(group(body))
        run(body)


REFUSED = {
    "func @f() { barrier }": "@f, barrier: there is no grid loop around it",
    "func @f() { thread t in 0 .. 4 { } }": "there is no grid loop around it",
    "func @f() { shared %s: f32[4] }": "shared %s: f32[4]: there is no grid loop around it",
    "func @f(;n) { for i in 0 .. n { grid g in 0 .. 4 { } } }": "no grid loop around it",
    "func @f() { grid g in 0 .. 4 { } }": "a group has no thread loop",
    "func @f() { grid g in 0 .. 4 { barrier thread t in 0 .. 4 { } } }": (
        "@f, barrier: a barrier is outside of the thread loops"
    ),
    "func @f() { grid g in 0 .. 4 { thread t in 0 .. 4 { shared %s: f32[4] } } }": (
        "shared %s: f32[4]: memory that a group shares is there before its threads"
    ),
    "func @f() { grid g in 0 .. 4 { shared %s: f32[4] thread t in 0 .. 4 { } } "
    "store %s[0] = f32(1.0) }": "there is no buffer %s here",
    "func @f() { grid g in 0 .. 4 { local %p: f32[4] thread t in 0 .. 4 { } } }": (
        "local %p: f32[4]: private memory would be reached by every thread"
    ),
    "func @f() { local %p: f32[4] grid g in 0 .. 4 { thread t in 0 .. 4 { } } }": (
        "local %p: f32[4]: around its one grid a function has nothing but values"
    ),
    "func @f() { grid g in 0 .. 4 { register %r = f32(0.0) thread t in 0 .. 4 { } } }": (
        "a register would be changed by every thread"
    ),
    "func @f(%y: mut f32[4]) { grid g in 0 .. 4 { let %a = load %y[0] thread t in 0 .. 4 { } } }": (
        "%y is read outside of the thread loops"
    ),
    "func @f(%x: shared f32[4]) { let %a = load %x[0] grid g in 0 .. 4 { thread t in 0 .. 4 { } } }"
    "": "%x is read outside of the thread loops",
    "func @f(%y: mut f32[4]) { grid g in 0 .. 4 { store %y[g] = f32(0.0) thread t in 0 .. 4 { } } }"
    "": "a group does nothing outside of its one thread loop",
    "func @f() { grid g in 0 .. 4 { thread t in 0 .. 4 { } thread u in 0 .. 4 { } } }": (
        "a group does nothing outside of its one thread loop"
    ),
    "func @f() { grid g in 0 .. 4 { thread t in 0 .. 4 { } } grid h in 0 .. 4 { } }": (
        "around its one grid a function has nothing but values"
    ),
    "func @f(;n) { grid g in 0 .. 4 { thread t in 0 .. n { } } }": (
        "a group has a number of threads, not n"
    ),
    "func @f() { grid g in 0 .. 4 { thread t in 0 .. 8 step 2 { } } }": "runs from 0 by steps of 1",
    "func @f() { grid g in 1 .. 4 { thread t in 0 .. 8 { } } }": "grid loop runs from 0 by steps",
    "func @f() { grid g in 0 .. 4 when 1 > 0 { thread t in 0 .. 8 { } } }": "has a condition",
    "func @f() { grid g in 0 .. 4 { grid h in 0 .. g { thread t in 0 .. 8 { } } } }": (
        "how many groups there are, the function's sizes say"
    ),
    "func @f() { grid a in 0 .. 4 { grid b in 0 .. 4 { grid c in 0 .. 4 { grid d in 0 .. 4 { "
    "thread t in 0 .. 8 { } } } } } }": "4 grid loops are in each other, not 3",
    "func @f() { grid g in 0 .. 4 { thread t in 0 .. 4 { grid h in 0 .. 4 { } } } }": (
        "there is no grid loop in what a thread does"
    ),
    "func @f() { grid g in 0 .. 4 { thread t in 0 .. 4 { check i64(5) below [4] barrier } } }": (
        "barrier: 'check i64(5) below [4]' may have ended some threads"
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_group_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match=re.escape(REFUSED[text])):
        verify_function(parse_function(text))


def test_what_does_not_fit_the_target_is_refused() -> None:
    function = group("barrier", "shared %a: f32[1024] shared %b: f64[1024]")
    verify_function(function, GroupLimits(shared_bytes=12288, threads=4))
    match = r"shared %b: f64\[1024\]: the group shares 12288 bytes, of which the target has 12287"
    with pytest.raises(ModelError, match=match):
        verify_function(function, GroupLimits(shared_bytes=12287))
    with pytest.raises(ModelError, match="a group has 3 threads, not 4"):
        verify_function(function, GroupLimits(threads=3))


def test_processors_refuse_groups() -> None:
    with pytest.raises(NotImplementedError, match="no groups, as 'grid g in"):
        emit_llvm([parse_function(SUMS)])
    with pytest.raises(NotImplementedError, match="c has no groups of threads, as 'grid g in"):
        emit_c([parse_function(SUMS)])
