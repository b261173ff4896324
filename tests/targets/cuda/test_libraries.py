"""Products by cuBLASLt where it is preferred, on what stands for it and for the driver."""

from __future__ import annotations

import gc
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cublaslt_stand_in import FakeCublasLt
from cuda_driver import FakeDriver
from scipy.special import erf

from modelcc.driver import NOWHERE, compile_model
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.index import Index, Range, Sym
from modelcc.ir.types import BF16, F16, F32, Array, DType, TensorType
from modelcc.ops.activation import Gelu, Relu
from modelcc.ops.elementwise import Add, Tanh
from modelcc.ops.matmul import MatMul
from modelcc.ops.shape import Transpose
from modelcc.options import Options
from modelcc.report.in_artifact import report_in
from modelcc.runtime.devices.device_program import DeviceCode
from modelcc.runtime.devices.device_steps import MoveTensor, from_json, is_the_devices
from modelcc.runtime.errors import LoadError
from modelcc.runtime.session import Session
from modelcc.runtime.streams import cublaslt, vendor_library
from modelcc.targets.cuda.libraries import CUBLASLT
from tests.targets.cuda.test_partial_sums import chain
from tests.targets.cuda.test_program import prepared

cuda_device = pytest.importorskip("modelcc.runtime.streams.cuda_device")


def products(dtype: DType, rows: Index) -> Graph:
    """``h = relu(x w + b)``, where x and w are transposed, products of it in batches, and one that
    has a tanh behind."""
    rng = np.random.default_rng(7)
    b = GraphBuilder("products")
    x, k = (
        b.input(name, TensorType((3, *shape), dtype))
        for name, shape in (("x", (24, rows)), ("k", (40, 32)))
    )
    w, bias, v = (
        b.constant(rng.standard_normal(shape).astype(dtype.numpy))
        for shape in ((40, 24), (40,), (40, 8))
    )
    turned = b.emit(Transpose((0, 2, 1)), x), b.emit(Transpose((1, 0)), w)
    h = b.emit(Relu(), b.emit(Add(), b.emit(MatMul(), *turned), bias))
    y = b.emit(MatMul(), h, k, name="y")
    return b.build([y, b.emit(Tanh(), b.emit(MatMul(), h, v), name="t")])


def expected(x: Array, k: Array) -> dict[str, Array]:
    rng, dtype = np.random.default_rng(7), x.dtype
    w, bias, v = (
        rng.standard_normal(shape).astype(dtype).astype("f4")
        for shape in ((40, 24), (40,), (40, 8))
    )
    x, k = (array.astype("f4") for array in (x, k))
    h = np.maximum(x.transpose(0, 2, 1) @ w.T + bias, 0).astype(dtype).astype("f4")
    return {"y": h @ k, "t": np.tanh(h @ v)}


def options(**more: Any) -> Options:
    return Options(target="cuda:sm_80", libraries=(("cublaslt", ""),), kernels="library", **more)


