"""Concatenations on GPUs where they are read: rotary embeddings and caches of decoders."""

from __future__ import annotations

from collections import Counter
from typing import cast

import numpy as np
import pytest
from kernel_runs import interpreted, run_scheduled
from machine_code import instructions_of
from machines import chosen_options
from onnx import ModelProto, TensorProto, helper, numpy_helper

from modelcc.driver import NOWHERE, pipeline, target_options
from modelcc.ir.loop import Function, Let, Load
from modelcc.ir.loop_traversal import statements
from modelcc.ir.program import Program
from modelcc.pipeline import before_block, run_stages
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.cuda.tools import assemble, disassemble, find_tool
from modelcc.targets.registry import make_target

TYPES = {"f32": (TensorProto.FLOAT, np.float32), "f16": (TensorProto.FLOAT16, np.float16)}


def decoder(dtype: str, size: int, past: int | str = "p", rows: int = 5) -> ModelProto:
    """``present = concat(past, x cos + concat(-x2, x1) sin)`` of two heads of ``size``."""
    kind, own = TYPES[dtype]
    angles = np.random.default_rng(0).standard_normal((1, 1, rows, size))
    constants = {
        "cos": np.cos(angles).astype(own),
        "sin": np.sin(angles).astype(own),
        "zero": np.array([0]),
        "half": np.array([size // 2]),
        "whole": np.array([size]),
        "axis": np.array([3]),
    }
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("Mul", ["t", "cos"], ["straight"]),
        helper.make_node("Slice", ["t", "zero", "half", "axis"], ["first"]),
        helper.make_node("Slice", ["t", "half", "whole", "axis"], ["second"]),
        helper.make_node("Neg", ["second"], ["negative"]),
        helper.make_node("Concat", ["negative", "first"], ["turned"], axis=3),
        helper.make_node("Mul", ["turned", "sin"], ["across"]),
        helper.make_node("Add", ["straight", "across"], ["new"]),
        helper.make_node("Concat", ["past", "new"], ["present"], axis=2),
    ]
    inputs = {"x": (1, rows, 2, size), "past": (1, 2, past, size)}
    graph = helper.make_graph(
        nodes,
        "decoder",
        [helper.make_tensor_value_info(n, kind, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info("present", kind, (1, 2, None, size))],
        [numpy_helper.from_array(data, name) for name, data in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def scheduled(model: ModelProto, target: str, precision: str = "f32") -> Program:
    options = chosen_options(target=target, precision=precision)
    device = make_target(target, target_options(options))
    stages = before_block(pipeline(device, options, NOWHERE), "loop")
    return cast(Program, run_stages(stages, model))


@pytest.mark.parametrize("target", ["cuda:sm_80", "opencl", "webgpu", "amdgpu:gfx942"])
@pytest.mark.parametrize("past", ["p", 3, 8])
@pytest.mark.parametrize(("dtype", "size"), [("f32", 8), ("f32", 6), ("f16", 16), ("f16", 8)])
def test_what_is_turned_and_kept_is_one_kernel(
    dtype: str, size: int, past: int | str, target: str
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = decoder(dtype, size, past)
    program = scheduled(model, target)
    assert len(program.functions) == 1
    rng, count = np.random.default_rng(1), past if isinstance(past, int) else 7
    shapes = {"x": (1, 5, 2, size), "past": (1, 2, count, size)}
    feeds = {n: rng.standard_normal(s).astype(TYPES[dtype][1]) for n, s in shapes.items()}
    reference = runtime.InferenceSession(model.SerializeToString())
    (wanted,) = reference.run(None, feeds)
    env = {} if isinstance(past, int) else {"p": count}
    found = run_scheduled(program, interpreted(program), feeds, env)
    tolerance = 1e-6 if dtype == "f32" else 2e-3
    np.testing.assert_allclose(found["present"], wanted, rtol=tolerance, atol=tolerance)


def projected(size: int) -> ModelProto:
    """The same of ``x w``, in f32."""
    model = decoder("f32", size, rows=1)
    (x,) = (value for value in model.graph.input if value.name == "x")
    model.graph.input.remove(x)
    shape = [1, 1, 2, size]
    weights = np.random.default_rng(2).standard_normal((24, 2 * size)) / 5
    constants = {"w": weights.astype(np.float32), "shape": np.array(shape)}
    model.graph.initializer.extend(numpy_helper.from_array(c, n) for n, c in constants.items())
    model.graph.input.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, (1, 1, 24)))
    model.graph.node.insert(0, helper.make_node("Reshape", ["hw", "shape"], ["x"]))
    model.graph.node.insert(0, helper.make_node("MatMul", ["h", "w"], ["hw"]))
    return model


@pytest.mark.parametrize("target", ["cuda:sm_80", "opencl", "webgpu", "amdgpu:gfx942"])
@pytest.mark.parametrize(("precision", "tolerance"), [("f16", 2e-3), ("bf16", 2e-2)])
def test_what_is_turned_in_few_bits_and_kept_in_many_is_one_kernel(
    precision: str, tolerance: float, target: str
) -> None:
    """Behind the product."""
    runtime = pytest.importorskip("onnxruntime")
    model = projected(16)
    program = scheduled(model, target, precision)
    assert [f.name.split("_", 1)[1] for f in program.functions][-1] == "Concat"
    assert len(program.functions) == 3
    rng = np.random.default_rng(1)
    shapes = {"h": (1, 1, 24), "past": (1, 2, 7, 16)}
    feeds = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    reference = runtime.InferenceSession(model.SerializeToString())
    (wanted,) = reference.run(None, feeds)
    found = run_scheduled(program, interpreted(program), feeds, {"p": 7})
    np.testing.assert_allclose(found["present"], wanted, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(found["present"][:, :, :7], feeds["past"])


def turned(interleaved: int, dtype: str) -> ModelProto:
    """onnxruntime's own operator, three rows of two heads."""
    kind, own = TYPES[dtype]
    angles = np.random.default_rng(0).standard_normal((9, 4))
    tables = {"cos": np.cos(angles).astype(own), "sin": np.sin(angles).astype(own)}
    node = helper.make_node(
        "RotaryEmbedding", ["x", "places", "cos", "sin"], ["y"], domain="com.microsoft",
        interleaved=interleaved,
    )  # fmt: skip
    x = helper.make_tensor_value_info("x", kind, (1, 3, 16))
    places = helper.make_tensor_value_info("places", TensorProto.INT64, (1, 3))
    y = helper.make_tensor_value_info("y", kind, (1, 3, 16))
    constants = [numpy_helper.from_array(data, name) for name, data in tables.items()]
    graph = helper.make_graph([node], "turned", [x, places], [y], constants)
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8)


@pytest.mark.parametrize("target", ["cuda:sm_80", "webgpu", "metal"])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_operators_of_their_own_are_one_kernel(interleaved: int, target: str) -> None:
    """Beside the rows of angles, which are gathered."""
    runtime = pytest.importorskip("onnxruntime")
    model = turned(interleaved, "f32")
    program = scheduled(model, target)
    assert ["Gather" in f.name for f in program.functions] == [True, False]
    x = np.random.default_rng(1).standard_normal((1, 3, 16)).astype(np.float32)
    feeds = {"x": x, "places": np.array([[2, 8, 0]])}
    reference = runtime.InferenceSession(model.SerializeToString())
    (wanted,) = reference.run(None, feeds)
    found = run_scheduled(program, interpreted(program), feeds, {})
    np.testing.assert_allclose(found["y"], wanted, rtol=1e-6, atol=1e-6)


def widths(function: Function) -> Counter[int]:
    """Elements that loads move at once."""
    found = (s.value for s in statements(function.body) if isinstance(s, Let))
    return Counter(value.lanes for value in found if isinstance(value, Load))


@pytest.mark.parametrize(
    ("dtype", "size", "lanes"),
    [("f32", 8, 4), ("f32", 12, 2), ("f32", 6, 1), ("f16", 32, 8), ("f16", 8, 4)],
)
def test_vectors_lie_in_one_part(dtype: str, size: int, lanes: int) -> None:
    (function,) = scheduled(decoder(dtype, size), "cuda:sm_80").functions
    assert widths(function) == {lanes: 6}, "x three times, angles, the past"


@pytest.mark.skipif(
    find_tool("ptxas") is None or find_tool("nvdisasm") is None, reason="there is no ptxas here"
)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_memory_is_moved_by_16_bytes(architecture: str) -> None:
    program = scheduled(decoder("f16", 64, rows=512), f"cuda:{architecture}")
    chip = find_chip(architecture)
    built = assemble(ptx_text(llvm_text(program.functions, chip), chip), chip)
    assert all(use.spilled == 0 for use in built.uses.values())
    moved = [i for i in instructions_of(disassemble(built.code)) if i[:3] in ("LDG", "STG", "LDL")]
    assert moved and all(".128" in instruction for instruction in moved)
