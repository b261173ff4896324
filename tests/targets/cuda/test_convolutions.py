"""Convolutions by cuDNN where it is preferred, on what stands for it and for the driver."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cuda_driver import FakeDriver
from cudnn_stand_in import FakeCudnn, convolved

from modelcc.driver import NOWHERE, compile_model
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.index import Index, Sym
from modelcc.ir.types import BF16, F32, Array, DType, TensorType
from modelcc.ops.activation import Relu
from modelcc.ops.conv import Conv
from modelcc.ops.elementwise import Add
from modelcc.ops.shape import Transpose
from modelcc.options import Options
from modelcc.runtime.devices.device_program import DeviceCode
from modelcc.runtime.session import Session
from tests.targets.cuda.test_program import prepared

cuda_device = pytest.importorskip("modelcc.runtime.streams.cuda_device")

OPTIONS = Options(target="cuda:sm_80", libraries=(("cudnn", ""),), kernels="library")


def conv(
    pads: Sequence[int] = (1, 1), strides: Sequence[int] = (1, 1), groups: int = 1, **more: Any
) -> Conv:
    ends = {"pads_before": tuple(pads), "pads_after": tuple(pads), "dilations": (1, 1), **more}
    return Conv(strides=tuple(strides), groups=groups, **ends)


LAYERS = (
    (conv(strides=(2, 1)), (8, 16, 3, 3)),
    (conv(dilations=(2, 1), pads_before=(2, 1), pads_after=(2, 1)), (8, 8, 3, 3)),
    (conv(groups=2), (8, 4, 3, 3)),
    (conv(pads=(0, 2)), (8, 8, 1, 5)),
)


def images(dtype: DType, samples: Index) -> Graph:
    """Images with channels last, through layers with a bias and relu, one that adds what was before
    and one that has a bias only, and one that has nothing."""
    rng = np.random.default_rng(3)
    b = GraphBuilder("images")
    x = b.input("x", TensorType((samples, 10, 6, 16), dtype))
    before = h = b.emit(Transpose((0, 3, 1, 2)), x)
    for number, (op, shape) in enumerate(LAYERS):
        weights, bias = drawn(rng, shape, dtype)
        made = b.emit(op, h, *map(b.constant, (weights, bias)))
        made = b.emit(Add(), made, before) if number == 2 else made
        before, h = h, made if number == 3 else b.emit(Relu(), made)
    last, _ = drawn(rng, (4, 8, 3, 3), dtype)
    y = b.emit(conv(), h, b.constant(last))
    return b.build([b.emit(Transpose((0, 2, 3, 1)), y)])


def drawn(rng: np.random.Generator, shape: Sequence[int], dtype: DType) -> tuple[Array, Array]:
    weights = rng.standard_normal(tuple(shape)) / np.sqrt(np.prod(shape[1:]))
    return weights.astype(dtype.numpy), rng.standard_normal(shape[0]).astype(dtype.numpy)


def expected(x: Array, dtype: DType) -> Array:
    rng, h = np.random.default_rng(3), x.astype("f4").transpose(0, 3, 1, 2)
    before = h
    for number, (op, shape) in enumerate(LAYERS):
        weights, bias = (array.astype("f4") for array in drawn(rng, shape, dtype))
        window = [int(str(n)) for n in (*op.pads_before, *op.strides, *op.dilations)]
        made = convolved(h, weights, window, op.groups) + bias[:, None, None]
        made = made + before if number == 2 else made
        made = made if number == 3 else np.maximum(made, 0)
        before, h = h, made.astype(dtype.numpy).astype("f4")
    last, _ = drawn(rng, (4, 8, 3, 3), dtype)
    return convolved(h, last.astype("f4"), [1, 1, 1, 1, 1, 1], 1).transpose(0, 2, 3, 1)


@pytest.mark.parametrize(("dtype", "samples"), [(F32, Sym("n")), (BF16, 2)])
def test_convolutions_agree(dtype: DType, samples: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact, kernels = prepared(images(dtype, samples), OPTIONS)
    driver = FakeDriver(kernels)
    library = FakeCudnn(driver)
    monkeypatch.setattr(cuda_device, "open_library", lambda spec: spec)
    monkeypatch.setattr(cuda_device, "function_of", library.function)
    net = Session(artifact, 1, DeviceCode(artifact, cuda_device.CudaDevice(driver, 0)))
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((2, 10, 6, 16)).astype(dtype.numpy)
        found, wanted = net(x), expected(x, dtype)
        assert library.failures == []
        scale = (1e-5 if dtype == F32 else 3e-2) * float(np.abs(wanted).max())
        np.testing.assert_allclose(found.astype("f4"), wanted, rtol=0, atol=scale)
    math = 3 if dtype == F32 else 1
    once = [(math, 1, 1), (math, 1, 1), (math, 1, 2), (math, 0, 1), (math, 0, 0)]
    assert library.asked[: len(once)] == once
    assert driver.calls.count("cuGraphLaunch") == 2, "the first call makes descriptions"
    assert library.held == 1 + 6 * len(once)
    del net
    gc.collect()
    assert library.held == 0


def test_channels_come_first_where_nothing_turns_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one layer; its weights come at run time."""
    b = GraphBuilder("one")
    x, w = (b.input(n, TensorType(s, F32)) for n, s in (("x", (2, 6, 7, 5)), ("w", (4, 3, 3, 2))))
    op = conv(strides=(2, 1), groups=2)
    artifact, kernels = prepared(b.build([b.emit(op, x, w)]), OPTIONS)
    driver = FakeDriver(kernels)
    library = FakeCudnn(driver)
    monkeypatch.setattr(cuda_device, "open_library", lambda spec: spec)
    monkeypatch.setattr(cuda_device, "function_of", library.function)
    net = Session(artifact, 1, DeviceCode(artifact, cuda_device.CudaDevice(driver, 0)))
    rng = np.random.default_rng(5)
    given = [rng.standard_normal(s).astype("f4") for s in ((2, 6, 7, 5), (4, 3, 3, 2))]
    found = net(*given)
    wanted = convolved(given[0], given[1], [1, 1, 2, 1, 1, 1], 2)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    assert library.asked == [(3, 0, 0)] and library.failures == []


def test_what_cudnn_computes_otherwise_stays_ours() -> None:
    """Uneven zeros, and relu without a bias."""
    b = GraphBuilder("others")
    x = b.input("x", TensorType((1, 6, 8, 8), F32))
    w, bias = (b.constant(a) for a in drawn(np.random.default_rng(0), (8, 6, 3, 3), F32))
    uneven = Conv(strides=(1, 1), pads_before=(0, 0), pads_after=(2, 2), dilations=(1, 1))
    graph = b.build([b.emit(uneven, x, w, bias), b.emit(Relu(), b.emit(conv(), x, w))])
    artifact = compile_model(graph, OPTIONS, NOWHERE).artifact
    assert b'"library"' not in artifact.objects["device.json"]
    assert not artifact.manifest.libraries
