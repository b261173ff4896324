"""Kernels that CMSIS-NN computes: what is called means what the kernels did, and does it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from modelcc.driver import target_of
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.program import Launch
from modelcc.ir.program_interpreter import interpret_program
from modelcc.ir.program_parser import constants_by_digest, parse_program
from modelcc.ir.program_text import print_program
from modelcc.ir.types import I8, I32, TensorType
from modelcc.on_device import comparison
from modelcc.on_device.forms import forms_of
from modelcc.ops.activation import Clip
from modelcc.ops.arithmetic import Add, Cast, Div, Mul
from modelcc.ops.broadcast import ReduceSum
from modelcc.ops.comparison import Greater, Where
from modelcc.ops.fixed_point import FixedPointMultiply
from modelcc.ops.pool import MaxPool
from modelcc.ops.quant_matmul import MatMulInteger
from modelcc.options import Options
from modelcc.targets.mcu.delivery.files import embedded_files
from modelcc.targets.mcu.emulation.boards import missing_tools
from modelcc.targets.mcu.emulation.build import build
from modelcc.targets.mcu.emulation.run import run
from modelcc.targets.mcu.libraries.cmsis_nn import HEADER, CmsisNN, Limits
from modelcc.targets.mcu.libraries.sources import sources_of
from modelcc.targets.mcu.libraries.windows import ImageWindow, Side
from modelcc.targets.mcu.machine import MODELS
from modelcc.targets.vm.encode import encode
from tests.embedded import embedded, written
from tests.targets.mcu.test_kernels import BOTH, END, convolved, dense, image

ANY = Limits(3, -128, 127)


def number(b: GraphBuilder, value: int) -> str:
    return b.constant(np.array(value, np.int32))


def scaled(b: GraphBuilder, x: str, multiplier: int, shift: int) -> str:
    return b.emit(FixedPointMultiply(), x, number(b, multiplier), number(b, shift))


def as_bytes(b: GraphBuilder, x: str, zero: int) -> str:
    moved = b.emit(Add(), x, number(b, zero))
    return b.emit(Cast(I8), b.emit(Clip(-128.0, 127.0), moved))


def less(b: GraphBuilder, x: str, zero: int) -> str:
    return b.emit(Add(), b.emit(Cast(I32), x), number(b, -zero))


def pair(combine: Callable[[GraphBuilder, str, str], str]) -> Graph:
    b = GraphBuilder("net")
    x, y = (b.input(name, TensorType((1, 3, 5, 7), I8)) for name in ("x", "other"))
    return b.build([combine(b, x, y)])


def added(b: GraphBuilder, x: str, y: str) -> str:
    def wide(name: str, zero: int, multiplier: int) -> str:
        left = b.emit(Mul(), less(b, name, zero), number(b, 1 << 20))
        return scaled(b, left, multiplier, 1)

    total = b.emit(Add(), wide(x, -128, 1623821475), wide(y, 4, 1073741824))
    return as_bytes(b, scaled(b, total, 1098017566, 18), -20)


def multiplied(b: GraphBuilder, x: str, y: str) -> str:
    product = b.emit(Mul(), less(b, x, 5), less(b, y, -3))
    return as_bytes(b, scaled(b, product, 1398017566, 6), 7)


def one_scale() -> Graph:
    """A fully connected layer whose rows have one multiplier."""
    b = GraphBuilder("net")
    x = b.input("x", TensorType((1, 20), I8))
    r = np.random.default_rng(1)
    weights = b.constant(r.integers(-127, 128, (20, 6)).astype(np.int8))
    sums = b.emit(MatMulInteger(), x, weights, b.constant(np.array(4, np.int8)))
    biases = b.constant(r.integers(-900, 900, 6).astype(np.int32))
    return b.build([as_bytes(b, scaled(b, b.emit(Add(), sums, biases), 1518500250, 8), 3)])


def average(b: GraphBuilder, x: str) -> str:
    total = b.emit(ReduceSum((2, 3), True), b.emit(Cast(I32), x))
    half = b.emit(Where(), b.emit(Greater(), total, number(b, 0)), number(b, 7), number(b, -7))
    mean = b.emit(Div(), b.emit(Add(), total, half), number(b, 15))
    return b.emit(Cast(I8), b.emit(Clip(-128.0, 127.0), mean))


def greatest(b: GraphBuilder, x: str) -> str:
    return b.emit(MaxPool((3, 2), (2, 2), (1, 0), (1, 0), (1, 1)), x)


CONVOLVE, DEPTHWISE = "arm_convolve_wrapper_s8", "arm_depthwise_conv_wrapper_s8"
GRAPHS: dict[str, tuple[str, Callable[[], Graph]]] = {
    "points": (CONVOLVE, lambda: image((1, 5, 2, 12), lambda b, x: convolved(b, x, 7, zero=5))),
    "strided points": (
        CONVOLVE,
        lambda: image((1, 7, 6, 5), lambda b, x: convolved(b, x, 6, (1, 1), 2)),
    ),
    "windows": (
        CONVOLVE,
        lambda: image((1, 5, 4, 8), lambda b, x: convolved(b, x, 4, (3, 3), 1, BOTH)),
    ),
    "strides": (
        CONVOLVE,
        lambda: image((1, 7, 6, 4), lambda b, x: convolved(b, x, 6, (3, 3), 2, END)),
    ),
    "one channel": (
        CONVOLVE,
        lambda: image((1, 9, 6, 1), lambda b, x: convolved(b, x, 8, (5, 4), 2, BOTH)),
    ),
    "one row": (
        CONVOLVE,
        lambda: image((1, 1, 9, 4), lambda b, x: convolved(b, x, 8, (1, 3), 1, ((0, 0), (1, 1)))),
    ),
    "depthwise": (
        DEPTHWISE,
        lambda: image((1, 5, 3, 8), lambda b, x: convolved(b, x, 8, (3, 3), 1, BOTH, groups=8)),
    ),
    "large depthwise": (
        DEPTHWISE,
        lambda: image(
            (1, 6, 6, 5), lambda b, x: convolved(b, x, 5, (5, 4), 1, ((2, 2), (1, 2)), groups=5)
        ),
    ),
    "dense": (CONVOLVE, dense),
    "one scale": ("arm_fully_connected_s8", one_scale),
    "average": ("arm_avgpool_s8", lambda: image((1, 3, 5, 6), average)),
    "greatest": ("arm_max_pool_s8", lambda: image((1, 7, 6, 6), greatest)),
    "sum": ("arm_elementwise_add_s8", lambda: pair(added)),
    "product": ("arm_elementwise_mul_s8", lambda: pair(multiplied)),
}


def example(name: str) -> tuple[str, Graph, dict[str, np.ndarray], np.ndarray]:
    """A function, a graph that is a call of it, inputs and the output."""
    symbol, make = GRAPHS[name]
    graph = make()
    r = np.random.default_rng(2)
    feeds = {
        name: r.integers(-128, 128, graph.types[name].static_shape()).astype(np.int8)
        for name in graph.inputs
    }
    (want,) = interpret(graph, feeds).values()
    assert len(np.unique(want)) > 2
    return symbol, graph, feeds, want


@pytest.fixture
def headers(tmp_path: Path) -> str:
    """A folder that looks like the library's."""
    (tmp_path / "library" / "Include").mkdir(parents=True)
    (tmp_path / "library" / "Include" / HEADER).touch()
    return str(tmp_path / "library")


