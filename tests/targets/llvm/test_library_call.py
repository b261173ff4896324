"""Calls of libraries as LLVM text: structures are passed by their addresses, laid out as C does."""

from __future__ import annotations

import ctypes

import numpy as np
from machines import chosen_machine
from native_loops import call

from modelcc.ir.index import Sym
from modelcc.ir.library import Address, ExternalCall, LibraryFunction, Null, Struct
from modelcc.ir.loop import Const, IndexOf
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.types import F32, I8, I32
from modelcc.runtime.loader import load_objects
from modelcc.targets.llvm.emitter import emit_llvm
from modelcc.targets.native.emission import emission
from modelcc.targets.native.toolchain import compile_llvm

MEANING = parse_function(
    """func @scaled(%x: f32[4], %y: mut f32[4]; n) {
      for i in 0 .. 4 {
        let %a = load %x[i]
        store %y[i] = %a
      }
    }"""
)


class Range(ctypes.Structure):
    _fields_ = (("low", ctypes.c_int8), ("high", ctypes.c_float))


class Given(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_int32),
        ("x", ctypes.c_void_p),
        ("range", Range),
        ("unused", ctypes.c_void_p),
    )


def test_structures_are_given_by_address() -> None:
    range_ = Struct("range", (Const(-3, I8), Const(2.5, F32)))
    given = Struct("given", (IndexOf(Sym("n") + 1, I32), Address("x", 1), range_, Null()))
    arguments = given, Null(), Address("y")
    function = LibraryFunction(ExternalCall("some", "scale", arguments), MEANING)
    found: list[tuple[object, ...]] = []

    def scale(it: int, nothing: int | None, y: int) -> None:
        s = Given.from_address(it)
        first = ctypes.c_float.from_address(s.x or 0).value
        found.append((s.size, first, s.range.low, s.range.high, s.unused, nothing))
        ctypes.c_float.from_address(y).value = 7.0

    pointers = (ctypes.c_void_p,) * 3
    callback = ctypes.CFUNCTYPE(None, *pointers)(scale)
    machine = chosen_machine()
    made = compile_llvm(emit_llvm([function], emission(machine)), machine)
    address = ctypes.cast(callback, ctypes.c_void_p).value or 0
    code = load_objects([made], {"scale": address})
    x, y = np.array([1, 5, 2, 3], np.float32), np.zeros(4, np.float32)
    call(code, MEANING, {"x": x, "y": y}, {"n": 8})
    assert found == [(9, 5.0, -3, 2.5, None, None)]
    assert y[0] == 7
