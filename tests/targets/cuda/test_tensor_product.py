"""Products on tensor cores as machine code, without a GPU: HMMA from shared memory that is filled
by LDGSTS, no spills, as many groups at once as planned, little else in the loop."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_products import code_as_planned, kernel_of, product
from machine_code import instructions_of, loops_of, matrix_part

from modelcc.driver import compile_model
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.constant import Constant
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.types import F32, TensorType
from modelcc.ops.matmul import MatMul
from modelcc.options import Options
from modelcc.report.in_artifact import report_in
from modelcc.runtime.devices.device_parts import CODE
from modelcc.runtime.streams.cuda_code import machine_code
from modelcc.schedule.group_schedule import TensorProduct
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.cuda.tools import assemble, disassemble, find_tool
from modelcc.targets.gpu.lower import default_schedule
from modelcc.targets.gpu.machine import A100
from modelcc.targets.gpu.schedule import schedule_groups

pytestmark = [
    pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here"),
    pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm"),
]


SHAPES = {
    "square": (product(4096, 4096, 4096, "bf16"), "HMMA.16816.F32.BF16"),
    "few rows": (product(128, 768, 3072, "f16", True), "HMMA.16816.F32"),
    "odd": (product(1000, 50257, 768, "f16", True), "HMMA.16816.F32"),
    "bytes": (product(512, 512, 512, "i8", True), "IMMA.16832.S8.S8"),
    "unsigned by signed": (product(512, 512, 512, "u8", True, "i8"), "IMMA.16832.U8.S8"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_tensor_cores_have_what_is_planned(name: str) -> None:
    program, word = SHAPES[name]
    _, code = code_as_planned(program, find_chip("sm_80"))
    assert f"{word} " in code
    assert "LDGSTS.E" in code
    assert "LDSM.16.M88.4" in code
    if name == "square":
        loop = max(loops_of(code), key=lambda counts: counts["HMMA"])
        assert loop["HMMA"] == 128
        assert matrix_part(loop) >= 0.9


PADDED = "%x[n, h + a - 1, w + b - 1, c + 32*p] if [h + a >= 1, h + a < 17, w + b >= 1, w + b < 17]"
IMAGES = {
    "parts of channels": (
        ("1, 16, 16, 64", "64, 64, 3, 3", "2, 1, 16, 16, 64"),
        "p < 2, n < 1, h < 16, w < 16, o < 64] sum[c < 32, a < 3, b < 3",
        (f"({PADDED} else 0.0:f16)", "%w[o, c + 32*p, a, b]"),
    ),
    "patches": (
        ("1, 64, 64, 3", "768, 3, 16, 16", "2, 1, 4, 4, 768"),
        "p < 2, n < 1, h < 4, w < 4, o < 768] sum[c < 3, a < 8, b < 16",
        ("%x[n, 16*h + a + 8*p, 16*w + b, c]", "%w[o, c, a + 8*p, b]"),
    ),
}
"""Convolutions whose terms are cut, as those of few pixels are: of images with channels last."""


@pytest.mark.parametrize("name", IMAGES)
def test_images_are_copied_in_vectors(name: str) -> None:
    (x, w, y), loops, (pixel, weight) = IMAGES[name]
    weights, chip = (
        Constant(np.zeros(tuple(map(int, w.split(","))), np.float16)),
        find_chip("sm_80"),
    )
    text = f"""program @p(%x: f16[{x}]) -> (%y) {{
      constant %w: f16[{w}] = "{weights.digest}"
      kernel @Conv(%x: f16[{x}], %w: f16[{w}]) -> (%y: f32[{y}]) {{
        %y: f32[{y}] = [{loops}] f32({pixel}) * f32({weight}) }} }}"""
    program = parse_tensor_program(text, {weights.digest: weights})
    functions = list(schedule_groups(program, None, chip.gpu).functions)
    made = assemble(ptx_text(llvm_text(functions, chip), chip), chip)
    assert not any(use.spilled for use in made.uses.values())
    found = instructions_of(disassemble(made.code))
    assert found["HMMA.16816.F32"]
    assert not [name for name in found if name.startswith(("LDG.E.U16", "STS.U16"))]
    assert [name for name in found if name.startswith("LDGSTS.E") and ".128" in name]


@pytest.mark.parametrize("precision", ["f32", "tf32"])
def test_f32_is_rounded_only_where_that_is_asked_for(precision: str) -> None:
    """The whole product of a model, and what its report says of it."""
    build = GraphBuilder()
    names = (build.input(name, TensorType((64, 64), F32)) for name in "ab")
    graph = build.build([build.emit(MatMul(), *names)])
    options = Options(target="cuda:sm_80", precision=precision)
    artifact = compile_model(graph, options).artifact
    report = report_in(artifact)
    assert report is not None
    rounded = "HMMA.1688.F32.TF32" in disassemble(machine_code(artifact.objects[CODE]))
    assert rounded == (precision == "tf32")
    line = "1 of 1 kernels multiply f32 rounded to tf32, and add in f32"
    assert report.notes == ((line,) if rounded else ())


def test_other_machines_multiply_in_their_threads() -> None:
    """The model of a machine says what kernels for it can be printed with."""
    from_table = kernel_of(SHAPES["bytes"][0])
    assert not isinstance(default_schedule(from_table.kernel, A100), TensorProduct)