@pytest.mark.parametrize("name", GRAPHS)
def test_calls_mean_what_kernels_computed(name: str, headers: str) -> None:
    symbol, graph, feeds, want = example(name)
    program = embedded(graph, "cortex-m4", library=headers).program
    assert [call.symbol for call in program.external_calls] == [symbol]
    assert parse_program(print_program(program), constants_by_digest(program)) == program
    (got,) = interpret_program(program, feeds).values()
    np.testing.assert_array_equal(got, want)


def test_sums_are_where_operands_were(headers: str) -> None:
    def layers(b: GraphBuilder, x: str) -> str:
        total = added(b, convolved(b, x, 8, (3, 3), pads=BOTH), convolved(b, x, 8))
        return convolved(b, total, 4)

    program = embedded(image((1, 4, 4, 8), layers), "cortex-m4", library=headers).program
    (call,) = (
        step
        for step in program.steps
        if isinstance(step, Launch) and "elementwise_add" in step.callee
    )
    *operands, made = (program.placed.bindings[name] for name in call.arguments)
    assert made in operands


def test_the_library_is_called_where_it_takes_less(headers: str) -> None:
    graph = pair(added)
    for target, calls in (("cortex-m4", 0), ("cortex-m55", 1)):
        program = embedded(graph, target, library=headers, prefer=False).program
        assert len(program.external_calls) == calls


