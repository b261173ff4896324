"""Kernels that may be launched before the one before them has ended wait before they touch what it
writes, in the machine code that ptxas makes."""

from __future__ import annotations

import re

import onnx
import onnx.parser
import pytest

from modelcc.driver import NOWHERE, compile_model
from modelcc.options import Options
from modelcc.runtime.devices.device_program import CODE
from modelcc.runtime.streams.cuda_code import machine_code
from modelcc.targets.cuda.tools import disassemble, find_tool

pytestmark = pytest.mark.skipif(
    find_tool("ptxas") is None or find_tool("nvdisasm") is None, reason="there is no ptxas here"
)

LAYERS = """<ir_version: 11, opset_import: ["" : 22]>
g (float16[128, 768] a) => (float16[128, 64] y) {
  q = MatMul(a, w) n = Add(q, b) s = Softmax(n) m = MatMul(s, v) k = Sigmoid(m)
  t = Transpose<perm = [1, 0]>(k) u = MatMul(k, t) r = Softmax(u) y = MatMul(r, k)
}"""
WEIGHTS = ("k0_MatMul_Add", "k2_MatMul_Sigmoid")
"""Kernels of products by constants."""
SIZES = {"w": (768, 768), "b": (768,), "v": (768, 64)}

TOUCHES = ("LDG", "LDGSTS", "STG", "ATOM", "RED", "UTMALDG", "UTMASTG", "UBLKCP", "CCTL")
"""Begin the names of instructions that read or write memory of all groups."""

_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")


def kernels_of(chip: str) -> dict[str, list[str]]:
    """The names of the instructions of each kernel of a model."""
    model = onnx.parser.parse_model(LAYERS)
    half = onnx.TensorProto.FLOAT16
    for name, shape in SIZES.items():
        bits = b"\x00\x3c" * (shape[0] * (shape[1] if len(shape) > 1 else 1))
        model.graph.initializer.append(onnx.helper.make_tensor(name, half, shape, bits, raw=True))
    options = Options(target=f"cuda:{chip}", cpu="x86-64-v3")
    code = compile_model(model, options, NOWHERE).artifact.objects[CODE]
    parts = re.split(r"\n\.text\.", disassemble(machine_code(code)))[1:]
    bodies = {part.partition(":")[0]: part.partition("\n//---")[0] for part in parts}
    return {name: _INSTRUCTION.findall(body) for name, body in bodies.items()}


@pytest.mark.parametrize("chip", ["sm_90", "sm_90a", "sm_120"])
def test_kernels_wait_before_they_touch_what_others_write(chip: str) -> None:
    """Only constants, which nobody writes, may be read before, and through a cache that is not kept
    coherent; a kernel is launched once the one before waits no more, or is small."""
    kernels = kernels_of(chip)
    assert len(kernels) >= 4
    for name, code in kernels.items():
        touched = [
            n for n, i in enumerate(code) if i.startswith(TOUCHES) and not i.endswith(".CONSTANT")
        ]
        assert code.count("ACQBULK") == 1, name
        assert touched and code.index("ACQBULK") < min(touched), name
        fetched = [n for n, i in enumerate(code) if i == "UTMACCTL.PF"]
        assert bool(fetched) == ("UTMALDG" in {i.partition(".")[0] for i in code}), name
        assert max(fetched, default=0) < code.index("ACQBULK"), name
        assert code.count("PREEXIT") == 1, name
        first = code.index("PREEXIT") < code.index("ACQBULK")
        assert first == ("Softmax" in name), f"{name} lets the next one come if it is small"
        prefetched = [n for n, i in enumerate(code) if i == "UBLKPF.L2"]
        assert bool(prefetched) == (name in WEIGHTS), name
        assert max(prefetched, default=0) < code.index("ACQBULK"), name
    constants = {name for name, code in kernels.items() if any(".CONSTANT" in i for i in code)}
    assert any("Add" in name for name in constants), "biases are read as constants"
    assert not any(name == "k1_Softmax" for name in constants)


def test_older_architectures_have_no_such_launches() -> None:
    """Inputs that stay as they are while a kernel runs are read as constants there."""
    kernels = kernels_of("sm_80")
    names = {name for code in kernels.values() for name in code}
    assert not names & {"ACQBULK", "PREEXIT"}
    softmax = next(code for name, code in kernels.items() if "Softmax" in name)
    assert any(name.endswith(".CONSTANT") for name in softmax)
