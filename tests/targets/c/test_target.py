"""Whole models through the target c, against the target native and onnxruntime."""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from loop_programs import CASES
from onnx import TensorProto, helper, numpy_helper
from op_kernels import CASES as CASES_OF_OPS
from op_kernels import graph_of
from program_cases import small_program

import modelcc
from modelcc.driver import check_stage, pipeline, target_of
from modelcc.emit.emission import emit
from modelcc.ir.errors import ModelError
from modelcc.ir.op import Op, Sample
from modelcc.ops.samples import arrays
from modelcc.options import Options
from modelcc.pipeline import before_block, run_stages
from modelcc.targets.base import BuildConfig, Module, TargetOptions
from modelcc.targets.native.c_target import c_target
from tests.machines import chosen_options, chosen_target_options


def _model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[int | str]]],
    weights: dict[str, np.ndarray],
) -> onnx.ModelProto:
    last = nodes[-1].output[0]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def convolutions() -> onnx.ModelProto:
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1"], ["c1"], group=24, pads=[1, 1, 1, 1]),
        node("HardSwish", ["c1"], ["r1"]),
        node("MaxPool", ["r1"], ["p1"], kernel_shape=[3, 3], strides=[2, 2]),
        node("GlobalAveragePool", ["p1"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w2", "b2"], ["y"]),
    ]
    weights = {
        "w0": _random(24, 3, 3, 3), "b0": _random(24), "w1": _random(24, 1, 3, 3),
        "w2": _random(24, 10), "b2": _random(10),
    }  # fmt: skip
    return _model(nodes, {"x": (TensorProto.FLOAT, [1, 3, 19, 19])}, weights)


def transformer() -> onnx.ModelProto:
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "ids"], ["e"]),
        node("LayerNormalization", ["e", "scale", "shift"], ["n"], axis=-1),
        node("MatMul", ["n", "wq"], ["q"]),
        node("MatMul", ["n", "wk"], ["k"]),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "n"], ["a"]),
        node("Add", ["a", "e"], ["h"]),
        node("Erf", ["h"], ["g"]),
        node("Tanh", ["g"], ["t"]),
        node("ReduceMean", ["t"], ["y"], axes=[1], keepdims=0),
    ]
    weights = {
        "table": _random(50, 32), "scale": _random(32), "shift": _random(32),
        "wq": _random(32, 32), "wk": _random(32, 32),
    }  # fmt: skip
    return _model(nodes, {"ids": (TensorProto.INT64, ["batch", "seq"])}, weights)


def choices() -> onnx.ModelProto:
    """Bools, integers, a gather along an axis, conversions."""
    node = helper.make_node
    nodes = [
        node("Cast", ["x"], ["i"], to=TensorProto.INT32),
        node("Mod", ["i", "three"], ["m"]),
        node("Equal", ["m", "one"], ["is_one"]),
        node("Greater", ["x", "half"], ["big"]),
        node("Xor", ["is_one", "big"], ["odd"]),
        node("Where", ["odd", "x", "half"], ["w"]),
        node("ArgMax", ["w"], ["at"], axis=1, keepdims=1),
        node("GatherElements", ["w", "at"], ["best"], axis=1),
        node("Sub", ["w", "best"], ["y"]),
    ]
    weights = {
        "three": np.array(3, np.int32), "one": np.array(1, np.int32),
        "half": np.array(0.5, np.float32),
    }  # fmt: skip
    return _model(nodes, {"x": (TensorProto.FLOAT, ["n", 37])}, weights)


