"""A dialect of another package (``examples/dialect``) on every level, without touching modelcc."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

import modelcc
from modelcc.frontends.onnx import UnsupportedModel, import_onnx
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.graph_parser import parse_graph
from modelcc.ir.graph_text import constants_by_digest, print_graph
from modelcc.ir.graph_verifier import verify_graph
from modelcc.ir.index import Sym
from modelcc.ir.op import Dialect, Op
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import F32, F64, TensorType
from modelcc.ops.matmul import MatMul
from modelcc.ops.registry import GROUP, dialects
from modelcc.ops.samples import arrays, sizes
from modelcc.passes.tensor.from_graph import lower_graph
from tests.ops.test_matrix import Eager, finite_difference
from tests.packages import described

PACKAGE = Path(__file__).parents[2] / "examples" / "dialect"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dialect]:
    """The example as pip would install it: its module and its entry points on the path."""
    for folder in described(PACKAGE, tmp_path):
        monkeypatch.syspath_prepend(folder)
    yield next(dialect for dialect in dialects() if dialect.name == "waves")


def ops(dialect: Dialect) -> list[tuple[Op, int]]:
    return [(op(**s.attributes), n) for op in dialect.ops for n, s in enumerate(op.samples)]


def model(dialect: Dialect) -> Graph:
    """``energy(snake(x @ w))``: ops of both dialects, any number of rows."""
    snake, energy = dialect.ops
    build = GraphBuilder("waves")
    x = build.input("x", TensorType((Sym("rows"), 6), F32))
    weights = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    hidden = build.emit(MatMul(), x, build.constant(weights))
    wave = build.emit(snake(frequency=2.0), hidden, source=("act",))  # type: ignore[call-arg]
    return build.build([build.emit(energy(), wave, name="y")])


def expected(graph: Graph, x: np.ndarray) -> np.ndarray:
    """In plain NumPy, double precision."""
    (weights,) = (c.data.astype(np.float64) for c in graph.constants.values())
    hidden = x.astype(np.float64) @ weights
    wave = hidden + np.sin(2.0 * hidden) ** 2 / 2.0
    return (wave * wave).sum(-1)


def test_it_is_found_by_its_entry_point(install: Dialect) -> None:
    assert [dialect.name for dialect in dialects()] == ["mcc", "waves"]
    assert [op.mnemonic() for op in install.ops] == ["waves.Snake", "waves.Energy"]


def test_without_the_package_there_is_none() -> None:
    assert [dialect.name for dialect in dialects()] == ["mcc"]


def test_graph_text_reads_back(install: Dialect) -> None:
    graph = model(install)
    verify_graph(graph)
    text = print_graph(graph)
    assert '"waves.Snake"' in text
    assert parse_graph(text, constants_by_digest(graph), dialects()) == graph
    with pytest.raises(ModelError, match=r"no given dialect has an op 'waves.Snake'"):
        parse_graph(text, constants_by_digest(graph), dialects()[:1])


def test_every_level_computes_the_same(install: Dialect) -> None:
    graph = model(install)
    x = np.random.default_rng(1).normal(size=(7, 6)).astype(np.float32)
    wanted = expected(graph, x)
    np.testing.assert_allclose(interpret(graph, {"x": x})["y"], wanted, rtol=1e-5)
    program = lower_graph(graph)
    verify_tensor_program(program)
    lowered = run_program(program, {"x": x}, {"rows": 7})["y"]
    np.testing.assert_allclose(lowered, wanted, rtol=1e-5)
    native = modelcc.compile(graph, threads=1, cache=None)
    for rows in (7, 1, 64):
        x = np.random.default_rng(rows).normal(size=(rows, 6)).astype(np.float32)
        np.testing.assert_allclose(native(x), expected(graph, x), rtol=1e-4)


def test_gradients_agree_with_finite_differences(install: Dialect) -> None:
    rng = np.random.default_rng(2)
    for op, n in ops(install):
        sample = op.samples[n]
        concrete = op.substitute(sizes(op, sample))
        (x,) = (a.astype(np.float64) for a in arrays(op, sample) if a is not None)
        (result,) = op.infer(TensorType(x.shape, F64))
        weight = rng.uniform(-1, 1, result.static_shape())
        build = Eager()
        y = build.define(np.asarray(concrete.reference(x)))
        (grad,) = concrete.grad(build, [build.define(weight)], [build.define(x)], [y])
        numeric = finite_difference(concrete, [x], 0, [weight])
        np.testing.assert_allclose(build.values[grad or ""], numeric, rtol=1e-5, atol=1e-6)


ONNX_MODEL = """
<ir_version: 8, opset_import: ["" : 17, "org.waves" : 1]>
g (float[rows, 6] x) => (float[rows] y) {{
  s = org.waves.Snake {attributes} (x)
  y = org.waves.Power (s)
}}"""


@pytest.mark.parametrize(("attributes", "frequency"), [("<frequency = 2.0>", 2.0), ("", 1.0)])
def test_onnx_nodes_of_its_domain_become_its_ops(
    install: Dialect, attributes: str, frequency: float
) -> None:
    proto = onnx.parser.parse_model(ONNX_MODEL.format(attributes=attributes))
    assert [type(n.op).__name__ for n in import_onnx(proto).nodes] == ["Snake", "Energy"]
    x = np.random.default_rng(3).normal(size=(5, 6)).astype(np.float32)
    wide = x.astype(np.float64)
    wave = wide + np.sin(frequency * wide) ** 2 / frequency
    net = modelcc.compile(proto, threads=1, cache=None)
    np.testing.assert_allclose(net(x), (wave * wave).sum(-1), rtol=1e-5)


def test_its_handlers_refuse_as_the_built_in_ones(install: Dialect) -> None:
    text = ONNX_MODEL.format(attributes="").replace("Power", "Power <axis = 0>")
    with pytest.raises(ModelError, match="Power#1: the power is of the last axis"):
        import_onnx(onnx.parser.parse_model(text))


def test_without_the_package_its_nodes_are_custom_operators() -> None:
    with pytest.raises(UnsupportedModel, match=r"Snake.*custom operator") as caught:
        import_onnx(onnx.parser.parse_model(ONNX_MODEL.format(attributes="")))
    assert [n.operator.split(".")[-1] for n in caught.value.nodes] == ["Snake", "Power"]


def test_a_package_that_gives_no_extension_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = tmp_path / "broken-1.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (described / "entry_points.txt").write_text("[modelcc.onnx]\nbroken = math:pi\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match="math:pi is a float, not of the kind Extension"):
        import_onnx(onnx.parser.parse_model(ONNX_MODEL.format(attributes="")))


def test_a_broken_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described = tmp_path / "broken-1.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (described / "entry_points.txt").write_text(f"[{GROUP}]\nbroken = no_such_module:D\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match=r"'broken' of no_such_module:D cannot be imported"):
        dialects()
