"""Rows that are bent at their ends: where they are cut, and that results stay what they were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx.parser
import pytest
from onnx import ModelProto

import modelcc
from modelcc.driver import compile_model
from modelcc.ir.index import Index, Range, Sym, loop_range, parse_index
from modelcc.ir.loop import For, Store
from modelcc.ir.loop_traversal import statements
from modelcc.ir.program import Program
from modelcc.ir.tensor import Axis, Condition, Guard, Number, Read, Scalar, Stage
from modelcc.ir.types import F32, TensorType
from modelcc.pipeline import StageRun
from modelcc.schedule.straight_runs import straight_runs
from tests.frontends.onnx.onnx_models import run_onnxruntime
from tests.machines import chosen_options


def cut(body: Scalar, extent: Index, inside: int = 1) -> list[tuple[str, str]]:
    """Where the parts of y[i, c] begin and how long they are, for ``inside`` elements c."""
    axes = (Axis("i", extent), Axis("c", inside))
    stage = Stage("y", axes, (Sym("i"), Sym("c")), body)
    types = {"y": TensorType((extent, inside), F32)}
    found = straight_runs(stage, types, {"n": loop_range(1 << 40), "m": loop_range(1 << 40)})
    parts = [] if found is None else found.parts
    return [(str(part.write[0]), str(part.axes[0].extent)) for part in parts]


def at(index: str, tensor: str = "x") -> Read:
    return Read(tensor, (parse_index(index),), F32)


def guarded(conditions: list[tuple[str, str]], inside: Scalar, outside: Scalar) -> Guard:
    found = tuple(Condition(parse_index(a), ">=", parse_index(b)) for a, b in conditions)
    return Guard(found, inside, outside, F32)


ZERO = Number(0.0, F32)


@pytest.mark.parametrize(
    ("body", "extent", "parts"),
    [
        (at("min(max(i - 3, 0), 19)"), "26", [("i + 3", "20"), ("i", "3"), ("i + 23", "3")]),
        (at("min(max(i - 3, 0), n - 1)"), "n + 6",
         [("i + 3", "n"), ("i", "3"), ("i + n + 3", "3")]),
        (at("(i - 3) mod n"), "n + 6", [("i + 3", "n"), ("i", "3"), ("i + n + 3", "3")]),
        (at("(i - 3) mod 64"), "70", [("i + 3", "64"), ("i", "3"), ("i + 67", "3")]),
        (guarded([("i", "3"), ("n + 2", "i")], at("i - 3"), ZERO), "n + 6",
         [("i + 3", "n"), ("i", "3"), ("i + n + 3", "3")]),
        (guarded([("19", "i")], at("i"), guarded([("49", "i")], at("i - 20"), at("i - 50"))),
         "60", [("i", "20"), ("i + 20", "30"), ("i + 50", "10")]),
        # What a choice tells has a name; sides without one are worth it, however long they are.
        (guarded([("i", "m"), ("m + 4", "i")], at("i - m"), ZERO), "n",
         [("i + i.before", "i.run"), ("i", "i.before"), ("i + i.before + i.run", "i.after")]),
        # Straight as they are, in small parts, or told by another axis.
        (at("i + 3"), "20", []),
        (at("i mod 4"), "64", []),
        (at("i mod n"), "n*m", []),
        (at("i floordiv 2"), "64", []),
        (guarded([("i", "c")], at("i"), ZERO), "64", []),
        (at("(i + c) mod 64"), "64", []),
    ],
)  # fmt: skip
def test_rows_are_cut_where_they_are_bent(
    body: Scalar, extent: str, parts: list[tuple[str, str]]
) -> None:
    assert cut(body, parse_index(extent)) == parts


def test_many_elements_side_by_side_are_decided_about_together() -> None:
    body = guarded([("i", "3")], at("i - 3"), ZERO)
    assert cut(body, 64, inside=8)
    assert not cut(body, 64, inside=64)


def test_what_is_never_asked_for_beside_a_run_is_gone() -> None:
    stage = Stage("y", (Axis("i", 23),), (Sym("i"),), guarded([("i", "3")], at("i - 3"), ZERO))
    found = straight_runs(stage, {"y": TensorType((23,), F32)}, {})
    assert found is not None
    assert [part.body for part in found.parts] == [at("i"), ZERO]


@pytest.mark.parametrize(
    ("low", "high", "parts"),
    [
        ("i", "k", [("k", "i + 1"), ("i + k + 1", "-i + n - 1")]),
        ("k", "i", [("i + k", "-i + n"), ("k", "i")]),
    ],
)
def test_triangles_are_cut_row_by_row(low: str, high: str, parts: list[tuple[str, str]]) -> None:
    axes = (Axis("i", Sym("n")), Axis("k", Sym("n")))
    inside = Read("x", (Sym("i"), Sym("k")), F32)
    stage = Stage("y", axes, (Sym("i"), Sym("k")), guarded([(low, high)], inside, ZERO))
    found = straight_runs(
        stage, {"y": TensorType((Sym("n"), Sym("n")), F32)}, {"n": Range(1, None)}
    )
    assert found is not None
    assert [axis.name for axis in found.outer] == ["i"]
    assert [(str(p.write[1]), str(p.axes[1].extent)) for p in found.parts] == parts


@pytest.mark.parametrize("shape", ["b, n, m", "2, 300, 290"])
@pytest.mark.parametrize("k", [-400, -7, 0, 3, 288, 400])
@pytest.mark.parametrize("upper", [0, 1])
def test_triangles_are_those_of_numpy(shape: str, k: int, upper: int) -> None:
    body = f"k = Constant<value_int = {k}>() y = Trilu<upper = {upper}>(x, k)"
    net = compiled(model_of(shape, body), threads=2)
    sizes = [(2, 300, 290), (1, 1, 7), (3, 20, 1), (1, 0, 4)] if "n" in shape else [(2, 300, 290)]
    for size in sizes:
        x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
        x[..., :1] = np.nan
        np.testing.assert_array_equal(net(x), np.triu(x, k) if upper else np.tril(x, k))


def test_tensors_of_another_layout_are_left_alone() -> None:
    stage = Stage("y", (Axis("i", 23),), (Sym("i"),), at("max(i - 3, 0)"))
    type_ = TensorType((23,), F32)
    assert straight_runs(stage, {"y": type_}, {})
    assert not straight_runs(stage, {"y": replace(type_, layout=type_.physical)}, {})
    assert not straight_runs(stage, {}, {})


def model_of(shape: str, body: str, opset: int = 19) -> ModelProto:
    result = ", ".join("abcd"[: shape.count(",") + 1])
    return onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : {opset}]> '
        f"g (float[{shape}] x) => (float[{result}] y) {{ {body} }}"
    )


def pad(pads: list[int], mode: str) -> str:
    return f'p = Constant<value_ints = {pads}>() y = Pad<mode = "{mode}">(x, p)'


def compiled(model: ModelProto, threads: int = 1) -> modelcc.Model:
    return modelcc.compile(model, options=chosen_options(threads=threads), cache=None)


def check(model: ModelProto, *shapes: tuple[int, ...], threads: int = 1) -> None:
    net = compiled(model, threads)
    random = np.random.default_rng(0)
    for shape in shapes:
        x = random.standard_normal(shape).astype(np.float32)
        x[random.random(shape) < 0.05] = np.nan
        np.testing.assert_array_equal(net(x), run_onnxruntime(model, {"x": x})["y"])


MODES = ("constant", "reflect", "edge", "wrap")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("shape", "pads", "shapes"),
    [
        ("n", [3, 2], [(1000,), (70,), (5,), (4,)]),
        ("b, n", [0, 200, 0, 190], [(2, 500), (1, 201)]),
        ("b, c, h, w", [0, 0, 3, 3] * 2, [(2, 3, 9, 33), (1, 2, 4, 4), (1, 1, 5, 70)]),
        ("b, c, h, w", [0, 3, 3, 0] * 2, [(2, 9, 33, 3), (1, 4, 4, 1), (1, 9, 40, 16)]),
        ("b, 14, 14, 3", [0, 1, 8, 0] * 2, [(2, 14, 14, 3), (1, 14, 14, 3)]),
        ("b, 3, 40, 40", [0, 0, 2, 5] * 2, [(2, 3, 40, 40)]),
        ("b, n", [0, -2, 0, 4], [(3, 40), (2, 9)]),
    ],
)
def test_padded_tensors_are_those_of_onnxruntime(
    mode: str, shape: str, pads: list[int], shapes: list[tuple[int, ...]]
) -> None:
    check(model_of(shape, pad(pads, mode)), *shapes)


@pytest.mark.parametrize("mode", ["constant", "edge", "wrap"])
@pytest.mark.parametrize("length", [1, 2, 3, 30])
def test_pads_longer_than_rows_go_round_as_numpy_has_it(mode: str, length: int) -> None:
    net = compiled(model_of("b, n", pad([0, 7, 0, 9], mode)))
    x = np.random.default_rng(1).standard_normal((2, length)).astype(np.float32)
    np.testing.assert_array_equal(net(x), np.pad(x, [(0, 0), (7, 9)], mode))  # type: ignore[call-overload]


def test_rows_without_elements_get_the_value_of_the_pads() -> None:
    net = compiled(model_of("b, n", pad([1, 7, 0, 9], "constant")))
    for shape in ((2, 0), (0, 3), (0, 0)):
        padded = net(np.ones(shape, np.float32))
        wanted = np.pad(np.ones(shape, np.float32), [(1, 0), (7, 9)])
        np.testing.assert_array_equal(padded, wanted)


@pytest.mark.parametrize("extent", ["n", "100"])
def test_parts_that_read_what_others_write_do_not_write_over_it(extent: str) -> None:
    # Before the first three elements, y is x where it lies; then it is not.
    body = "p = Constant<value_ints = [3, -3]>() a = Exp(x) b = Pad(a, p) y = Add(a, b)"
    check(model_of(extent, body), (100,))


@pytest.mark.parametrize("mode", MODES)
def test_any_number_of_threads_gives_the_same(mode: str) -> None:
    model = model_of("b, c, h, w", pad([0, 0, 3, 3] * 2, mode))
    check(model, (2, 16, 40, 50), (1, 64, 33, 70), threads=2)
    check(model_of("n", pad([3, 3], mode)), (300_000,), threads=2)


def functions_of(model: ModelProto) -> Program:
    programs: list[Program] = []

    def note(run: StageRun) -> None:
        if isinstance(run.after, Program):
            programs.append(run.after)

    compile_model(model, chosen_options(), observer=note)
    return programs[-1]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", ["b, c, h, w", "1, 3, 64, 64"])
def test_rows_are_moved_as_vectors(mode: str, shape: str) -> None:
    program = functions_of(model_of(shape, pad([0, 0, 3, 3] * 2, mode)))
    found = [s for function in program.functions for s in statements(function.body)]
    assert any(isinstance(s, Store) and s.value.lanes > 1 for s in found)


def test_planes_are_shared_whatever_the_batch_is() -> None:
    program = functions_of(model_of("b, c, h, w", pad([0, 0, 3, 3] * 2, "reflect")))
    found = [s for function in program.functions for s in statements(function.body)]
    shared = [s.stop for s in found if isinstance(s, For) and s.kind == "parallel"]
    assert shared == [parse_index("b*c")]