def feeds_of(name: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    match name:
        case "convolutions":
            return {"x": rng.standard_normal((1, 3, 19, 19)).astype(np.float32)}
        case "transformer":
            return {"ids": rng.integers(0, 50, (3, 11))}
        case _:
            return {"x": (9 * rng.standard_normal((5, 37))).astype(np.float32)}


OPS = {str(case.id).rpartition("-")[0]: case for case in CASES_OF_OPS}
MODELS = {"convolutions": convolutions, "transformer": transformer, "choices": choices}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_agrees_with_llvm_and_onnxruntime(name: str, threads: int) -> None:
    model, feeds = MODELS[name](), feeds_of(name)
    by_c = modelcc.compile(model, "c", threads=threads, cache=None)(feeds)
    by_llvm = modelcc.compile(model, "native", threads=threads, cache=None)(feeds)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (expected,) = map(np.asarray, session.run(None, feeds))
    np.testing.assert_allclose(by_c, by_llvm, 1e-5, 1e-5)
    np.testing.assert_allclose(by_c, expected, 1e-4, 1e-4)


def test_saved_artifacts_run(tmp_path: Path) -> None:
    compiled = modelcc.compile(convolutions(), "c", threads=1, cache=None)
    compiled.save(tmp_path / "m.mcc")
    feeds = feeds_of("convolutions")
    loaded = modelcc.load(tmp_path / "m.mcc", threads=1)
    np.testing.assert_array_equal(loaded(feeds), compiled(feeds))


def test_kernels_can_be_profiled() -> None:
    compiled = modelcc.compile(convolutions(), "c", threads=1, cache=None)
    report = compiled.report(profile=feeds_of("convolutions"))
    assert report.kernels
    assert all(kernel.seconds is not None and kernel.seconds >= 0 for kernel in report.kernels)


def test_loops_become_one_c_file() -> None:
    options = chosen_options(target="c")
    functions = tuple({case.name: case.function for case in CASES}.values())
    target = target_of(options)
    text = emit(functions, "loop", "c", target, options, BuildConfig()).contents.decode()
    assert text.count("#include <stdint.h>") == 1
    assert all(f"void {f.name}(" in text for f in functions)


def test_shared_libraries_bring_their_pool() -> None:
    program = small_program()
    target = c_target(chosen_target_options())
    names = [module.name for module in target.emit(program)]
    assert names == ["program", "kernels0", "pool"]
    library = target.render(target.emit(program), "so", BuildConfig())
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(library)
        file.flush()
        code = ctypes.CDLL(file.name)
        assert all(code[name] for name in ("small_run", "mcc_pool_create"))


def test_objects_are_cached(tmp_path: Path) -> None:
    target = c_target(TargetOptions())
    modules = (Module("a", "int a;"), Module("b", "int b;"), Module("c", "int a;"))
    reports: list[tuple[int, int]] = []
    place = BuildConfig(tmp_path, 2, lambda _, done, total: reports.append((done, total)))
    first = target.build(modules, place)
    assert first[0] == first[2] != first[1]
    assert reports == [(0, 2), (1, 2), (2, 2)]
    reports.clear()
    assert target.build(modules, place) == first
    assert reports == [(2, 2)]


def test_emits_one_file_and_the_weights() -> None:
    options = chosen_options(target="c")
    result = emit(transformer(), None, "c", target_of(options), options, BuildConfig())
    text = result.contents.decode()
    assert text.startswith("/*\n * small_run: ")
    assert "\nint32_t small_run(" in text
    assert len(result.constants) >= 3
    assert result.suffix == ".c"


def test_forms() -> None:
    target = c_target(TargetOptions())
    modules = (Module("one", "int a;"), Module("two", "int b;"))
    assert target.render(modules, "c", BuildConfig()).startswith(b"/* ---- file one.c */\nint a;")
    assert b".globl" in target.render(modules, "asm", BuildConfig())
    for form in ("obj", "so"):
        assert target.render(modules, form, BuildConfig()).startswith(b"\x7fELF")
    with pytest.raises(ModelError, match="target c cannot emit 'ptx'"):
        target.render(modules, "ptx", BuildConfig())


def test_the_processor_is_the_compilers_too() -> None:
    target = c_target(TargetOptions(cpu="x86-64-v3", optimize=3))
    assert "-march=x86-64-v3" in target.compiler().flags
    assert "-O3" in target.compiler().flags
    assert target.machine.vector_bits == 256


@pytest.mark.parametrize(("op", "sample"), OPS.values())
def test_level_0_has_a_schedule_without_vectors(op: Op, sample: Sample) -> None:
    """Every op's last sample, in loops over single elements that stay within their buffers."""
    settings = Options(target="c", cpu="portable", optimize=0)
    target = target_of(settings)
    stages = before_block(pipeline(target, settings, BuildConfig()), "emit")
    graph = graph_of(op, sample, arrays(op, sample), True)
    program = run_stages(stages, graph, check_stage)
    assert f"int32_t {program.name}_run(" in target.complete(program)


def test_without_a_compiler_there_is_still_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    target = c_target(TargetOptions())
    module = Module("one", "int a;")
    assert target.render((module,), "c", BuildConfig()) == b"int a;"
    with pytest.raises(ModelError, match="there is no C compiler on this machine"):
        target.build((module,), BuildConfig())
