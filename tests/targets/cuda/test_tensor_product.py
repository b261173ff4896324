"""Products on tensor cores as machine code, without a GPU: HMMA from shared memory that is filled
by LDGSTS, no spills, as many groups at once as planned, little else in the loop."""

from __future__ import annotations

import pytest
from cuda_products import code_as_planned, kernel_of, product
from machine_code import loops_of, matrix_part

from modelcc.driver import compile_model
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.types import F32, TensorType
from modelcc.ops.matmul import MatMul
from modelcc.options import Options
from modelcc.report.in_artifact import report_in
from modelcc.runtime.device_program import CODE
from modelcc.schedule.group_schedule import TensorProduct
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.cuda.tools import disassemble, find_tool
from modelcc.targets.gpu.lower import default_schedule
from modelcc.targets.gpu.machine import A100

pytestmark = [
    pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here"),
    pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm"),
]


SHAPES = {
    "square": (product(4096, 4096, 4096, "bf16"), "HMMA.16816.F32.BF16"),
    "few rows": (product(128, 768, 3072, "f16", True), "HMMA.16816.F32"),
    "odd": (product(1000, 50257, 768, "f16", True), "HMMA.16816.F32"),
    "bytes": (product(512, 512, 512, "i8", True), "IMMA.16832.S8.S8"),
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
    rounded = "HMMA.1688.F32.TF32" in disassemble(artifact.objects[CODE])
    assert rounded == (precision == "tf32")
    line = "1 of 1 kernels multiply f32 rounded to tf32, and add in f32"
    assert report.notes == ((line,) if rounded else ())


def test_other_machines_multiply_in_their_threads() -> None:
    """The model of a machine says what kernels for it can be printed with."""
    from_table = kernel_of(SHAPES["bytes"][0])
    assert not isinstance(default_schedule(from_table.kernel, A100), TensorProduct)
