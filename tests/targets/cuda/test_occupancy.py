"""Registers of machine code leave as many groups on a unit as schedules count on; none spills."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_products import product

from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Function
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.targets.cuda.chips import Chip, find_chip
from modelcc.targets.cuda.cubin import compiled_kernels
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.cuda.tools import assemble, find_tool
from modelcc.targets.gpu.kernel_uses import kernel_use
from modelcc.targets.gpu.schedule import schedule_groups
from modelcc.targets.gpu.working_memory import ARRIVALS
from modelcc.targets.kernel_use import GroupUse

assembling = pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")

CHIPS = ("sm_80", "sm_90a")

PADDED = "%x[n, h + a - 1, w + b - 1, c] if [h + a >= 1, h + a < 33, w + b >= 1, w + b < 33]"


def image(channels: int, results: int, window: int, pixel: str, after: str) -> TensorProgram:
    """A convolution of 32 x 32 pixels of f32, and what follows it."""
    weights = Constant(np.zeros((results, channels, window, window), np.float32))
    x, w = f"1, 32, 32, {channels}", f"{results}, {channels}, {window}, {window}"
    y = f"1, 32, 32, {results}"
    loops = f"n < 1, h < 32, w < 32, o < {results}"
    return parse_tensor_program(
        f"""program @p(%x: f32[{x}]) -> (%y) {{
          constant %w: f32[{w}] = "{weights.digest}"
          kernel @Conv(%x: f32[{x}], %w: f32[{w}]) -> (%y: f32[{y}]) {{
            %s: f32[{y}] = [{loops}] sum[c < {channels}, a < {window}, b < {window}]
              {pixel} * %w[o, c, a, b]
            %y: f32[{y}] = [{loops}] {after} }} }}""",
        {weights.digest: weights},
    )


def rows(count: int, length: int) -> TensorProgram:
    """Sums of products of rows by one row."""
    return parse_tensor_program(
        f"""program @p(%x: f32[{count}, {length}], %v: f32[{length}]) -> (%y) {{
          kernel @Rows(%x: f32[{count}, {length}], %v: f32[{length}]) -> (%y: f32[{count}]) {{
            %y: f32[{count}] = [i < {count}] sum[k < {length}] %x[i, k] * %v[k] }} }}""",
        {},
    )


KERNELS = {
    "large": product(4096, 4096, 4096, "f32"),
    "middle": product(512, 3072, 768, "f32", True),
    "small": product(441, 288, 96, "f32"),
    "few columns": product(4096, 16, 768, "f32"),
    "padded": image(64, 64, 3, f"({PADDED} else 0.0)", "max(%s[n, h, w, o], 0.0)"),
    "few channels": image(8, 64, 3, f"({PADDED} else 0.0)", "max(%s[n, h, w, o], 0.0)"),
    "one block": image(16, 96, 1, "%x[n, h, w, c]", "%s[n, h, w, o] * sigmoid(%s[n, h, w, o])"),
    "halves": product(512, 3072, 768, "f16", True),
    "rows": rows(2048, 4096),
}


def uses(functions: list[Function], chip: Chip) -> list[GroupUse]:
    """What each takes."""
    code = assemble(ptx_text(llvm_text(functions, chip), chip), chip).code
    compiled = compiled_kernels(code)
    return [kernel_use(f, chip.gpu, compiled[f.name]) for f in functions]


@assembling
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("chip", CHIPS)
def test_as_many_groups_fit_as_are_planned(chip: str, name: str) -> None:
    found = find_chip(chip)
    made = schedule_groups(KERNELS[name], None, found.gpu).functions
    functions = [f for f in made if not f.name.startswith(f"clear_{ARRIVALS}")]
    for function, use in zip(functions, uses(functions, found), strict=True):
        assert function.resident
        assert use.planned == function.resident * use.threads / found.gpu.unit_threads
        assert use.occupancy is not None and use.occupancy >= use.planned
        assert use.local == 0


def test_how_many_are_resident_is_said_in_texts() -> None:
    text = "func @f(%y: mut f32[8]) resident 4 {\n  grid g in 0 .. 2 {\n    thread t in 0 .. 4 {"
    text += "\n      store %y[4*g + t] = f32(0.0)\n    }\n  }\n}\n"
    function = parse_function(text)
    assert function.resident == 4
    assert print_function(function) == text


def test_what_has_no_groups_has_none_resident() -> None:
    function = parse_function("func @f(%y: mut f32[8]) resident 4 { store %y[0] = f32(0.0) }")
    with pytest.raises(ModelError, match="groups are resident or early, and it has none"):
        verify_function(function)
