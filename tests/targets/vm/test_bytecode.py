"""Models as bytecode, run by the interpreter's C as it is built for this machine."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto
from small_models import mlp

import modelcc
from modelcc.interpreted import BytecodeModel, built, load_bytecode
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.index import Range, Sym
from modelcc.ir.region import Repeat
from modelcc.ir.types import BOOL, F32, TensorType
from modelcc.ops.arithmetic import Add, Mul
from modelcc.ops.comparison import Less
from modelcc.ops.control import Loop
from modelcc.ops.generate import Indices
from modelcc.ops.reduce import ReduceMean
from modelcc.runtime.errors import InputError, LoadError
from modelcc.targets.c.delivery.folder import File
from modelcc.targets.mcu.emulation.build import write_files
from modelcc.targets.vm.encode import Encoded, encode
from modelcc.targets.vm.kernel import kernels_json, merged, read_kernels
from modelcc.targets.vm.library import interpreter_files
from tests.embedded import WARNINGS, command, embedded, keyword_spotter, leaky_sum, needs_compiler

RNG = np.random.default_rng(5)


def bytecode(model: ModelProto | Graph, target: str = "cortex-m4") -> Encoded:
    """A model's bytes and kernels."""
    return encode(embedded(model, target))


def looping() -> Graph:
    """Rows that a counter decides, below each other; and what is doubled until it is large."""
    b = GraphBuilder("looping")
    x = b.input("x", TensorType((1, 4), F32))
    inner = GraphBuilder("rows", {"t": Range(0, None)})
    state = inner.input("state", TensorType((1, 4), F32))
    step = inner.emit(Indices((Sym("t"),), (), F32))
    after = inner.emit(Add(), inner.emit(Mul(), state, inner.constant(0.5)), step)
    rows = Loop(inner.build([after, after]), "t", 5, 1, False, (0,), (True,))
    last, stacked = b.add(rows, x)
    inner = GraphBuilder("doubling", {"n": Range(0, None)})
    inner.input("going", TensorType((), BOOL))
    state = inner.input("state", TensorType((1, 4), F32))
    twice = inner.emit(Add(), state, state)
    going = inner.emit(Less(), inner.emit(ReduceMean((0, 1), False), twice), inner.constant(50.0))
    doubling = Loop(inner.build([going, twice]), "n", None, 2, True)
    first = b.emit(Less(), b.emit(ReduceMean((0, 1), False), last), b.constant(9.0))
    return b.build([stacked, b.add(doubling, first, last)[1]])


@cache
def spotter() -> Encoded:
    """Those of a small keyword spotter."""
    return bytecode(keyword_spotter())


def loaded(encoded: Encoded, folder: Path) -> BytecodeModel:
    """The model in the interpreter with its kernels."""
    files = interpreter_files(encoded.kernels, "a test")
    write_files((*files, File("net.mcb", encoded.data)), folder)
    return load_bytecode(folder / "net.mcb", folder)


def fuzzed(folder: Path) -> bool:
    """Whether some broken files are opened, and others refused; no other memory is accessed."""
    fuzz = Path(__file__).parents[3] / "fuzz" / "bytecode.c"
    checked = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    sources = [str(fuzz), "mcc.c", "mcc_kernels.c"]
    command(["gcc", "-std=gnu99", "-g", *checked, "-I.", *sources, "-lm", "-o", "fuzz"], folder)
    said = command(["./fuzz", "net.mcb", "2000", "1"], folder)
    return 100 < int(said.split()[0]) < 1900


@needs_compiler
@pytest.mark.parametrize("target", ["mcu", "cortex-m4"])
def test_bytes_are_those_of_onnxruntime(target: str, tmp_path: Path) -> None:
    model = keyword_spotter()
    net = loaded(spotter() if target == "cortex-m4" else bytecode(model, target), tmp_path)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for _ in range(2):
        x = RNG.integers(-128, 128, (1, 1, 9, 5), np.int8)
        np.testing.assert_array_equal(net(x), session.run(None, {"x": x})[0])
    x = np.zeros((1, 1, 9, 5), np.int8)
    again = modelcc.load(tmp_path / "net.mcb", interpreter=tmp_path)
    np.testing.assert_array_equal(again(x), net(x))
    with pytest.raises(ModelError, match="run by an interpreter"):
        modelcc.load(tmp_path / "net.mcb")
    command(["gcc", "-O1", *WARNINGS, "-c", "mcc.c", "mcc_kernels.c"], tmp_path)