@pytest.mark.parametrize(("dtype", "rows"), [(F32, Sym("n")), (BF16, 16)])
def test_products_agree(dtype: DType, rows: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bias and relu behind, in batches, transposed; recorded once."""
    artifact, kernels = prepared(products(dtype, rows), options())
    own = [name for name in kernels if name.endswith("Tanh")]
    assert len(own) == 1 and (dtype != F32 or len(kernels) == 1)
    driver = FakeDriver(kernels)
    library = FakeCublasLt(driver)
    monkeypatch.setattr(cuda_device, "open_library", lambda spec: spec)
    monkeypatch.setattr(cuda_device, "function_of", library.function)
    net = Session(artifact, 1, DeviceCode(artifact, cuda_device.CudaDevice(driver, 0)))
    for seed in range(2):
        rng = np.random.default_rng(seed)
        shapes = {"x": (3, 24, 16), "k": (3, 40, 32)}
        feeds = {n: rng.standard_normal(s).astype(dtype.numpy) for n, s in shapes.items()}
        found, wanted = net.run(feeds), expected(**feeds)
        assert library.failures == []
        close = 1e-5 if dtype == F32 else 2e-2
        for name, array in wanted.items():
            scale = close * float(np.abs(array).max())
            np.testing.assert_allclose(found[name].astype("f4"), array, rtol=0, atol=scale)
    assert sorted({asked[:2] for asked in library.asked}) == [(68, 1), (68, 6)]
    assert driver.calls.count("cuGraphLaunch") == 1, "the first call makes descriptions"


def test_gelu_is_the_librarys_if_it_is_the_approximation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a bias and what is added, of one matrix among samples; the exact one stays ours."""
    rng, b = np.random.default_rng(7), GraphBuilder("gelus")
    w, bias = rng.standard_normal((24, 16)), rng.standard_normal(16)
    x = b.input("x", TensorType((1, 12, 24), F32))
    weights = b.constant(w.astype("f4")), b.constant(bias.astype("f4"))
    before = b.input("before", TensorType((1, 12, 16), F32))
    made = b.emit(Add(), b.emit(Add(), b.emit(MatMul(), x, weights[0]), weights[1]), before)
    exact = b.emit(MatMul(), x, b.constant(w.astype("f4").copy() + 1))
    graph = b.build([b.emit(Gelu("tanh"), made), b.emit(Gelu("none"), exact)])
    artifact, kernels = prepared(graph, options())
    driver = FakeDriver(kernels)
    library = FakeCublasLt(driver)
    monkeypatch.setattr(cuda_device, "open_library", lambda spec: spec)
    monkeypatch.setattr(cuda_device, "function_of", library.function)
    net = Session(artifact, 1, DeviceCode(artifact, cuda_device.CudaDevice(driver, 0)))
    given = rng.standard_normal((1, 12, 24)).astype("f4")
    added = rng.standard_normal((1, 12, 16)).astype("f4")
    found, own = net(given, added)
    z = given @ w + bias + added
    wanted = 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)
    z = given @ (w + 1)
    np.testing.assert_allclose(own, z * 0.5 * (1 + erf(z / np.sqrt(2))), rtol=0, atol=1e-4)
    assert [asked[1] for asked in library.asked] == [cublaslt.GELU + cublaslt.BIAS]


