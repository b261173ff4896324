"""Scratch memory that models use in turns."""

from __future__ import annotations

import numpy as np
from small_models import mlp

import modelcc
from modelcc.artifact.memory import HUGE_PAGE
from modelcc.ir.types import Array
from modelcc.model import Model
from modelcc.runtime.arenas import Arenas


def test_calls_in_turns_have_one_and_those_at_a_time_their_own() -> None:
    arenas = Arenas()
    first, second = arenas.taken(100), arenas.taken(50)
    assert first is not second
    arenas.given(first)
    assert arenas.taken(80) is first


def test_a_larger_one_takes_the_place_of_one_whose_memory_goes_back() -> None:
    arenas = Arenas()
    small = arenas.taken(HUGE_PAGE)
    small.view[:] = b"x" * HUGE_PAGE
    arenas.given(small)
    large = arenas.taken(2 * HUGE_PAGE)
    assert large.size == 2 * HUGE_PAGE and not any(small.view)
    arenas.given(large)
    assert arenas.taken(1) is large


def in_arena(net: Model, x: Array, arenas: Arenas) -> Array:
    session = net.session
    signature = session.signature((x.shape,))
    y = np.empty(signature.outputs[0], np.float32)
    arena = arenas.taken(signature.arena)
    arena.view[:] = b"\xff" * arena.size
    session.run_at(signature, [x.ctypes.data], [y.ctypes.data], arena)
    arenas.given(arena)
    return y


def test_sessions_run_in_one_and_in_their_own() -> None:
    net, arenas = modelcc.compile(mlp("n"), threads=1, cache=None), Arenas()
    small, large = (np.ones((n, 6), np.float32) for n in (2, 300))
    wanted = [net(x) for x in (small, large)]
    assert 0 < net.session.arena_size(small.shape) < net.session.arena_size(large.shape)
    for x, y in zip((small, large, small), (*wanted, wanted[0]), strict=True):
        np.testing.assert_array_equal(in_arena(net, x, arenas), y)
        np.testing.assert_array_equal(net(x), y)  # its own again, with the same signature
