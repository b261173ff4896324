"""Whole models through the public path, against onnxruntime, at several sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import onnxruntime
import pytest
from onnx import ModelProto, helper
from small_models import mlp, model

import modelcc
from modelcc.verification.comparison import compare

SHARED = Path(__file__).parents[2] / "shared" / "models" / "onnx"
LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
TARGETS = ("native", "c", "opencl")

Feeds = dict[str, np.ndarray]


def assert_agrees(
    source: ModelProto | Path, sizes: list[Feeds], target: str = "native", bar: float = 1e-5
) -> None:
    """One compilation of ``source`` gives what onnxruntime gives for each of ``sizes``."""
    net = modelcc.compile(source, target, threads=1, cache=None)
    content = source.read_bytes() if isinstance(source, Path) else source.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    for feeds in sizes:
        got = net.run(feeds)
        for name, wanted in zip(names, session.run(names, feeds), strict=True):
            difference = compare(name, got[name], np.asarray(wanted), bar)
            assert difference.agrees, str(difference)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def convolutional(batch: int | str) -> ModelProto:
    """Convolution, batch norm, a depthwise one beside a shortcut, pooling, a softmax."""
    generator = np.random.default_rng(11)

    def random(*shape: int) -> np.ndarray:
        return (generator.standard_normal(shape) / 4).astype(np.float32)

    arrays = {
        "w0": random(20, 3, 3, 3),
        "scale": 1 + random(20),
        "shift": random(20),
        "mean": random(20),
        "variance": 1 + random(20) ** 2,
        "w1": random(20, 1, 3, 3),
        "w2": random(20, 10),
        "b2": random(10),
    }
    nodes = (
        helper.make_node("Conv", ["x", "w0"], ["a"], "stem", strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "scale", "shift", "mean", "variance"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"], "relu"),
        helper.make_node("Conv", ["c", "w1"], ["d"], "depthwise", group=20, pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "d"], ["e"], "shortcut"),
        helper.make_node("MaxPool", ["e"], ["f"], kernel_shape=[3, 3], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["f"], ["g"], "mean"),
        helper.make_node("Flatten", ["g"], ["h"], "flatten"),
        helper.make_node("Gemm", ["h", "w2", "b2"], ["i"], "head"),
        helper.make_node("Softmax", ["i"], ["y"], "softmax"),
    )
    return model(nodes, {"x": (batch, 3, 19, 23)}, {"y": (batch, 10)}, arrays)


def attending(batch: int | str, length: int | str) -> ModelProto:
    """A layer norm and one head of attention, with a shortcut."""
    generator = np.random.default_rng(13)
    names = ("q", "k", "v", "o")
    arrays = {n: (generator.standard_normal((24, 24)) / 5).astype(np.float32) for n in names}
    arrays |= {"scale": np.ones(24, np.float32), "root": np.array(24**-0.5, np.float32)}
    projections = (helper.make_node("MatMul", ["n", name], [f"{name}x"]) for name in "qkv")
    nodes = (
        helper.make_node("LayerNormalization", ["x", "scale"], ["n"], "norm"),
        *projections,
        helper.make_node("Transpose", ["kx"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["qx", "kt"], ["s"], "scores"),
        helper.make_node("Mul", ["s", "root"], ["t"], "scaled"),
        helper.make_node("Softmax", ["t"], ["p"], "softmax"),
        helper.make_node("MatMul", ["p", "vx"], ["c"], "mixed"),
        helper.make_node("MatMul", ["c", "o"], ["d"], "out"),
        helper.make_node("Add", ["x", "d"], ["y"], "shortcut"),
    )
    shape = (batch, length, 24)
    return model(nodes, {"x": shape}, {"y": shape}, arrays)


@pytest.mark.targets(*TARGETS)
def test_mlp(target: str) -> None:
    assert_agrees(mlp("batch"), [{"x": normal(n, 6)} for n in (1, 2, 9)], target)


@pytest.mark.targets(*TARGETS)
@pytest.mark.parametrize("batch", [2, "batch"])
def test_convolutional(target: str, batch: int | str) -> None:
    sizes = (2,) if batch == 2 else (1, 2, 5)
    assert_agrees(convolutional(batch), [{"x": normal(n, 3, 19, 23)} for n in sizes], target)


@pytest.mark.targets(*TARGETS)
def test_attending(target: str) -> None:
    shapes = ((1, 1, 24), (2, 7, 24), (3, 33, 24))
    assert_agrees(attending("batch", "length"), [{"x": normal(*shape)} for shape in shapes], target)


@pytest.mark.targets("native")
@pytest.mark.parametrize("name", ["squeezenet", "bvlc_alexnet"])
def test_light(name: str, target: str) -> None:
    path = LIGHT / f"light_{name}.onnx"
    graph = onnx.load(path).graph
    constants = {tensor.name for tensor in graph.initializer}
    (value,) = (value for value in graph.input if value.name not in constants)
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    assert_agrees(path, [{value.name: normal(*shape)}], target)


@pytest.mark.targets("native")
@pytest.mark.parametrize(
    ("name", "input", "shapes"),
    [
        ("onnx2c_mnist_cntk", "Input3", [(1, 1, 28, 28)]),
        ("tract_keras_example", "main_input_input", [(1, 100), (2, 100), (7, 100)]),
        ("dnsmos_p808", "input_1", [(1, 900, 120), (2, 900, 120)]),
        ("ppocr_cls_v2", "x", [(1, 3, 48, 192), (2, 3, 48, 192)]),
    ],
)
def test_trained(name: str, input: str, shapes: list[tuple[int, ...]], target: str) -> None:
    path = SHARED / f"{name}.onnx"
    if not path.exists():
        pytest.skip("the shared models are not here")
    assert_agrees(path, [{input: normal(*shape)} for shape in shapes], target)
