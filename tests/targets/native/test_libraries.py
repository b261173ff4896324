"""Products that a library computes, from the schedule to a process that loads the artifact."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from delivered import delivered, parsed

import modelcc
from modelcc.artifact.file import read_artifact
from modelcc.cli import main
from modelcc.driver import compile_model, target_of
from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from modelcc.model_tuning.above import tasks_of
from modelcc.options import Options
from modelcc.runtime.errors import LoadError
from modelcc.schedule.text import parse_schedule
from modelcc.targets.base import BuildConfig
from modelcc.targets.cpu.candidates import candidates
from modelcc.targets.native.cpu_target import CpuTarget
from modelcc.tune.measurement import Worker, WorkerMeasurer
from tests.blas import blas_source, needs_compiler, small_blas
from tests.machines import chosen_options

SGEMM = "library(name=openblas, symbol=cblas_sgemm)"
RUN = (sys.executable, "-m", "modelcc", "run")
INSPECT = (sys.executable, "-m", "modelcc", "inspect")
WEIGHTS = np.random.default_rng(1).standard_normal((48, 48))
PRODUCTS = {
    "rows": "(float[7, 48] x, float[48, 48] w) => (float[7, 48] y) { y = MatMul(x, w) }",
    "transposed": "(float[7, 48] x, float[48, 48] w) => (float[7, 48] y) "
    "{ y = Gemm<transB = 1>(x, w) }",
    "both transposed": "(float[48, 7] x, float[48, 48] w) => (float[7, 48] y) "
    "{ y = Gemm<transA = 1, transB = 1>(x, w) }",
    "wide": "(double[7, 48] x, double[48, 48] w) => (double[7, 48] y) { y = MatMul(x, w) }",
    "vector": "(float[48] x, float[48, 48] w) => (float[48] y) { y = MatMul(x, w) }",
    "column": "(float[9, 48] x, float[48, 1] z) => (float[9, 1] y) { y = MatMul(x, z) }",
    "batch": "(float[2, 3, 5, 8] x, float[2, 3, 8, 4] z) => (float[2, 3, 5, 4] y) "
    "{ y = MatMul(x, z) }",
    "broadcast": "(float[2, 3, 5, 8] x, float[3, 8, 4] z) => (float[2, 3, 5, 4] y) "
    "{ y = MatMul(x, z) }",
    "named rows": "(float[n, 48] x, float[48, 48] w) => (float[n, 48] y) { y = MatMul(x, w) }",
    "named batch": "(float[n, 5, 8] x, float[n, 8, 4] z) => (float[n, 5, 4] y) "
    "{ y = MatMul(x, z) }",
}
REFUSED = {
    "epilogue": (
        "(float[7, 48] x, float[48, 48] w) => (float[7, 48] y) { h = MatMul(x, w) y = Relu(h) }",
        "library(name=openblas, symbol=cblas_sgemm)",
        "more than a product",
    ),
    "no product": ("(float[7, 48] x) => (float[7, 48] y) { y = Neg(x) }", SGEMM, "no sum of"),
    "packed": (
        "(float[64, 2048] x, float[2048, 2048] z) => (float[64, 2048] y) { y = MatMul(x, z) }",
        SGEMM,
        "x1 lies in blocks",
    ),
    "convolution": (
        "(float[1, 48, 9] x, float[48, 48, 3] z) => (float[1, 48, 7] y) { y = Conv(x, z) }",
        SGEMM,
        "along several axes",
    ),
    "type": (PRODUCTS["wide"], SGEMM, "cblas_sgemm is for f32, not for f64"),
    "symbol": (
        PRODUCTS["rows"],
        "library(name=openblas, symbol=cblas_strsm)",
        "'cblas_strsm' is none of cblas_sgemm",
    ),
    "library": (PRODUCTS["rows"], "library(name=mkl, symbol=cblas_sgemm)", "by --library mkl"),
    "size": (PRODUCTS["named rows"], SGEMM, "n may be 0, or 2.31 and more: bound it"),
}


@pytest.fixture(scope="module")
def blas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_blas(tmp_path_factory.mktemp("blas"))


def model(text: str) -> onnx.ModelProto:
    """With a matrix ``w`` of constants, if it has one."""
    made = parsed(f"g {text}", version=12)
    for value in [v for v in made.graph.input if v.name == "w"]:
        made.graph.input.remove(value)
        dtype = np.float64 if value.type.tensor_type.elem_type == 11 else np.float32
        made.graph.initializer.append(onnx.numpy_helper.from_array(WEIGHTS.astype(dtype), "w"))
    return made


def asked(path: Path | str, text: str = "", **changes: object) -> Options:
    """For one thread, with up to 64 named rows."""
    dims = {"n": (1, 64)} if "[n" in text else {}
    libraries = (("openblas", str(path)),)
    common = chosen_options(threads=1, accuracy="strict", dims=dims, libraries=libraries)
    return replace(common, **changes)


def called(made: onnx.ModelProto, options: Options) -> list[str]:
    """Symbols of libraries that the program calls."""
    program = compile_model(made, options).artifact.manifest
    return [symbol for spec in program.libraries for symbol in spec.symbols]


def reference(made: onnx.ModelProto, feeds: Mapping[str, Array]) -> Array:
    session = onnxruntime.InferenceSession(made.SerializeToString())
    return np.asarray(session.run(None, feeds)[0])


def agree(made: onnx.ModelProto, options: Options) -> None:
    """With onnxruntime and with our own kernel."""
    net = modelcc.compile(made, options=options, cache=None)
    own = modelcc.compile(made, options=replace(options, libraries=(), kernels=None))
    feeds = net.random_inputs({"n": 11} if options.dims else {}, 0)
    (y,) = net.run(feeds).values()
    for other in (reference(made, feeds), own.run(feeds)["y"]):
        np.testing.assert_allclose(y, other, rtol=1e-4, atol=1e-4)


@needs_compiler
@pytest.mark.parametrize("target", ["native", "c"])
@pytest.mark.parametrize("text", PRODUCTS.values(), ids=PRODUCTS)
def test_products_agree(text: str, target: str, blas: Path) -> None:
    options = asked(blas, text, target=target, kernels="library")
    assert called(model(text), options)
    agree(model(text), options)


@pytest.mark.skipif(not find_spec("scipy_openblas32"), reason="OpenBLAS is not installed")
def test_openblas_agrees() -> None:
    for text in PRODUCTS.values():
        options = asked("", text, kernels="library")
        assert called(model(text), options)
        agree(model(text), options)


@needs_compiler
def test_the_default_calls_none(blas: Path) -> None:
    assert called(model(PRODUCTS["rows"]), asked(blas)) == []


@needs_compiler
def test_an_edited_schedule_is_followed(
    blas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: object) -> str:
        assert main([*map(str, arguments)]) == 0
        return capsys.readouterr().out

    file, schedules, artifact = (tmp_path / name for name in ("m.onnx", "s.txt", "m.mcc"))
    onnx.save(model(PRODUCTS["rows"]), file)
    options = ["--threads", "1", "--no-cache", "--no-strassen", "--library", f"openblas={blas}"]
    run("compile", file, "--emit", "schedule", *options, "-o", schedules)
    text = schedules.read_text()
    line = next(line for line in text.splitlines() if line.startswith("kernel"))
    schedules.write_text(text.replace(line, f"{line.partition(':')[0]}: {SGEMM}"))
    listed = run("compile", file, "--emit", "schedule", "--schedule", schedules, *options)
    assert SGEMM in listed
    run("compile", file, "--schedule", schedules, *options, "-o", artifact)
    (spec,) = read_artifact(artifact).manifest.libraries
    assert (spec.name, spec.version, spec.symbols) == ("openblas", "1.2.3", ("cblas_sgemm",))
    x = np.random.default_rng(0).standard_normal((7, 48)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    command = [*RUN, artifact, "-i", tmp_path / "x.npy", "--json"]
    done = subprocess.run(command, capture_output=True, check=True)
    first = json.loads(done.stdout)["outputs"]["y"]["first"]
    np.testing.assert_allclose(first, (x @ WEIGHTS)[0, :4], rtol=1e-4)


@needs_compiler
@pytest.mark.parametrize(("text", "schedule", "message"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_schedule_is_refused(text: str, schedule: str, message: str, blas: Path) -> None:
    options = asked(blas)
    target = target_of(options)
    assert isinstance(target, CpuTarget)
    task = max(tasks_of(model(text), options), key=lambda task: task.estimate)
    given = replace(options, schedule=f"kernel {task.key}: {schedule}")
    with pytest.raises(ModelError, match=message) as error:
        compile_model(model(text), given)
    assert task.key in str(error.value)


def test_a_missing_library_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as error:
        compile_model(model(PRODUCTS["rows"]), asked(tmp_path / "libopenblas.so"))
    assert "the library openblas is not there" in str(error.value)
    assert "--library openblas=" in str(error.value)
    with pytest.raises(ModelError, match="cannot call a library 'mkl'"):
        compile_model(model(PRODUCTS["rows"]), replace(asked(""), libraries=(("mkl", ""),)))
    with pytest.raises(ModelError, match="none is named"):
        compile_model(model(PRODUCTS["rows"]), chosen_options(kernels="library"))


@needs_compiler
def test_a_library_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    wide = small_blas(tmp_path, "USE64BITINT")
    with pytest.raises(ModelError, match="integers of 64 bits"):
        compile_model(model(PRODUCTS["rows"]), asked(wide))


@needs_compiler
def test_an_artifact_finds_its_library_or_says_so(blas: Path, tmp_path: Path) -> None:
    moved = tmp_path / "first"
    moved.mkdir()
    library = small_blas(moved)
    path = tmp_path / "m.mcc"
    options = asked(library, kernels="library")
    net = modelcc.compile(model(PRODUCTS["rows"]), options=options, cache=None)
    net.save(path)
    x = np.ones((7, 48), np.float32)
    wanted = net(x)
    shown = subprocess.run([*INSPECT, path], capture_output=True, text=True, check=True).stdout
    assert re.search(r"libraries\s+openblas", shown)
    library.unlink()
    done = subprocess.run([*RUN, path], capture_output=True, text=True, check=False)
    assert done.returncode and "Traceback" not in done.stderr
    assert "openblas is not there" in done.stderr and "pip install modelcc[blas]" in done.stderr
    done = subprocess.run([*RUN, path, "--library", f"openblas={blas}"], check=False)
    assert done.returncode == 0
    again = modelcc.load(path, libraries={"openblas": str(blas)})
    np.testing.assert_array_equal(again(x), wanted)
    assert ctypes.CDLL(str(blas)).openblas_get_num_threads() == 1
    with pytest.raises(LoadError, match="calls no library mkl"):
        modelcc.load(path, libraries={"mkl": "x"})
    less = tmp_path / "less"
    less.mkdir()
    with pytest.raises(LoadError, match="has no function cblas_sgemm"):
        modelcc.load(path, libraries={"openblas": str(small_blas(less, letters="d"))})


@needs_compiler
def test_the_tuner_measures_it(blas: Path) -> None:
    options = asked(blas)
    target = target_of(options)
    assert isinstance(target, CpuTarget)
    (task,) = tasks_of(model(PRODUCTS["rows"]), options)
    first = next(iter(candidates(task.kernel, task.default, target.cpu)))
    assert first == parse_schedule(SGEMM)
    with Worker() as worker:
        (times,) = WorkerMeasurer(target, BuildConfig(), worker).times(
            task.kernel, task.default, [first]
        )
    assert times.own > 0


@needs_compiler
def test_delivered_c_names_what_to_link(blas: Path, tmp_path: Path) -> None:
    options = asked(blas, target="c", cpu="portable", kernels="library")
    folder = delivered(model(PRODUCTS["rows"]), tmp_path, settings=options)
    lists = (tmp_path / "CMakeLists.txt").read_text()
    assert "target_link_libraries(net PUBLIC m openblas)" in lists
    assert "Link with: -lopenblas" in (tmp_path / "net.c").read_text()
    with pytest.raises(AssertionError, match="cblas_sgemm"):
        folder.build()
    (tmp_path / "blas.c").write_text(blas_source())
    x = np.random.default_rng(0).standard_normal((7, 48)).astype(np.float32)
    folder.build()
    (y,) = folder.outputs({"x": x}, {"y": x}).values()
    np.testing.assert_allclose(y, x @ WEIGHTS, rtol=1e-4, atol=1e-4)