@needs_compiler
def test_floats_are_those_of_onnxruntime(tmp_path: Path) -> None:
    model = mlp()
    net = loaded(bytecode(model), tmp_path)
    feeds = net.random_inputs(seed=1)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    for got, want in zip(net.run(feeds).values(), wanted, strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=1e-5)


@needs_compiler
def test_states_are_kept_and_set_back(tmp_path: Path) -> None:
    net = loaded(bytecode(leaky_sum()), tmp_path)
    x = np.arange(6, dtype=np.float32)
    assert [spec.name for spec in net.inputs] == ["x"]
    for _ in range(2):
        total = np.ones(6, np.float32)
        for _ in range(2):
            total = np.float32(0.5) * total + x
            np.testing.assert_array_equal(net(x), 2 * total)
            np.testing.assert_array_equal(net.states["total"], total)
        net.reset()


@needs_compiler
def test_loops_turn_as_in_the_graph(tmp_path: Path) -> None:
    graph = looping()
    net = loaded(bytecode(graph), tmp_path)
    for x in np.array([[[1, 2, -3, 4]], [[90, 90, 90, 90]]], np.float32):
        wanted = interpret(graph, {"x": x})
        for got, name in zip(net(x), graph.outputs, strict=True):
            np.testing.assert_allclose(got, wanted[name], rtol=1e-6)
    command(["gcc", "-O1", *WARNINGS, "-c", "mcc.c", "mcc_kernels.c"], tmp_path)
    assert fuzzed(tmp_path)


@needs_compiler
def test_streamed_rows_are_those_of_the_whole_image(tmp_path: Path) -> None:
    model = keyword_spotter(8, 13, 5)
    streamed = embedded(model, "cortex-m4", ram=1900)
    assert any(isinstance(step, Repeat) for step in streamed.program.steps)
    net = loaded(encode(streamed), tmp_path)
    x = RNG.integers(-128, 128, (1, 1, 13, 5), np.int8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    np.testing.assert_array_equal(net(x), session.run(None, {"x": x})[0])


def test_loops_that_vary_too_much_are_refused() -> None:
    graph = looping()
    node = next(n for n in graph.nodes if isinstance(n.op, Loop) and n.op.axes)
    assert isinstance(node.op, Loop)
    longer = replace(node, op=replace(node.op, trips=5000))
    types = {**graph.types, graph.outputs[0]: TensorType((5000, 1, 4), F32)}
    nodes = tuple(longer if n is node else n for n in graph.nodes)
    with pytest.raises(ModelError, match="sizes vary over 4096 turns"):
        bytecode(replace(graph, nodes=nodes, types=types))


def test_the_same_model_gives_the_same_bytes() -> None:
    first, second = bytecode(leaky_sum()), bytecode(leaky_sum())
    assert first.data == second.data
    text = kernels_json(first.kernels)
    assert text == kernels_json(second.kernels)
    assert read_kernels(text, "kernels.json") == first.kernels
    assert merged(first.kernels, second.kernels) == first.kernels


@needs_compiler
def test_a_kernel_that_is_not_there_is_named(tmp_path: Path) -> None:
    own, other = spotter(), bytecode(leaky_sum())
    loaded(other, tmp_path)
    (tmp_path / "net.mcb").write_bytes(own.data)
    with pytest.raises(LoadError, match=f"no kernel {own.kernels[0].digest}"):
        load_bytecode(tmp_path / "net.mcb", tmp_path)


@needs_compiler
def test_damage_is_noticed(tmp_path: Path) -> None:
    encoded = bytecode(leaky_sum())
    net = loaded(encoded, tmp_path)
    with pytest.raises(InputError, match="x"):
        net(np.zeros(5, np.float32))
    library = built(tmp_path)
    for place in RNG.integers(0, len(encoded.data), 6):
        data = bytearray(encoded.data)
        data[place] ^= 1 << RNG.integers(8)
        with pytest.raises(LoadError, match=r"net\.mcb"):
            BytecodeModel(bytes(data), library, "net.mcb")


@needs_compiler
def test_no_broken_file_reaches_other_memory(tmp_path: Path) -> None:
    loaded(spotter(), tmp_path)
    assert fuzzed(tmp_path)


def test_lists_of_kernels_are_checked() -> None:
    text = kernels_json(bytecode(leaky_sum()).kernels)
    with pytest.raises(ModelError, match="no list of kernels"):
        read_kernels("{}", "kernels.json")
    with pytest.raises(ModelError, match="not what its name says"):
        read_kernels(re.sub(r'"id": "....', '"id": "0123', text), "kernels.json")
    with pytest.raises(ModelError, match="version 9"):
        read_kernels(text.replace('kernels": 1', 'kernels": 9'), "kernels.json")
