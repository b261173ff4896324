"""Norms within products of few rows, as PTX and machine code: values, registers, and loads that are
on their way before any thread waits."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod

import numpy as np
import onnx
import onnx.parser
import pytest
from kernel_runs import run_scheduled
from norm_products import NormProduct
from ptx_emulator.kernels import emulated

from modelcc.driver import NOWHERE, compile_model
from modelcc.ir.loop_traversal import launch_extents
from modelcc.options import Options
from modelcc.runtime.devices.device_program import CODE
from modelcc.runtime.streams.cuda_code import machine_code
from modelcc.targets.cuda.chips import CHIPS, find_chip
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.cuda.tools import assemble, disassemble, find_tool
from modelcc.targets.gpu.schedule import schedule_groups
from tests.targets.gpu.rows.test_row_products import assert_close

assembling = pytest.mark.skipif(
    find_tool("ptxas") is None or find_tool("nvdisasm") is None, reason="there is no ptxas here"
)
CHIP = pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
LAYERS = """<ir_version: 11, opset_import: ["" : 22]>
g (float16[1, 768] a) => (float16[1, 2304] y) {
  b = MatMul(a, u) c = Add(a, b) n = LayerNormalization(c, s, t) y = MatMul(n, w)
}"""
SIZES = {"u": (768, 768), "s": (768,), "t": (768,), "w": (768, 2304)}
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")


@CHIP
@pytest.mark.parametrize(
    "case",
    [
        NormProduct("rms", 1, 520, 40),
        NormProduct("layer", 3, 264, 24, "f32"),
        NormProduct("softmax", 4, 72, 33, "bf16"),
        NormProduct("rms", 2, 136, 24, twins=True),
    ],
    ids=str,
)
def test_values_by_threads(case: NormProduct, chip: str) -> None:
    found = find_chip(chip)
    scheduled = schedule_groups(case.program(), machine=found.gpu)
    y = run_scheduled(scheduled, emulated(scheduled, found, False), case.feeds, {})["y"]
    assert_close(case, y, case.feeds)


@assembling
@CHIP
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize(
    "case",
    [
        NormProduct("rms", 1, 1024, 1536),
        NormProduct("layer", 1, 768, 2304),
        NormProduct("rms", 1, 1024, 2816, twins=True),
        NormProduct("rms", 2, 1024, 1536),
    ],
    ids=str,
)
def test_rows_and_weights_are_on_their_way_before_the_first_barrier(
    case: NormProduct, dtype: str, chip: str
) -> None:
    """No spills, and as many groups of a unit as were planned."""
    found = find_chip(chip)
    (function,) = schedule_groups(replace(case, dtype=dtype).program(), machine=found.gpu).functions
    built = assemble(ptx_text(llvm_text([function], found), found), found)
    (use,) = built.uses.values()
    assert use.spilled == 0
    threads = prod(n for n in launch_extents(function)[1] if isinstance(n, int))
    assert found.gpu.groups_at_once(threads, use.registers, use.shared) >= function.resident
    code = _INSTRUCTION.findall(disassemble(built.code))
    first = next(n for n, name in enumerate(code) if name.startswith("BAR.SYNC"))
    loads = [n for n, name in enumerate(code) if name.startswith("LDG")]
    before = sum(n < first for n in loads)
    assert before >= 8
    assert before >= len(loads) / 2


@assembling
def test_weights_are_prefetched_before_the_kernel_waits() -> None:
    """A model's second product is one kernel with the norm before it; the first one's result is
    waited for."""
    model = onnx.parser.parse_model(LAYERS)
    for name, shape in SIZES.items():
        bits = b"\x00\x3c" * int(np.prod(shape))
        tensor = onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT16, shape, bits, raw=True)
        model.graph.initializer.append(tensor)
    options = Options(target="cuda:sm_90a", cpu="x86-64-v3")
    code = compile_model(model, options, NOWHERE).artifact.objects[CODE]
    parts = re.split(r"\n\.text\.", disassemble(machine_code(code)))[1:]
    kernels = {p.partition(":")[0]: _INSTRUCTION.findall(p.partition("\n//---")[0]) for p in parts}
    assert len(kernels) == 2
    (name,) = (name for name in kernels if "LayerNorm" in name)
    found = kernels[name]
    wait, barrier = found.index("ACQBULK"), found.index("BAR.SYNC.DEFER_BLOCKING")
    assert found.index("UBLKPF.L2") < wait < barrier < found.index("PREEXIT")
    assert sum(n.startswith("LDG") for n in found[wait:barrier]) >= 6
    assert CHIPS["sm_90a"].gpu.overlaps
