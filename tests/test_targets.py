"""Every target that runs here gives what onnxruntime gives; others can be installed."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto
from small_models import computed_gather, mlp, two_outputs

import modelcc
from modelcc.driver import compile_model
from modelcc.emit.emission import emit
from modelcc.ir.naming import bound_names, user_name
from modelcc.options import Options
from modelcc.targets import registry
from modelcc.targets.base import BuildConfig, TargetOptions
from modelcc.targets.native.target import NativeTarget, native_target
from modelcc.verification.verification import Request, verify_model
from tests.machines import chosen_options, chosen_target_options

MODELS = {"mlp": mlp("batch"), "two_outputs": two_outputs(), "computed_gather": computed_gather()}
TARGETS = ("native", "c") if shutil.which("cc") else ("native",)


def feeds_of(model: ModelProto) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(5)
    shapes = {
        value.name: [d.dim_value or 19 for d in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }
    return {n: generator.uniform(0, 38, s).astype(np.float32) for n, s in shapes.items()}


@pytest.mark.parametrize("optimize", [0, 2])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_agrees_with_onnxruntime(name: str, target: str, threads: int, optimize: int) -> None:
    model = MODELS[name]
    feeds = feeds_of(model)
    net = modelcc.compile(model, target, threads=threads, optimize=optimize, cache=None)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    got = net.run(feeds)
    results = map(np.asarray, session.run(None, feeds))
    for output, want in zip(session.get_outputs(), results, strict=True):
        np.testing.assert_allclose(got[output.name], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3"])
def test_older_processors(cpu: str) -> None:
    options = Options(threads=1, cpu=cpu)
    assert verify_model(Request(mlp(), options)).agrees


@pytest.mark.skipif("c" not in TARGETS, reason="there is no C compiler")
def test_c_is_one_file_that_compiles(tmp_path: Path) -> None:
    options = chosen_options(target="c", threads=1)
    target = registry.make_target("c", chosen_target_options())
    emission = emit(mlp(), None, "c", target, options, BuildConfig())
    (tmp_path / "model.c").write_bytes(emission.contents)
    command = ["cc", "-std=gnu11", "-O1", "-march=native", "-c", "model.c", "-Wno-psabi"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert b"small_run" in (tmp_path / "model.o").read_bytes()


@pytest.mark.skipif("c" not in TARGETS, reason="there is no linker")
@pytest.mark.parametrize("name", TARGETS)
def test_the_shared_library_stands_alone(name: str, tmp_path: Path) -> None:
    target = registry.make_target(name, chosen_target_options())
    options = chosen_options(target=name, threads=1)
    emission = emit(two_outputs(), None, "so", target, options, BuildConfig())
    (tmp_path / "model.so").write_bytes(emission.contents)
    library = ctypes.CDLL(str(tmp_path / "model.so"), mode=os.RTLD_NOW)
    arrays = [np.arange(5, dtype=np.float32) + n for n in range(4)]
    a, b, total, product = arrays
    inputs, outputs = ((ctypes.c_void_p * 2)(*(x.ctypes.data for x in two))
                       for two in ((a, b), (total, product)))  # fmt: skip
    assert library.small_run(inputs, outputs, None, None, None, None) == 0
    np.testing.assert_array_equal(total, a + b)
    np.testing.assert_array_equal(product, a * b)


def test_code_for_others_has_no_tiles() -> None:
    """A process has to ask Linux for those of AMX; this one has, another that loads it has not."""
    ones = ", ".join("1" * 512)
    text = f"""<ir_version: 10, opset_import: ["" : 17]>
    g (bfloat16[64, 32] x) => (bfloat16[64, 16] y) <float[32, 16] w = {{{ones}}}> {{
      v = Cast<to = 16>(w)
      y = MatMul(x, v)
    }}"""
    made = native_target(chosen_target_options())
    target = replace(made, cpu=replace(made.cpu, multiplies_tiles=True))
    plain = replace(made, cpu=replace(made.cpu, multiplies_tiles=False))

    def emitted(form: str, target: NativeTarget) -> bytes:
        model, options = onnx.parser.parse_model(text), chosen_options(threads=1)
        return emit(model, None, form, target, options, BuildConfig()).contents

    if made.cpu.vector_bits == 512:
        assert b"matrices" in emitted("schedule", target)
    assert emitted("obj", target) == emitted("obj", plain)


def test_installed_targets_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    points = (
        EntryPoint("extra", "modelcc.targets.native.target:native_target", registry.GROUP),
        EntryPoint("broken", "no_such_package:make", registry.GROUP),
    )

    def installed(group: str, name: str | None = None) -> EntryPoints:
        return EntryPoints(p for p in points if name in (None, p.name) and p.group == group)

    monkeypatch.setattr(registry, "entry_points", installed)
    assert registry.target_names() == (*registry.BUILT_IN, "broken", "extra")
    assert registry.make_target("extra", TargetOptions()) == native_target(TargetOptions())
    with pytest.raises(modelcc.ModelError, match="'broken' of no_such_package:make"):
        registry.make_target("broken", TargetOptions())


def test_outputs_bound_under_other_names_get_the_users_back() -> None:
    outputs = ("x", "y", "x.output", "x.output1", "x", "z.output.output2")
    bound = bound_names(outputs, {"x", "x.output", "z"})
    assert len({*bound, "x", "x.output", "z"}) == len(bound) + 3
    assert bound[1] == "y"
    assert tuple(map(user_name, bound)) == outputs


def test_outputs_that_steps_need_in_the_arena_keep_their_names() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[3, 2, 2] data, int64[1] axes) => (float[3, 2] reduced, float[3, 2, 2] other) {
      reduced = ReduceSumSquare <keepdims = 0> (data, axes)
      other = Neg(data)
    }"""
    model = onnx.parser.parse_model(text)
    model.graph.node[1].output[0] = model.graph.output[1].name = "reduced.output"
    net = modelcc.compile(model, threads=1, cache=None)
    assert [o.name for o in net.outputs] == ["reduced", "reduced.output"]


def test_an_input_returned_as_output() -> None:
    graph = modelcc.import_model(two_outputs())
    graph = type(graph)(graph.name, graph.inputs, ("a", "total"), graph.nodes, graph.types)
    compiled = compile_model(graph, chosen_options(threads=1))
    a, b = np.arange(5, dtype=np.float32), np.ones(5, np.float32)
    results = compiled.target.load(compiled.artifact, 1).run({"a": a, "b": b})
    assert list(results) == ["a", "total"]
    np.testing.assert_array_equal(results["a"], a)


def test_choices_in_the_last_vector_of_a_row() -> None:
    """LLVM's vector combiner takes the one element for a vector and aborts."""
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    g (double[14, 8, 146] x, double[14, 1, 1] y, double[1] w) => (double[14, 8, 61] z)
    <int64[1] starts = {25}, int64[1] ends = {1000}, int64[1] axes = {2}, int64[1] steps = {2}> {
      s = Slice(x, starts, ends, axes, steps)
      p = Pow(s, y)
      l = Log(p)
      d = Div(l, w)
      z = Sqrt(d)
    }"""
    random = np.random.default_rng(0)
    x, y = random.uniform(1.25, 2, (14, 8, 146)), random.uniform(1, 3, (14, 1, 1))
    net = modelcc.compile(onnx.parser.parse_model(text), threads=2, cache=None)
    wanted = np.sqrt(np.log(x[..., 25::2] ** y) / 0.5)
    np.testing.assert_allclose(net(x, y, np.array([0.5])), wanted, rtol=1e-13)