def test_what_is_written_tells_of_the_library(headers: str) -> None:
    _, graph, _, _ = example("depthwise")
    model = embedded(graph, "cortex-m4", library=headers)
    files = {file.name: bytes(file.contents).decode() for file in embedded_files(model)}
    assert f'#include "{HEADER}"' in files["net.c"]
    assert "arm_depthwise_conv_wrapper_s8(&(const cmsis_nn_context){0, 0}," in files["net.c"]
    assert "Link with cmsis-nn" in files["net.c"]
    assert (
        "target_link_libraries(net PUBLIC $<BUILD_INTERFACE:cmsis-nn>)" in files["CMakeLists.txt"]
    )
    with pytest.raises(ModelError, match="bytecode cannot call arm_depthwise_conv_wrapper_s8"):
        encode(model)


@pytest.mark.parametrize(
    ("target", "name", "path", "message"),
    [
        ("cortex-m4", "cmsis-nn", "", "has no path"),
        ("cortex-m4", "cmsis-nn", "nowhere", f"there is no Include/{HEADER} in nowhere"),
        ("cortex-m4", "openblas", "", "cannot call a library 'openblas'"),
        ("riscv32imc", "cmsis-nn", "nowhere", "cannot call a library 'cmsis-nn'"),
    ],
)
def test_libraries_that_cannot_be_called_are_refused(
    target: str, name: str, path: str, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        target_of(Options(target=target, threads=1, libraries=((name, path),)))


def test_a_program_is_built_with_what_it_calls(tmp_path: Path) -> None:
    texts = {
        "a": "/* arm_c() */\nint32_t arm_a(int x,\n          int y)\n{\n    return arm_b(x);\n}\n",
        "b": "__STATIC int32_t arm_b(int x)\n{\n    return x;\n}\n",
        "d": "int32_t arm_d(int x)\n{\n    return arm_a(x, 1);\n}\n",
    }
    (tmp_path / "Source").mkdir()
    for name, text in texts.items():
        (tmp_path / "Source" / f"{name}.c").write_text(text)
    found = sources_of([("cmsis-nn", str(tmp_path))], ["arm_a(1, 2);"])
    assert [file.name for file in found] == ["a.c", "b.c"]


@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m55"])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_library_computes_what_is_meant(
    name: str, target: str, tmp_path: Path, cmsis_nn: str
) -> None:
    model = MODELS[target]
    if missing := missing_tools(model):
        pytest.skip(missing)
    _, graph, feeds, want = example(name)
    planned = embedded(graph, target, library=cmsis_nn)
    assert len(planned.program.external_calls) == 1
    program = build(written(planned, tmp_path / "net"), "net", planned.machine)
    given = {name: array.tobytes() for name, array in feeds.items()}
    (got,) = run(program, given).outputs.values()
    np.testing.assert_array_equal(np.frombuffer(got, np.int8), want.ravel())


