"""Quotients that are rounded to 16 bits: which ones are quicker, and what they mean."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.loop import Function, Intrinsic
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_traversal import mentions
from modelcc.ir.types import DTYPES
from modelcc.passes.loop.narrow_quotients import narrow_quotients
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.isa.nvidia_fast import DIVIDE

QUICK = {
    "a quotient": ("bf16", "convert[bf16](div({a}, {b}))"),
    "a factor": (
        "f16",
        "convert[f16](mul({a}, div({b}, {a})))",
    ),
    "halves": ("f16", "div(convert[f16]({a}), convert[f16]({b}))"),
}
EXACT = {
    "in f32": ("f32", "div({a}, {b})"),
    "under a sum": ("bf16", "convert[bf16](add(div({a}, {b}), {a}))"),
    "a divisor": ("f32", "mul({a}, div({a}, {b}))"),
}


def function_of(result: str, value: str, lanes: int) -> Function:
    """Groups of threads that store such a value each, or ``lanes`` of them."""
    times = f" x{lanes}" if lanes > 1 else ""
    place = f"{lanes}*t + {32 * lanes}*g"
    spelled = value.format(a=f"load %x[{place}]{times}", b=f"load %y[{place}]{times}")
    return parse_function(f"""func @k(%x: f32[{64 * lanes}], %y: f32[{64 * lanes}],
      %z: mut {result}[{64 * lanes}]) {{
      grid g in 0 .. 2 {{
        thread t in 0 .. 32 {{
          store %z[{lanes}*t + {32 * lanes}*g] = {spelled}
        }}
      }}
    }}""")


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("name", QUICK)
def test_quotients_that_are_rounded_are_quicker(name: str, lanes: int) -> None:
    function = function_of(*QUICK[name], lanes)
    quick = narrow_quotients(function, DIVIDE)
    assert mentions(quick.body, lambda e: isinstance(e, Intrinsic) and e.instruction == DIVIDE)
    rng = np.random.default_rng(0)
    feeds = [rng.uniform(0.5, 2.0, 64 * lanes).astype(np.float32) for _ in range(2)]
    dtype = DTYPES[QUICK[name][0]].numpy
    found = [np.zeros(64 * lanes, dtype) for _ in range(2)]
    for one, result in zip((function, quick), found, strict=True):
        interpret_loops(one, [*feeds, result], [])
    np.testing.assert_array_equal(found[0], found[1])
    chip = find_chip("sm_90a")
    text = ptx_text(llvm_text([function], chip), chip)
    assert text.count("div.full.f32") == lanes and "div.rn" not in text


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("name", EXACT)
def test_others_are_exact(name: str, lanes: int) -> None:
    function = function_of(*EXACT[name], lanes)
    assert narrow_quotients(function, DIVIDE) == function
    chip = find_chip("sm_90a")
    text = ptx_text(llvm_text([function], chip), chip)
    assert "div.full" not in text and text.count("div.rn.f32") == lanes


def test_other_numbers_of_lanes_are_divided_exactly() -> None:
    function = function_of(*QUICK["a quotient"], 3)
    chip = find_chip("sm_90a")
    assert "div.rn.f32" in ptx_text(llvm_text([function], chip), chip)
