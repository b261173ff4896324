"""Tensors that kernels do not see in one piece are computed with all the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

from modelcc.driver import NOWHERE, pipeline
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.types import DTYPES, Array
from modelcc.pipeline import run_stages
from modelcc.runtime.errors import RunError
from modelcc.targets.gpu.machine import PROCESSOR
from modelcc.targets.webgpu.emitter import shader_of
from modelcc.targets.webgpu.target import WebgpuTarget, webgpu_target
from tests.machines import chosen_options, chosen_target_options

pytest.importorskip("wgpu")
webgpu_kernels = pytest.importorskip("webgpu_kernels")

pytestmark = pytest.mark.usefixtures("device")

PIECE = 256
"""Bytes: where a binding may begin."""

ROWS, COLUMNS = 23, 24


@pytest.mark.parametrize("name", ["f32", "i64", "f16", "bf16", "u8", "i8"])
def test_elements_of_every_width_are_read_and_written(name: str) -> None:
    """Neighbours in a word are other threads'; the last piece is shorter than the others."""
    count = 2 * PIECE // DTYPES[name].bytes + 5
    function = parse_function(f"""func @f(%x: {name}[{count}], %y: mut {name}[{count}]) {{
      grid g in 0 .. {-(-count // 64)} {{ thread t in 0 .. 64 {{
        if predicate(64*g + t < {count}) {{
          store %y[{count - 1} - 64*g - t] = load %x[64*g + t]
        }}
      }} }}
    }}""")
    run = webgpu_kernels.by_webgpu([function], PIECE)
    x = np.arange(count).astype(DTYPES[name].numpy)
    y = np.zeros_like(x)
    run("f", [x, y], [])
    np.testing.assert_array_equal(y, x[::-1])


@pytest.mark.parametrize(("size", "sizes", "helps"), [("n", [40], "--dim"), ("40", [], "sizes")])
def test_what_a_binding_cannot_hold_says_what_helps(
    size: str, sizes: list[int], helps: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fixed sizes do, for which it comes in pieces."""
    text = f"""func @f(%y: mut f32[{size}]; {", ".join(["n"] * len(sizes))}) {{
      grid g in 0 .. {size} {{ thread t in 0 .. 1 {{ store %y[g] = f32(1.0) }} }}
    }}"""
    device = webgpu_kernels.WebgpuDevice("tests", webgpu_kernels.open_once())
    device.add([shader_of(parse_function(text))])
    monkeypatch.setattr(device, "_most_bound", 128)
    with pytest.raises(
        RunError, match=r"uses a tensor of 160 bytes, and tests lets .* 128"
    ) as found:
        device.launch("f", [(device.allocate(160), 0)], sizes, (40, 1, 1))
    assert helps in str(found.value) and ("--dim" in str(found.value)) == bool(sizes)


def test_pieces_are_buffers_of_their_own() -> None:
    text = """func @f(%x: f32[130], %y: mut f32[2]) {
      grid g in 0 .. 2 { thread t in 0 .. 1 { store %y[g] = load %x[129*g] } }
    }"""
    shader = shader_of(parse_function(text), None, PIECE)
    assert shader.pieces == (3, 1) and shader.buffers == 4
    assert [(s.parameter, s.start, s.size) for s in shader.spans({})] == [
        (0, 0, 256), (0, 256, 256), (0, 512, 8), (1, 0, 8),
    ]  # fmt: skip
    many = parse_function(text.replace("130", "449"))
    with pytest.raises(NotImplementedError, match="takes 9 buffers, and WebGPU gives 8"):
        shader_of(many, None, PIECE)


def language_model() -> onnx.ModelProto:
    """Rows of a table, summed with others, and their products with all rows of the table."""
    random = np.random.default_rng(5)
    table = random.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Tanh", ["rows"], ["hidden"]),
        helper.make_node("Transpose", ["table"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["hidden", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes, "tied",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [40])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [40, ROWS])],
        [numpy_helper.from_array(table, "table")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def small_target(binding_bytes: int) -> WebgpuTarget:
    target = webgpu_target(chosen_target_options())
    return replace(target, model=replace(PROCESSOR, binding_bytes=binding_bytes))


def run(target: WebgpuTarget, model: onnx.ModelProto, feeds: dict[str, Any]) -> tuple[Array, int]:
    """The output, and how many shaders take a tensor in pieces."""
    stages = pipeline(target, chosen_options(target="webgpu"), NOWHERE)
    artifact = run_stages(stages, model)
    shaders = b"".join(artifact.objects.values()).decode(errors="replace")
    got = target.load(artifact, 1).run(feeds)["y"]
    return got, shaders.count("_load(i: u32)")


def test_a_table_that_no_kernel_sees_whole_is_gathered_from_and_multiplied_by() -> None:
    model, ids = language_model(), np.arange(40) % ROWS
    session = InferenceSession(model.SerializeToString())
    (wanted,) = session.run(None, {"ids": ids})
    _, none = run(small_target(0), model, {"ids": ids})
    pieces, some = run(small_target(1024), model, {"ids": ids})
    assert none == 0 < some
    np.testing.assert_allclose(pieces, np.asarray(wanted), rtol=1e-5, atol=1e-6)