def windows() -> Iterator[ImageWindow]:
    """Of several sizes, some with borders, strides and taps that are apart."""
    for channels in (1, 3, 16, 40):
        for taps, stride, dilation, before in (
            (1, 1, 1, 0), (1, 2, 1, 0), (3, 1, 1, 1), (3, 2, 2, 2), (5, 1, 1, 2),
        ):  # fmt: skip
            side = Side(17, 9, taps, "", stride, dilation, before)
            yield ImageWindow(side, side, channels, "", True, "", 8)


def test_scratch_memory_is_as_large_as_the_library_wants(tmp_path: Path, cmsis_nn: str) -> None:
    """Or larger: what it takes is asked of the library itself."""
    lines: list[str] = []
    mine: list[int] = []
    for suffix, library in (("dsp", CmsisNN(True, False)), ("mve", CmsisNN(False, True))):
        for w in windows():
            side = w.rows
            image, result = f"{{1, 17, 17, {w.channels}}}", f"{{1, 9, 9, {w.outputs}}}"
            tiles = f"{{{side.stride}, {side.stride}}}, {{{side.before}, {side.before}}}"
            tiles += f", {{{side.dilation}, {side.dilation}}}, {{-128, 127}}"
            each = f"{{1, {side.taps}, {side.taps}, {w.channels}}}"
            out = f"{{1, 9, 9, {w.channels}}}"
            ask = 'printf("%d\\n", (int)arm_{}_get_buffer_size_{}({}));'
            conv = f"&(cmsis_nn_conv_params){{0, 0, {tiles}}}, &(cmsis_nn_dims){image}"
            conv += f", &(cmsis_nn_dims){each}, &(cmsis_nn_dims){result}"
            deep = f"&(cmsis_nn_dw_conv_params){{0, 0, 1, {tiles}}}, &(cmsis_nn_dims){image}"
            deep += f", &(cmsis_nn_dims){each}, &(cmsis_nn_dims){out}"
            lines += [
                ask.format("convolve_wrapper_s8", suffix, conv),
                ask.format("depthwise_conv_wrapper_s8", suffix, deep),
                ask.format("avgpool_s8", suffix, f"9, {w.channels}"),
            ]
            mine += [
                library.convolve(w, 0, ANY).scratch,
                library.depthwise(w, 0, ANY).scratch,
                library.average(w, ANY).scratch,
            ]
    text = "\n".join(lines)
    source = f'#include "{HEADER}"\n#include <stdio.h>\nint main(void)\n{{\n{text}\nreturn 0;\n}}\n'
    (tmp_path / "ask.c").write_text(source)
    libraries = [("cmsis-nn", cmsis_nn)]
    files = map(str, sources_of(libraries, [source]))
    command = ["gcc", f"-I{cmsis_nn}/Include", "ask.c", *files, "-o", "ask"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    asked = subprocess.run([tmp_path / "ask"], check=True, capture_output=True, text=True)
    theirs = list(map(int, asked.stdout.split()))
    assert len(theirs) == len(mine)
    assert [pair for pair in zip(mine, theirs, strict=True) if pair[0] < pair[1]] == []


def test_forms_that_call_it_run_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, cmsis_nn: str
) -> None:
    monkeypatch.setattr(comparison, "missing_tools", lambda model: "there is no emulator")
    _, graph, feeds, want = example("windows")
    model = embedded(graph, "cortex-m4", library=cmsis_nn)
    forms, refused = forms_of(model)
    assert [form.name for form in forms] == ["C -O2, cmsis-nn", "C -Os, cmsis-nn"]
    assert "calls no libraries" in refused
    for result in comparison.run_forms(model, forms, feeds):
        (got,) = result.outputs.values()
        np.testing.assert_array_equal(got, want.ravel())
