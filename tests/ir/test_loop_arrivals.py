"""Groups that arrive at a counter: what the last one sees, in whatever order they run."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations, product

import numpy as np
import pytest

from modelcc.ir.errors import ModelError, RunError
from modelcc.ir.loop import Arrive, Function
from modelcc.ir.loop_cost import function_cost
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import compile_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import statements
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.types import Array

SUMS = """func @sums(%x: f32[32*n], %y: mut f32[n], %parts: mut f32[32*n], %c: mut i32[n]; n) {
  grid g in 0 .. n {
    grid p in 0 .. 4 {
      thread t in 0 .. 8 {
        store %parts[32*g + 8*p + t] = mul(load %x[32*g + 8*p + t], f32(2.0))
        arrive %c[g] of 4 {
          if predicate(t == 0) {
            register %sum = f32(0.0)
            for i in 0 .. 32 {
              %sum = add(%sum, load %parts[32*g + i])
            }
            store %y[g] = %sum
          }
        }
      }
    }
  }
}
"""

N = 3


def run(function: Function, order: list[tuple[int, ...]] | None = None) -> tuple[Array, Array]:
    """Sums and counters, of groups that run in an ``order``."""

    def groups(*extents: int) -> Iterable[tuple[int, ...]]:
        return order or product(*map(range, extents))

    verify_function(function)
    x = np.random.default_rng(0).standard_normal(32 * N).astype(np.float32)
    y, parts = np.full(N, np.nan, np.float32), np.full(32 * N, np.nan, np.float32)
    counters = np.zeros(N, np.int32)
    compile_loops(function, groups)([x, y, parts, counters], [N])
    return y, counters


def changed(*pairs: tuple[str, str]) -> Function:
    """The sums, with pieces of their text replaced."""
    text = SUMS
    for before, after in pairs:
        assert before in text
        text = text.replace(before, after)
    return parse_function(text)


def test_the_text_reads_back() -> None:
    function = parse_function(SUMS)
    assert print_function(function) == SUMS
    assert [s.counters for s in statements(function.body) if isinstance(s, Arrive)] == ["c"]


def test_bits_are_those_of_any_order_and_counters_are_zero_again() -> None:
    function, groups = parse_function(SUMS), [*product(range(N), range(4))]
    expected, counters = run(function)
    x = np.random.default_rng(0).standard_normal((N, 32)).astype(np.float32)
    np.testing.assert_allclose(expected, 2 * x.sum(1), rtol=1e-5)
    assert not counters.any()
    random = np.random.default_rng(1)
    orders = [groups[::-1], *(random.permutation(groups).tolist() for _ in range(8))]
    orders += [[(g, p) for g in range(N) for p in one] for one in permutations(range(4))]
    for order in orders:
        found, counters = run(function, [tuple(point) for point in order])
        assert found.tobytes() == expected.tobytes()
        assert not counters.any()


def test_the_last_group_of_a_round_begins_the_next_one() -> None:
    twice = changed(
        ("arrive %c[g] of 4", "arrive %c[0] of 4"), ("%c: mut i32[n]", "%c: mut i32[1]")
    )
    y, counters = run(twice)
    assert np.isfinite(y).all()
    assert not counters.any()


FAULTS = {
    "too few arrive": ([("of 4", "of 3")], "arrives at element 0|nothing orders groups"),
    "too many are awaited": ([("of 4", "of 5")], "4 groups arrive at element 0 of %c, not 5"),
    "others' sums": (
        [("load %parts[32*g + i]", "load %parts[32*((g + 1) mod n) + i]")],
        "group .* reads it and group .* writes it; nothing orders groups",
    ),
    "written after arriving": (
        [("        }\n      }\n    }\n  }\n}\n", "        }\n        store %parts[32*g + 8*p + t]"
         " = f32(0.0)\n      }\n    }\n  }\n}\n")],
        "nothing orders groups",
    ),
    "read before arriving": (
        [("store %parts[32*g + 8*p + t] = mul", "store %parts[32*g + 8*p + t] = add(load %parts["
          "32*g + (8*p + t + 8) mod 32], mul"), ("f32(2.0))\n", "f32(2.0)))\n")],
        "nothing orders groups",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_what_nothing_orders_is_found(name: str) -> None:
    pairs, message = FAULTS[name]
    with pytest.raises(RunError, match=message):
        run(changed(*pairs))


def test_without_arriving_there_is_a_race() -> None:
    alone = changed(("arrive %c[g] of 4 {", "if predicate(p == 3) {"))
    with pytest.raises(RaceError, match="nothing orders groups"):
        run(alone)


def test_a_counter_is_zero_before() -> None:
    function = parse_function(SUMS)
    x, y, parts = np.zeros(32, np.float32), np.zeros(1, np.float32), np.zeros(32, np.float32)
    with pytest.raises(RunError, match="which holds 1: a counter is 0"):
        compile_loops(function)([x, y, parts, np.ones(1, np.int32)], [1])


def test_threads_arrive_together() -> None:
    ended = changed(
        ("        arrive", "        if predicate(t < 4) {\n        arrive"),
        ("          }\n        }\n      }", "          }\n        }\n      }\n      }"),
    )
    with pytest.raises(ModelError, match="only some threads may reach it"):
        verify_function(ended)


REFUSED = {
    "touched": ("register %sum = f32(0.0)", "register %sum = convert[f32](load %c[g])",
                "groups arrive at %c, which nothing else touches"),
    "kind": ("%c: mut i32[n]", "%c: mut f32[n]", "groups arrive at i32 that are written"),
    "input": ("%c: mut i32[n]", "%c: i32[n]", "groups arrive at i32 that are written"),
    "place": ("arrive %c[g] of 4", "arrive %c[g + n] of 4", "element"),
    "none": ("of 4", "of 0", "how many groups arrive"),
    "varying": ("arrive %c[g] of 4", "arrive %c[0*t + t] of 4", "the threads"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_ill_formed_arrivals_are_refused(name: str) -> None:
    before, after, message = REFUSED[name]
    with pytest.raises(ModelError, match=message):
        verify_function(changed((before, after)))


def test_one_of_several_groups_does_the_rest() -> None:
    cost = function_cost(parse_function(SUMS), {"n": 1})
    assert cost.flops == 4 * 8 * (1 + 32 // 4)
