"""Text round trip of graphs; where ``mlir-opt`` is installed, it has to accept every text."""

from __future__ import annotations

import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.graph_parser import parse_graph
from modelcc.ir.graph_text import constants_by_digest, print_graph
from modelcc.ir.graph_verifier import verify_graph
from modelcc.ir.index import Range, Sym
from modelcc.ir.mlir_syntax import value_name, value_text
from modelcc.ir.op import Dialect
from modelcc.ir.types import BF16, BOOL, DTYPES, F16, F32, I64, U8, TensorType, blocked
from tests.ir.tiny_ops import TINY, Add, Everything, Halves, Neg, Reshape, Scale, Twice

BATCH = Sym("batch")
MLIR_OPT = shutil.which("mlir-opt")


def round_trip(graph: Graph) -> str:
    verify_graph(graph)
    text = print_graph(graph)
    again = parse_graph(text, constants_by_digest(graph), (TINY,))
    verify_graph(again)
    assert again == graph
    assert print_graph(again) == text
    accepted_by_mlir(text)
    return text


def accepted_by_mlir(text: str) -> None:
    if MLIR_OPT is None:
        return
    command = [MLIR_OPT, "--allow-unregistered-dialect", "-o", "/dev/null"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def body() -> Graph:
    build = GraphBuilder("body")
    x = build.input("x", TensorType((4,), F32))
    return build.build([build.emit(Neg(), build.emit(Add(), x, build.constant(1.0)))])


def test_ops_constants_sources_and_absent_operands() -> None:
    build = GraphBuilder("main", {"batch": Range(1, 64)})
    x = build.input("x", TensorType((BATCH, 2 * Sym("seq") + 1), F32))
    h = build.emit(Scale(0.5), x, "", source=("fc/1",))
    big = build.constant(np.arange(99, dtype=np.float32).reshape(99, 1, 1))
    y = build.emit(Add(), h, big, source=("a", 'b"c'), name="/layer1/out:0")
    text = round_trip(build.build([y]))
    assert '%$layer1$out$3A0 = "tiny.Add"' in text
    assert 'loc(fused["a", "b\\"c"])' in text
    assert 'tensor<?x?xf32, ["batch", "2*seq + 1"]>' in text
    assert "dims = {batch = [1, 64], seq = [1, unit]}" in text


def test_every_attribute_kind() -> None:
    build = GraphBuilder()
    x = build.input("x", TensorType((BATCH,), F32))
    for op in (
        Everything(),
        Everything(dtype=BF16, index=BATCH // 2, nested=((BATCH + 1, 2), (), (-1,)), b=False),
        Everything(f=-1e300, inf=float("-inf"), mixed=(1, 2.5, "x", None, (True, U8), BATCH)),
    ):
        x = build.emit(op, x)
    round_trip(build.build([x]))


def test_nan_attribute() -> None:
    build = GraphBuilder()
    x = build.emit(Everything(inf=float("nan")), build.input("x", TensorType((), F32)))
    graph = build.build([x])
    (node,) = parse_graph(print_graph(graph), {}, (TINY,)).nodes
    assert isinstance(node.op, Everything) and np.isnan(node.op.inf)


def test_regions_and_multiple_results() -> None:
    build = GraphBuilder()
    x = build.input("x", TensorType((8,), F32))
    low, high = build.add(Halves(F32), x)
    y = build.emit(Twice(body(), "n"), low)
    graph = build.build([y, high])
    text = round_trip(graph)
    assert "body = #mcc.region<0>" in text
    out = interpret(graph, {"x": np.arange(8, dtype=np.float32)})
    np.testing.assert_array_equal(out[y], np.arange(4, dtype=np.float32))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_dtype_as_type(dtype: object) -> None:
    build = GraphBuilder()
    x = build.input("x", TensorType((0, 3), dtype))  # type: ignore[arg-type]
    round_trip(build.build([build.emit(Neg(), x)]))


def test_layout() -> None:
    build = GraphBuilder()
    layout = blocked(4, 1, 16)
    halo = type(layout)(layout.parts, ((0, 0), (0, 0), (1, 1), (1, 2)))
    for name, each in (("a", layout), ("b", halo)):
        build.input(name, TensorType((BATCH, 32, 7, 7), F32, each))
    graph = build.build(["a", "b"])
    text = print_graph(graph)
    assert parse_graph(text, {}, (TINY,)) == graph
    accepted_by_mlir(text)


@pytest.mark.parametrize(
    "values",
    [
        np.array([0.1, -1e-20, 3e38, np.inf], np.float32),
        np.array([0.1, 65504.0], np.float16),
        np.array([[0.1], [1e-3]], ml_dtypes.bfloat16),
        np.array([1e-300, 0.0, -0.0]),
        np.array([-(2**63), 2**63 - 1]),
        np.array([2**64 - 1], np.uint64),
        np.array([True, False]),
        np.array([-8, 7], ml_dtypes.int4),
        np.array([0.5, 448.0], ml_dtypes.float8_e4m3fn),
        np.array(7, np.int8),
        np.zeros((0, 2), np.float32),
        np.array([1 + 2j], np.complex64),
        np.array(["a", "b"], object),
        np.full((2, 8), 0.3, np.float16),
    ],
    ids=lambda v: f"{v.dtype}{list(v.shape)}",
)
def test_inline_constants_are_exact(values: np.ndarray) -> None:
    build = GraphBuilder()
    c = build.constant(values)
    round_trip(build.build([build.emit(Neg(), c)]))


def test_signatures_may_be_left_out() -> None:
    text = """
    "mcc.graph"() ({
    ^bb0(%x: tensor<?xf32, ["n"]>):
      %c = "mcc.constant"() {value = dense<2.0> : tensor<f32>}
      %y = "tiny.Add"(%x, %c)   // types follow
      "mcc.return"(%y)
    })
    """
    graph = parse_graph(text, {}, (TINY,))
    assert graph.types["y"] == TensorType((Sym("n"),), F32)


@pytest.mark.parametrize(
    "name",
    [
        "1",
        "1a",
        "a.b-c",
        "/x:0",
        "é λ",
        "$",
        "$none",
        "/none",
        "/in1.x",
        "$in1.x",
        "//",
        "/FF",
        "/$2F",
        "%",
        "/é",
    ],
)
def test_names_read_back(name: str) -> None:
    spelled = value_text(name)
    assert spelled.isascii() and value_name(spelled[1:]) == name
    assert value_name(value_text(name, 2)[1:]) == name


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('%y = "tiny.Nope"(%x)', "no given dialect has an op 'tiny.Nope'"),
        ('%y = "tiny.Neg"(%z)', "reads 'z', which is not defined"),
        ('%y = "tiny.Neg"(%x) {k = 1}', "does not have these attributes"),
        ('%y, %z = "tiny.Neg"(%x)', "1 result types for 2 results"),
        ('%y = "mcc.constant"() {digest = "00"} : () -> tensor<f32>', "no constant with digest"),
        ('%y = "tiny.Reshape"(%x) {shape = [#mcc.index<"2 +">]}', "no index expression"),
        ('%y = "tiny.Neg"(%x) : (tensor<2xf33>) -> tensor<2xf33>', "unknown element type 'f33'"),
        ('%y = "tiny.Neg"(%x', "expected ')'"),
    ],
)
def test_errors_name_line_and_fault(line: str, message: str) -> None:
    text = f'"mcc.graph"() ({{\n^bb0(%x: tensor<2xf32>):\n  {line}\n  "mcc.return"(%y)\n}})'
    with pytest.raises(ModelError) as caught:
        parse_graph(text, {}, (TINY,))
    assert message in str(caught.value)
    assert "line " in str(caught.value)


def test_unknown_attribute_type_is_refused() -> None:
    build = GraphBuilder()
    x = build.emit(Everything(mixed=({},)), build.input("x", TensorType((), F16)))
    with pytest.raises(TypeError, match="dict has no text form"):
        print_graph(build.build([x]))


def test_reshape_to_symbolic_shape_runs() -> None:
    build = GraphBuilder()
    x = build.input("x", TensorType((BATCH, 4), I64))
    y = build.emit(Reshape((BATCH * 2, 2)), x)
    graph = build.build([y])
    round_trip(graph)
    assert interpret(graph, {"x": np.zeros((3, 4), np.int64)})[y].shape == (6, 2)


def test_dialect_of_others() -> None:
    other = Dialect("other", ())
    build = GraphBuilder()
    x = build.emit(Neg(), build.input("x", TensorType((2,), BOOL)))
    with pytest.raises(ModelError, match=r"tiny\.Neg"):
        parse_graph(print_graph(build.build([x])), {}, (other,))
