"""Kernels of OpenCL are scheduled for the device that runs them, or for one that is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import parser
from onnxruntime import InferenceSession
from small_models import mlp

import modelcc
from modelcc.driver import NOWHERE, compile_model
from modelcc.ir.errors import ModelError
from modelcc.options import Options
from modelcc.runtime.devices.device_program import DeviceCode
from modelcc.runtime.devices.opencl_facts import OpenclFacts
from modelcc.runtime.errors import LoadError
from modelcc.targets.gpu.machine import GPUS, PROCESSOR, GpuModel
from modelcc.targets.opencl.machine import LEAST_SHARED, LEAST_THREADS, model_of

ROWS_OF = 40, 768
ROWS = """<ir_version: 8, opset_import: ["": 17]>
rows (float[40, 768] x, float[768, 48] w) => (float[40, 48] y) {
    p = Softmax(x)
    h = MatMul(p, w)
    y = Softmax(h)
}"""
"""Rows that threads of a warp share where they exchange registers."""

CARD = OpenclFacts("NVIDIA Corporation", frozenset(), True, False, 41, 8 << 30, 1024, 48 << 10)
INSIDE = OpenclFacts("Intel(R) Corporation", frozenset(), True, True, 96, 16 << 30, 512, 64 << 10)


@pytest.mark.parametrize(
    ("facts", "like"),
    [
        (CARD, "rtx30"),
        (replace(CARD, vendor="Advanced Micro Devices, Inc."), "rx7900"),
        (replace(CARD, vendor="Somebody"), "integrated"),
        (replace(CARD, unified=True), "integrated"),
        (INSIDE, "integrated"),
        (replace(INSIDE, gpu=False), "processor"),
        (None, "processor"),
    ],
)
def test_a_device_is_like_a_machine_of_the_table(facts: OpenclFacts | None, like: str) -> None:
    assert model_of("", facts).name == GPUS[like].name


def test_limits_and_memory_are_the_device_s() -> None:
    model = model_of("", CARD)
    assert (model.units, model.memory_bytes) == (41, 8 << 30)
    assert model.flops == pytest.approx(GPUS["rtx30"].flops / 2)
    assert (model.group_threads, model.group_shared_bytes) == (1024, 48 << 10)
    assert model_of("rtx40", CARD).units == GPUS["rtx40"].units
    for unknown in (None, replace(CARD, gpu=False)):
        model = model_of("h100", unknown)
        assert (model.group_threads, model.group_shared_bytes) == (LEAST_THREADS, LEAST_SHARED)
    assert model_of("processor", CARD) == PROCESSOR


@pytest.mark.parametrize("machine", GPUS.values(), ids=lambda m: m.name)
def test_portable_machines_have_what_every_language_has(machine: GpuModel) -> None:
    plain = machine.portable
    assert (plain.lanes, plain.matrix) == (1, ())
    assert not (plain.exchanges or plain.copies or plain.arrivals or plain.overlaps)
    assert replace(plain, lanes=machine.lanes, exchanges=machine.exchanges) == machine


def test_a_machine_that_is_not_there_is_refused() -> None:
    with pytest.raises(ModelError, match="'rtx99' is none") as error:
        compile_model(mlp(2), Options(target="opencl:rtx99"), NOWHERE)
    assert error.value.hint and "rtx40" in error.value.hint


@pytest.mark.parametrize("target", ["opencl", "webgpu"])
@pytest.mark.parametrize("machine", ["rtx30", "rx7900", "integrated", "apple", "mi300"])
def test_a_named_machine_leaves_nothing_to_the_processor(machine: str, target: str) -> None:
    model = parser.parse_model(ROWS)
    net = modelcc.compile(model, f"{target}:{machine}", cache=None)
    device = net.report().device
    assert device is not None and device.host == ()
    assert device.machine == GPUS[machine].name
    x, w = (np.random.default_rng(0).standard_normal(n).astype("f") for n in (ROWS_OF, (768, 48)))
    try:
        found = net(x, w)
    except LoadError as error:
        pytest.skip(str(error))
    (expected,) = InferenceSession(model.SerializeToString()).run(None, {"x": x, "w": w})
    np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-5, atol=1e-6)


def test_the_number_of_a_device_may_stand_before_a_machine() -> None:
    artifact = compile_model(mlp(2), Options(target="opencl:99:rtx40:c"), NOWHERE).artifact
    pytest.importorskip("pyopencl")
    with pytest.raises(LoadError, match=r"OpenCL has no device 99|OpenCL finds no platform"):
        DeviceCode(artifact)
