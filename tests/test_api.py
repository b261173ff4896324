"""The Python API on small models, against onnxruntime."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto
from small_models import mlp, two_outputs

import modelcc
from modelcc.api import default_jobs
from modelcc.artifact.file import read_artifact
from modelcc.environment import read_environment
from modelcc.report.page import report_page
from modelcc.report.report import most_live, report_from_json
from modelcc.runtime.errors import InputError
from modelcc.targets.native.toolchain import host_machine


def expected(model: ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return [np.asarray(y) for y in session.run(None, dict(feeds))]


def inputs(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    generator = np.random.default_rng(1)
    return [generator.standard_normal(shape).astype(np.float32) for shape in shapes]


def test_compiles_and_runs() -> None:
    (x,) = inputs((2, 6))
    net = modelcc.compile(mlp(), threads=1, cache=None)
    assert [str(spec) for spec in net.inputs] == ["f32[2, 6]"]
    assert [spec.name for spec in net.outputs] == ["y"]
    np.testing.assert_allclose(net(x), expected(mlp(), {"x": x})[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(net(x=x), net.run({"x": x})["y"])


def test_several_outputs_come_as_a_tuple_in_order() -> None:
    a, b = inputs((5,), (5,))
    net = modelcc.compile(two_outputs(), threads=1, cache=None)
    total, product = net(a, b)
    np.testing.assert_array_equal(total, a + b)
    np.testing.assert_array_equal(product, a * b)
    assert list(net.run({"b": b, "a": a})) == ["total", "product"]


@pytest.mark.parametrize("size", [1, 3, 17])
def test_one_compilation_serves_all_batch_sizes(size: int) -> None:
    (x,) = inputs((size, 6))
    net = modelcc.compile(mlp("batch"), threads=1, cache=None)
    assert [dim.name for dim in net.dims] == ["batch"]
    np.testing.assert_allclose(net(x), expected(mlp("batch"), {"x": x})[0], rtol=1e-5, atol=1e-6)


def test_dimensions_can_be_fixed_and_bounded() -> None:
    fixed = modelcc.compile(mlp("batch"), dims={"batch": 4}, threads=1, cache=None)
    assert fixed.inputs[0].shape == (4, 6)
    bounded = modelcc.compile(mlp("batch"), dims={"batch": (2, 8)}, threads=1, cache=None)
    greatest = modelcc.compile(mlp("batch"), dims={"batch": 8}, threads=1, cache=None)
    assert bounded.report().arena == greatest.report().arena > fixed.report().arena
    with pytest.raises(modelcc.InputError, match="batch = 2 to 8, got 9"):
        bounded(np.ones((9, 6), np.float32))
    assert (bounded.dims[0].low, bounded.dims[0].high) == (2, 8)
    with pytest.raises(InputError):
        bounded(np.zeros((9, 6), np.float32))


def test_saves_and_loads(tmp_path: Path) -> None:
    (x,) = inputs((2, 6))
    net = modelcc.compile(mlp(), threads=1, cache=None)
    net.save(tmp_path / "net.mcc")
    again = modelcc.load(tmp_path / "net.mcc", threads=1)
    np.testing.assert_array_equal(again(x), net(x))
    assert again.report().kernels == net.report().kernels


def test_a_model_for_a_device_that_is_not_here_is_saved(tmp_path: Path) -> None:
    net = modelcc.compile(mlp("batch"), "opencl:99", cache=None)
    assert net.report().kernels
    assert net.states == {}
    net.save(tmp_path / "m.mcc")
    assert read_artifact(tmp_path / "m.mcc").digest == net.digest
    (x,) = inputs((3, 6))
    for use in (lambda: net(x), lambda: net.run({"x": x}), lambda: net.session):
        with pytest.raises(modelcc.LoadError, match=r"OpenCL|opencl"):
            use()
    with pytest.raises(modelcc.LoadError, match=r"OpenCL|opencl"):
        modelcc.load(tmp_path / "m.mcc")


def test_the_same_input_gives_the_same_artifact(tmp_path: Path) -> None:
    for name in ("one", "two"):
        modelcc.compile(mlp(), threads=1, cache=None).save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_the_cache_answers_the_second_time(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(mlp().SerializeToString())
    (x,) = inputs((2, 6))
    first, second = (
        modelcc.compile(tmp_path / "m.onnx", threads=1, cache=tmp_path / "cache") for _ in "ab"
    )
    assert first.report().stages and not second.report().stages
    np.testing.assert_array_equal(first(x), second(x))
    (tmp_path / "m.onnx").write_bytes(two_outputs().SerializeToString())
    changed = modelcc.compile(tmp_path / "m.onnx", threads=1, cache=tmp_path / "cache")
    assert changed.report().stages and len(changed.outputs) == 2


def test_a_damaged_cache_entry_is_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(mlp().SerializeToString())
    modelcc.compile(tmp_path / "m.onnx", threads=1, cache=tmp_path / "cache")
    (entry,) = (tmp_path / "cache").glob("artifacts/*/*.mcc")
    entry.write_bytes(entry.read_bytes()[:1000])
    net = modelcc.compile(tmp_path / "m.onnx", threads=1, cache=tmp_path / "cache")
    assert net.report().stages
    assert net(*inputs((2, 6))).shape == (2, 3)


def test_calls_from_several_threads() -> None:
    net = modelcc.compile(mlp("batch"), threads=2, cache=None)
    feeds = [inputs((1 + n % 5, 6))[0] for n in range(40)]
    want = [net(x) for x in feeds]
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(net, feeds))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)


def test_takes_what_has_dlpack() -> None:
    torch = pytest.importorskip("torch")
    (x,) = inputs((2, 6))
    net = modelcc.compile(mlp(), threads=1, cache=None)
    np.testing.assert_array_equal(net(torch.from_numpy(x)), net(x))


def test_wrong_arguments_are_named() -> None:
    net = modelcc.compile(mlp(), threads=1, cache=None)
    with pytest.raises(InputError, match="'x'"):
        net(np.zeros((2, 5), np.float32))
    with pytest.raises(InputError, match="'x'"):
        net(np.zeros((2, 6), np.float64))
    with pytest.raises(modelcc.ModelError, match=r"no target 'natif'.*\n.*did you mean 'native'"):
        modelcc.compile(mlp(), target="natif", cache=None)
    with pytest.raises(modelcc.ModelError, match="x86-64-v9"):
        modelcc.compile(mlp(), cpu="x86-64-v9", cache=None)


def test_the_environment_names_the_default_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MODELCC_CPU", "x86-64-v2")
    (x,) = inputs((2, 6))
    for number, cpu in enumerate(("", "native")):
        net = modelcc.compile(mlp(), threads=1, cpu=cpu, cache=None)
        net.save(tmp_path / f"{number}.mcc")
        assert net(x).shape == (2, 3)
    named, native = (read_artifact(tmp_path / f"{n}.mcc").manifest.machine for n in range(2))
    assert named.cpu == "x86-64-v2"
    assert "+sse4.2" in named.features
    assert native.cpu == host_machine().cpu


def test_report_accounts_for_everything() -> None:
    net = modelcc.compile(mlp(), threads=1, cache=None)
    report = net.report(profile=True)
    assert {name for kernel in report.kernels for name in kernel.source} >= {"fc0", "relu0", "fc1"}
    assert report.flops >= 2 * 2 * (6 * 20 + 20 * 3)
    assert all(kernel.seconds and kernel.seconds > 0 for kernel in report.kernels)
    assert report.lower_bound == most_live(report.regions) <= report.arena
    assert report_from_json(report.to_json()) == report
    assert "fc0" in repr(report) and "µs" in repr(report)
    page = report_page(report)
    assert "<svg" in page and "http" not in page and "fc0" in page


def test_verify() -> None:
    result = modelcc.verify(mlp("batch"), threads=1)
    assert result.agrees and result.sizes == {"batch": 2}
    assert [d.name for d in result.reference] == [d.name for d in result.peer] == ["y"]


def test_environment() -> None:
    assert read_environment({"MODELCC_NUM_THREADS": "3"}).threads == 3
    assert read_environment({"MODELCC_CACHE_DIR": ""}).cache is None
    assert read_environment({"MODELCC_CPU": "x86-64-v2"}).cpu == "x86-64-v2"
    assert read_environment({"XDG_CACHE_HOME": "/c"}).cache == Path("/c/modelcc")
    assert default_jobs(read_environment({"MODELCC_JOBS": "7"})) == 7
    for name, text in (("MODELCC_NUM_THREADS", "many"), ("MODELCC_JOBS", "0")):
        with pytest.raises(modelcc.ModelError, match=f"{name} is '{text}'"):
            read_environment({name: text})


def test_import_is_light() -> None:
    code = "import sys, modelcc; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"onnx", "llvmlite", "rich", "click"}.isdisjoint(done.stdout.split())


def test_all_is_sorted_and_there() -> None:
    assert modelcc.__all__ == sorted(modelcc.__all__)
    for name in modelcc.__all__:
        assert getattr(modelcc, name).__doc__
    misspelled = "compyle"
    with pytest.raises(AttributeError, match="no attribute 'compyle'"):
        getattr(modelcc, misspelled)


def test_a_damaged_pickle_is_refused() -> None:
    net = modelcc.compile(mlp("batch"), threads=1, cache=None)
    reduced: Any = net.__reduce__()
    make, (manifest, *rest) = reduced
    with pytest.raises(modelcc.ArtifactError, match=r"pickled model: .*; pickle it again"):
        make(manifest[: len(manifest) // 2], *rest)


def test_what_an_exporter_of_arrays_raises_is_told() -> None:
    class Broken:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **options: object) -> object:
            raise KeyError("no memory")

    net = modelcc.compile(mlp("batch"), threads=1, cache=None)
    with pytest.raises(modelcc.InputError, match="does not share its memory"):
        net(Broken())


def test_copies_and_pickles(tmp_path: Path) -> None:
    (x,) = inputs((3, 6))
    net = modelcc.compile(mlp("batch"), threads=2, cache=None)
    assert copy.copy(net) is net and copy.deepcopy([net])[0] is net
    again = pickle.loads(pickle.dumps(net))
    assert (again.inputs, again.dims, again.threads) == (net.inputs, net.dims, 2)
    np.testing.assert_array_equal(again(x), net(x))
    assert again.report().kernels == net.report().kernels
    net.save(tmp_path / "a.mcc")
    again.save(tmp_path / "b.mcc")
    assert (tmp_path / "a.mcc").read_bytes() == (tmp_path / "b.mcc").read_bytes()
    loaded = pickle.loads(pickle.dumps(modelcc.load(tmp_path / "a.mcc")))
    np.testing.assert_array_equal(loaded(x), net(x))


def test_other_processes_take_models() -> None:
    feeds = inputs((1, 6), (4, 6))
    net = modelcc.compile(mlp("batch"), threads=1, cache=None)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for got, x in zip(pool.map(net, feeds), feeds, strict=True):
            np.testing.assert_array_equal(got, net(x))


def test_repr_tells_what_a_model_is() -> None:
    text = repr(modelcc.compile(mlp("batch"), dims={"batch": (1, 9)}, threads=2, cache=None))
    for part in ("small", "native", "2 threads", "x: f32[batch, 6]", "y: f32[batch, 3]", "1..9"):
        assert part in text
    assert max(map(len, text.splitlines())) <= 80


async def answers(net: modelcc.Model, feeds: list[np.ndarray]) -> list[np.ndarray]:
    return await asyncio.gather(*(asyncio.to_thread(net, x) for x in feeds))


def test_async_use() -> None:
    feeds = inputs(*((n, 6) for n in range(1, 9)))
    net = modelcc.compile(mlp("batch"), threads=1, cache=None)
    for got, x in zip(asyncio.run(answers(net, feeds)), feeds, strict=True):
        np.testing.assert_array_equal(got, net(x))
