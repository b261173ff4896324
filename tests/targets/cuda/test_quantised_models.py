"""Quantised models on NVIDIA's tensor cores: bytes are multiplied, and lie between layers, and
results are those of the processor's integer kernels, whose sums are exact, too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto
from ptx_emulator.driver import PtxDriver

import modelcc
from modelcc.driver import compile_model, pipeline, target_of
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.types import F32, U8
from modelcc.options import Options
from modelcc.pipeline import before_block, run_stages
from modelcc.report.in_artifact import report_in
from modelcc.runtime.devices.device_parts import CODE
from modelcc.runtime.devices.device_program import DeviceCode
from modelcc.runtime.session import Session
from modelcc.runtime.streams.cuda_code import machine_code
from modelcc.targets.base import BuildConfig
from modelcc.targets.cuda.cubin import compiled_kernels
from modelcc.targets.cuda.tools import disassemble, find_tool
from tests.frontends.onnx.onnx_models import run_onnxruntime
from tests.test_quantised_models import CONVOLUTIONS, Net, convolution, feeds

cuda_device = pytest.importorskip("modelcc.runtime.streams.cuda_device")

SM_80, SM_90A = Options(target="cuda:sm_80"), Options(target="cuda:sm_90a")
assembling = pytest.mark.skipif(
    find_tool("ptxas") is None or find_tool("nvdisasm") is None,
    reason="there is no ptxas, or no nvdisasm",
)


def agrees(
    model: ModelProto, shape: tuple[int, ...], step: float, options: Options, early: bool = False
) -> str:
    """All results are the processor's, and at most a ``step`` from ONNX Runtime's; the note on
    products of bytes, empty if there is none."""
    artifact = compile_model(model, options).artifact
    device = cuda_device.CudaDevice(PtxDriver(early), 0)
    (found,) = Session(artifact, 1, DeviceCode(artifact, device)).run(feeds(shape)).values()
    (host,) = modelcc.compile(model, threads=1, cache=None).run(feeds(shape)).values()
    np.testing.assert_array_equal(found, host)
    (wanted,) = run_onnxruntime(model, feeds(shape)).values()
    assert np.abs(found - wanted).max() <= 1.01 * step
    report = report_in(artifact)
    assert report is not None
    return next((note for note in report.notes if "bytes on tensor cores" in note), "")


def perceptron(rows: int | str, dtype: type[np.integer[Any]], axis: int | None) -> ModelProto:
    """A product with a bias, of odd sizes, quantised again."""
    net = Net((rows, 70), dtype)
    weights = net.weights(70, 37, axis=axis, unsigned=axis is None)
    made = net.node("MatMul", net.quantised("x", 0.03, 118), weights)
    return net.model(net.quantised(net.node("Add", made, net.bias(37)), 0.05, 130))


PRODUCTS: tuple[tuple[int | str, type[np.integer[Any]], int | None], ...] = (
    (1, np.uint8, 1),
    (33, np.uint8, 1),
    ("n", np.uint8, None),
    (33, np.int8, 1),
)


@pytest.mark.parametrize("options", [SM_80, SM_90A], ids=["sm_80", "sm_90a"])
@pytest.mark.parametrize(("rows", "dtype", "axis"), PRODUCTS)
def test_products_between_quantisations(
    rows: int | str, dtype: type[np.integer[Any]], axis: int | None, options: Options
) -> None:
    """A row is multiplied by threads."""
    model = perceptron(rows, dtype, axis)
    note = agrees(model, (23 if isinstance(rows, str) else rows, 70), 0.05, options)
    assert note.startswith("1 of") == (rows != 1)


def scores(net: Net) -> str:
    q = net.quantised("x", 0.03, 118)
    half = net.constant(np.array([0.5], np.float32))
    k = net.quantised(net.node("Mul", "x", half), 0.02, 125)
    return net.node("MatMul", q, net.node("Transpose", k, perm=[0, 2, 1]))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_product_of_two_run_time_operands(dtype: type[np.integer[Any]]) -> None:
    """Scores of attention: zero points of both leave the product."""
    net = Net((2, 24, 32), dtype)
    model = net.model(net.quantised(scores(net), 0.3, 100))
    assert agrees(model, (2, 24, 32), 0.3, SM_80).startswith("1 of")


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions(case: Mapping[str, Any], dtype: type[np.integer[Any]]) -> None:
    """Those in groups are computed by threads."""
    model, shape = convolution(dtype, **case)
    note = agrees(model, shape, 0.1, SM_80)
    assert note.startswith("1 of") == ("groups" not in case)


@pytest.mark.parametrize("early", [False, True], ids=["late", "early"])
def test_pads_that_are_not_the_same_on_all_sides(early: bool) -> None:
    """For a named number of images, and copies that are done as late and as early as may be."""
    net = Net(("n", 32, 9, 7), np.uint8)
    x = net.quantised("x", 0.03, 121)
    w = net.weights(40, 32, 3, 3, axis=0)
    y = net.node("Conv", x, w, net.bias(40), pads=[0, 1, 2, 1], strides=[2, 1])
    assert agrees(net.model(net.quantised(y, 0.1, 120)), (2, 32, 9, 7), 0.1, SM_80, early)


def layers(dtype: type[np.integer[Any]], zero: int) -> ModelProto:
    """Two convolutions with relu between them; a zero point ``zero``, as of u8, after each."""
    net = Net((1, 64, 12, 12), dtype)
    h = net.quantised("x", 0.03, zero)
    for outputs in (64, 128):
        w = net.weights(outputs, 64, 3, 3, axis=0)
        h = net.node("Relu", net.node("Conv", h, w, net.bias(outputs), pads=[1] * 4))
        h = net.quantised(h, 0.1, zero)
    return net.model(net.node("GlobalAveragePool", h))


@assembling
@pytest.mark.parametrize("options", [SM_80, SM_90A], ids=["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("dtype", "zero", "word"),
    [
        (np.uint8, 0, "U8.S8"),
        (np.uint8, 9, "U8.S8"),
        (np.int8, 128, "S8.S8"),
        (np.int8, 9, "U8.S8"),
    ],
)
def test_images_of_bytes_are_copied_as_they_are(
    dtype: type[np.integer[Any]], zero: int, word: str, options: Options
) -> None:
    """By asynchronous copies of 16 channels, where there are no pads; nothing spills."""
    code = machine_code(compile_model(layers(dtype, zero), options).artifact.objects[CODE])
    kernels = re.split(r"(?m)^\.text\.", disassemble(code))
    multiplying = [text for text in kernels if f"IMMA.16832.{word}" in text]
    assert len(multiplying) == 2
    for text in multiplying:
        assert "LDGSTS.E.BYPASS.128" in text
        assert "LDSM.16.M88.4" in text
        assert "STS.U8" not in text
        assert ("STS.128" in text) == (word == "U8.S8" and zero != 0), "pads that are not 0"
    assert not any(use.local for use in compiled_kernels(code).values())


def test_layers_exchange_bytes() -> None:
    """What a convolution with its epilogue gives the next one; the last one is not quantised for
    another."""
    stages = before_block(pipeline(target_of(SM_80), SM_80, BuildConfig()), "schedule")
    program = run_stages(stages, layers(np.uint8, 0))
    assert isinstance(program, TensorProgram)
    kernels = [item for item in program.items if isinstance(item, Kernel)]
    made = [name for kernel in kernels for name in kernel.outputs]
    images = [program.types[name] for name in made if program.types[name].shape[1:3] == (12, 12)]
    assert [t.dtype for t in images] == [U8, U8, F32]


@assembling
def test_weights_of_bytes_lie_by_terms() -> None:
    """So that they are copied in vectors, whatever their order in the model is."""
    net = Net((64, 128), np.uint8)
    made = net.node("MatMul", net.quantised("x", 0.03, 118), net.weights(128, 96, axis=1))
    artifact = compile_model(net.model(net.quantised(made, 0.05, 130)), SM_80).artifact
    code = disassemble(machine_code(artifact.objects[CODE]))
    assert "IMMA.16832.U8.S8" in code
    assert "STS.U8" not in code