def test_places_have_plans_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than there is room for; the stand-in refuses places that are not as aligned as the
    plan says, and all is given back."""
    monkeypatch.setattr(vendor_library, "MOST_PLANS", 2)
    driver = FakeDriver({})
    library = FakeCublasLt(driver)
    monkeypatch.setattr(cuda_device, "open_library", lambda spec: spec)
    monkeypatch.setattr(cuda_device, "function_of", library.function)
    device = cuda_device.CudaDevice(driver, 0)
    device.use(CUBLASLT)
    rng = np.random.default_rng(4)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3), (3, 4)))
    memory = [device.allocate(512) for _ in range(4)]
    for first in (0, 1, 4, 0, 2, 16):
        device.upload(memory[0], 4 * first, x.ctypes.data, x.nbytes)
        device.upload(memory[1], 4 * first, y.ctypes.data, y.nbytes)
        matrices = (first, 3, 0, 0, first, 4, 0, 0, first, 4, 0, 0)
        numbers = (cublaslt.COMPUTE_F32, cublaslt.NO_EPILOGUE, 2, 4, 3, 1, *matrices, 0, 512)
        elements = ["f32", "f32", "f32", "i8"]
        device.call("cublaslt", elements, [(m, 0) for m in memory], numbers)
        found = np.empty((2, 4), np.float32)
        device.download(memory[2], 4 * first, found.ctypes.data, found.nbytes)
        device.synchronize()
        np.testing.assert_allclose(found, x @ y, rtol=1e-5)
    assert library.failures == [] and library.held == 2 + 2 * 4
    del device, memory
    gc.collect()
    assert library.held == 0


def test_what_a_library_is_asked_for() -> None:
    graph = products(F32, 16)
    artifact = compile_model(graph, options(precision="tf32"), NOWHERE).artifact
    assert b"[77,6,16,40,24,3," in artifact.objects["device.json"], "tf32 only if it is asked for"
    (spec,) = artifact.manifest.libraries
    assert (spec.name, spec.package) == ("cublaslt", "nvidia-cublas-cu12")
    plain = compile_model(graph, Options(target="cuda:sm_80"), NOWHERE).artifact
    assert not plain.manifest.libraries and b"cublaslt" not in plain.objects["device.json"]
    with pytest.raises(ModelError, match="GPUs cannot call a library 'openblas'"):
        compile_model(graph, Options(target="cuda", libraries=(("openblas", ""),)), NOWHERE)


def test_auto_asks_a_library_where_it_is_estimated_to_gain() -> None:
    """A product that fills an H100 is faster by its library than by instructions of warps alone;
    one of few rows takes as long as its matrix takes to read."""
    rng, b = np.random.default_rng(7), GraphBuilder("both")
    x = b.input("x", TensorType((4096, 512), F16))
    row = b.input("row", TensorType((1, 512), F16))
    wide, small = (rng.standard_normal(s).astype("f2") for s in ((512, 4096), (512, 512)))
    ends = [b.emit(MatMul(), x, b.constant(wide), source=("large",))]
    ends.append(b.emit(MatMul(), row, b.constant(small), source=("few",)))
    graph = b.build(ends)
    asked = Options(target="cuda:sm_90", kernels="auto")
    result = compile_model(graph, asked, NOWHERE)
    steps = from_json(result.artifact.objects["device.json"].decode()).steps
    assert [type(s).__name__ for s in steps if is_the_devices(s) and not isinstance(s, MoveTensor)]\
        == ["DeviceLibraryCall", "KernelCall"]  # fmt: skip
    report = report_in(result.artifact)
    assert report is not None
    notes = "\n".join(report.notes)
    assert re.search(r"by cublaslt, as is estimated to be faster: large \(\S+ x\)", notes)
    assert re.search(r"by kernels of ours, as cublaslt .*: few \(1 x\)", notes)
    own = compile_model(graph, replace(asked, kernels="generated"), NOWHERE).artifact
    assert not own.manifest.libraries


@pytest.mark.parametrize(("kernels", "own"), [("library", []), ("auto", ["k1_MatMul"])])
def test_a_library_takes_products_of_long_sums_whole(kernels: str, own: list[str]) -> None:
    """What ours would do in parts; there are no counters then."""
    _, found = prepared(chain(16, 2048, 32), Options(target="cuda:sm_80", kernels=kernels))
    assert sorted(found) == own


def test_a_machine_without_it_says_what_to_install() -> None:
    artifact, kernels = prepared(products(F32, 16), Options(
        target="cuda:sm_80", libraries=(("cublaslt", "/nowhere/libcublasLt.so"),),
        kernels="library",
    ))  # fmt: skip
    with pytest.raises(LoadError, match=r"cublaslt is not there .*nowhere.*nvidia-cublas-cu12"):
        DeviceCode(artifact, cuda_device.CudaDevice(FakeDriver(kernels), 0))


def test_the_report_says_what_keeps_a_product_from_a_library() -> None:
    """Libraries take no products of nothing."""
    graph = products(F32, Sym("n"))
    given = (replace(graph, dims={"n": Range(low, 64)}) for low in (0, 1))
    found = [report_in(compile_model(g, options(), NOWHERE).artifact) for g in given]
    notes = ["\n".join(report.notes) for report in found if report]
    assert re.search(
        r"not by a library, as n may be 0: bound it, as in --dim n=1..4096: ", notes[0]
    )
    assert "by cublaslt: " not in notes[0]
    assert "by cublaslt: " in notes[1] and "may be 0" not in notes[1]
