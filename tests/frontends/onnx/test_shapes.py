"""Shape arithmetic: shapes computed by a model, with named dimensions."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

import modelcc
from modelcc.frontends.onnx import UnsupportedModel, import_onnx
from modelcc.ir.graph import Graph
from modelcc.ir.graph_verifier import verify_graph
from modelcc.ir.index import Range, parse_index
from modelcc.ir.types import Array
from tests.frontends.onnx.onnx_models import assert_agrees, floats, parsed


def names(graph: Graph) -> list[str]:
    """Class names of the ops of ``graph``."""
    return [type(n.op).__name__ for n in graph.nodes]


def check(body: str, shape: str | tuple[str, ...], *feeds: Array, opset: int = 17) -> Graph:
    """The first output of ``body`` has this symbolic shape; every result is onnxruntime's."""
    model = parsed(body, opset)
    inputs = dict(zip((i.name for i in model.graph.input), feeds, strict=True))
    graph = assert_agrees(model, inputs)
    dims = shape.split(", ") if isinstance(shape, str) else shape
    expected = tuple(parse_index(d) for d in dims)
    assert graph.types[graph.outputs[0]].shape == expected
    return graph


def test_heads_of_attention() -> None:
    """Shape, Gather, Mul, Concat, Reshape: no trace of them is left but the reshapes."""
    graph = check(
        """g (float[b, s, 12] x) => (float y) <int64 zero = {0}, int64 one = {1},
             int64[1] axis = {0}, int64[1] heads = {3}, int64[1] rest = {-1}> {
          sh = Shape(x)
          b0 = Gather(sh, zero)
          s0 = Gather(sh, one)
          b1 = Unsqueeze(b0, axis)
          s1 = Unsqueeze(s0, axis)
          target = Concat<axis = 0>(b1, s1, heads, rest)
          h = Reshape(x, target)
          y = Transpose<perm = [0, 2, 1, 3]>(h)
        }""",
        "b, 3, s, 4",
        floats(2, 5, 12),
    )
    assert names(graph) == ["Reshape", "Transpose"]


def test_flattened_batch_returns() -> None:
    """-1 is an exact division of symbols."""
    check(
        """g (float[b, s, 6] x) => (float y) <int64[2] flat = {-1, 6}> {
          f = Reshape(x, flat)
          sh = Shape(x)
          y = Reshape(f, sh)
        }""",
        "b, s, 6",
        floats(2, 3, 6),
    )


def test_a_quotient_without_rest_is_known_where_the_divisor_may_be_zero() -> None:
    """Lengths of masks in exports of transformers: b * s / b is s."""
    check(
        """g (float[b, s] x, float[b, 1] z) => (float y)
             <int64 zero = {0}, int64 one = {1}, int64[1] axis = {0}> {
          sh = Shape(x)
          b0 = Gather(sh, zero)
          s0 = Gather(sh, one)
          whole = Mul(b0, s0)
          n = Div(whole, b0)
          b1 = Unsqueeze(b0, axis)
          n1 = Unsqueeze(n, axis)
          target = Concat<axis = 0>(b1, n1)
          y = Expand(z, target)
        }""",
        "b, s",
        floats(2, 3),
        floats(2, 1),
    )


def test_what_is_left_of_a_slice_is_no_stretched_extent() -> None:
    """Differences of neighbours, as transformers find where sequences of a batch begin."""
    check(
        """g (float[s] x) => (float y)
             <int64[1] zero = {0}, int64[1] one = {1}, int64[1] all = {9223372036854775807}> {
          first = Slice(x, zero, one)
          longer = Concat<axis = 0>(first, x)
          next = Slice(longer, one, all)
          y = Sub(next, x)
        }""",
        ("max(min(s, 1) + s - 1, 0)",),
        floats(5),
    )


def test_half_by_floats() -> None:
    """Cast to float, scale, round, cast back: as TensorFlow's exporters do."""
    check(
        """g (float[n, 4] x) => (float y)
             <float half = {0.5}, int64[1] a = {0}, int64[1] b = {1}, int64[1] zero = {0}> {
          sh = Shape(x)
          n = Slice(sh, a, b)
          f = Cast<to = 1>(n)
          h = Mul(f, half)
          c = Ceil(h)
          e = Cast<to = 7>(c)
          y = Slice(x, zero, e, zero)
        }""",
        "(n + 1) floordiv 2, 4",
        floats(7, 4),
    )


def test_where_equal_expand() -> None:
    """The way torch exports ``expand(-1, …)``: -1 stands for the old extent."""
    graph = check(
        """g (float[n, 1, 2] x) => (float y) <int64[1] one = {1}, int64[1] minus = {-1},
             int64[1] wide = {5}, int64[1] rank = {3}> {
          want = Concat<axis = 0>(minus, wide, minus)
          ones = ConstantOfShape<value = int64[1] {1}>(rank)
          no = Mul(ones, minus)
          hit = Equal(want, no)
          sh = Where(hit, ones, want)
          y = Expand(x, sh)
        }""",
        "n, 5, 2",
        floats(3, 1, 2),
    )
    assert names(graph) == ["Expand"]


def test_range_over_a_dimension() -> None:
    """Positions 0 … s-1 have a symbolic length; their values are data."""
    graph = check(
        """g (float[b, s] x) => (int64 y) <int64 zero = {0}, int64 one = {1}> {
          sh = Shape(x)
          s = Gather(sh, one)
          y = Range(zero, s, one)
        }""",
        "s",
        floats(2, 5),
    )
    assert names(graph) == ["Iota"]


def test_shape_as_data() -> None:
    """A shape that meets a tensor is materialised."""
    graph = check(
        """g (float[n, 4] x) => (float y) <float half = {0.3}> {
          sh = Shape(x)
          f = Cast<to = 1>(sh)
          h = Mul(f, half)
          m = Gather<axis = 0>(h, i)
          i = Constant<value_int = 0>()
          y = Add(x, m)
        }""",
        "n, 4",
        floats(7, 4),
    )
    assert "Indices" in names(graph)


def test_size_and_prod() -> None:
    check(
        """g (float[n, 4] x) => (float y) <int64[1] minus = {-1}> {
          sh = Shape(x)
          p = ReduceProd<keepdims = 1>(sh)
          y = Reshape(x, p)
        }""",
        "4*n",
        floats(3, 4),
    )


def test_split_and_pad_symbolic() -> None:
    check(
        """g (float[n, 6] x) => (float y, float z, float p) <int64[1] at = {0}> {
          a, b = Split<axis = 1>(x)
          sh = Shape(x)
          n = Gather(sh, at)
          zero = Sub(n, n)
          pads = Concat<axis = 0>(zero, zero, n, at)
          p = Pad(x, pads)
          y = Neg(a)
          z = Neg(b)
        }""",
        "n, 3",
        floats(3, 6),
    )


def test_slice_bounds_of_a_named_dimension() -> None:
    body = """g (float[n, 4] x) => (float y) <int64[1] a = {-3}, int64[1] b = {-1}> {
      y = Slice(x, a, b)
    }"""
    graph = import_onnx(parsed(body), {"n": Range(8, 99)})
    assert graph.types["y"].shape == (2, 4)
    check(body, ("max(max(n - 1, 0) - max(n - 3, 0), 0)", "4"), floats(2, 4))


def test_same_padding_of_a_named_extent() -> None:
    check(
        """g (float[1, 1, h, 8] x, float[1, 1, 3, 3] w) => (float y) {
          y = Conv<auto_pad = "SAME_UPPER", strides = [2, 2]>(x, w)
        }""",
        "1, 1, (h + 1) floordiv 2, 4",
        floats(1, 1, 9, 8),
        floats(1, 1, 3, 3),
    )


def test_resize_by_scales() -> None:
    check(
        """g (float[1, 1, h, w] x) => (float y) <float[4] s = {1, 1, 2, 1.5}, float[0] roi = {}> {
          y = Resize<mode = "nearest", nearest_mode = "floor",
                     coordinate_transformation_mode = "asymmetric">(x, roi, s)
        }""",
        "1, 1, 2*h, (3*w) floordiv 2",
        floats(1, 1, 4, 5),
    )


def test_resize_to_the_size_of_another() -> None:
    check(
        """g (float[1, 1, h, w] x, float[1, 1, p, q] like) => (float y) {
          s = Shape(like)
          y = Resize<mode = "nearest", nearest_mode = "floor",
                     coordinate_transformation_mode = "asymmetric">(x, , , s)
        }""",
        "1, 1, p, q",
        floats(1, 1, 4, 5),
        floats(1, 1, 8, 7),
    )


def test_branch_by_rank() -> None:
    """An ``If`` whose condition follows from shapes is replaced by its branch."""
    graph = check(
        """g (float[n, 1] x) => (float y) <int64 one = {1}, int64 at = {1}, int64[1] axis = {1}> {
          sh = Shape(x)
          d = Gather(sh, at)
          c = Equal(d, one)
          y = If (c) <then_branch = t () => (float[n] p) { p = Squeeze(x, axis) },
                      else_branch = e () => (float[n, 1] q) { q = Identity(x) }>
        }""",
        "n",
        floats(3, 1),
    )
    assert names(graph) == ["Reshape"]
    assert graph.nodes[0].source == ("If#3", "Squeeze#0")


def test_functions_are_inlined() -> None:
    body = """<ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
    g (float[n, 4] x) => (float y) { [outer] y = mine.twice<slope = 0.3>(x) }
    <domain: "mine", opset_import: ["" : 17, "mine" : 1]>
    twice <slope> (a) => (c) { b = mine.leaky<alpha: float = @slope>(a)
                               c = mine.leaky<alpha: float = @slope>(b) }
    <domain: "mine", opset_import: ["" : 17]>
    leaky <alpha: float = 0.1> (p) => (q) { q = LeakyRelu<alpha: float = @alpha>(p) }
    """
    model = onnx.parser.parse_model(body)
    graph = assert_agrees(model, {"x": floats(3, 4)})
    assert names(graph) == ["LeakyRelu", "LeakyRelu"]
    assert graph.nodes[0].source == ("outer", "leaky#0", "LeakyRelu#0")


def test_dims_fix_and_bound() -> None:
    body = "g (float[n, 4, ?] x) => (float y) { y = Relu(x) }"
    free = import_onnx(parsed(body))
    assert free.types["x"].shape == (parse_index("n"), 4, parse_index("x_d2"))
    assert free.dims == {"n": Range(0, None), "x_d2": Range(0, None)}
    some = import_onnx(parsed(body), {"n": 3, "x_d2": Range(2, 8)})
    assert some.types["y"].shape == (3, 4, parse_index("x_d2"))
    assert some.dims == {"x_d2": Range(2, 8)}


def test_question_marks_are_different_dimensions() -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["?", "?"])
    model = parsed("g (float[n, m] x) => (float y) { y = Relu(x) }")
    model.graph.input[0].CopyFrom(value)
    assert import_onnx(model).types["y"].shape == (parse_index("x_d0"), parse_index("x_d1"))


def test_outputs_keep_their_names() -> None:
    """An input, a constant and one value twice as outputs."""
    model = parsed(
        """g (float[2] x) => (float[2] x1, float[2] w1, float[2] y, float[2] z)
             <float[2] w = {1, 2}> {
          x1 = Identity(x)
          w1 = Identity(w)
          y = Relu(x)
          z = Identity(y)
        }"""
    )
    graph = assert_agrees(model, {"x": floats(2)})
    assert graph.outputs == ("x1", "w1", "y", "z")


def test_input_as_output() -> None:
    graph = import_onnx(parsed("g (float[2] x) => (float[2] x) { y = Relu(x) }"))
    verify_graph(graph)
    assert graph.inputs == ("x",) and graph.outputs == ("x",)


def test_unknown_types_are_not_reported_again() -> None:
    model = parsed("g (float[n] x) => (float y) { a = Whirl(x)\n b = Cast<to=1>(a)\n y = Neg(b) }")
    with pytest.raises(UnsupportedModel) as caught:
        import_onnx(model)
    assert [n.operator for n in caught.value.nodes] == ["ai.onnx.Whirl"]


def test_weights_are_views_of_the_file(tmp_path: Path) -> None:
    """Small, large and external initializers: none but the small one is copied."""
    rng = np.random.default_rng(0)
    arrays = {"s": rng.random((3,)), "l": rng.random((50, 60)), "e": rng.random((7, 400))}
    model = parsed(
        """g (double[3] x) => (double[3] y, double[50, 60] z, double[7, 400] w) {
          y = Add(x, s)
          z = Neg(l)
          w = Neg(e)
        }"""
    )
    for name, array in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    tensor = model.graph.initializer[2]
    (tmp_path / "weights.bin").write_bytes(bytes(64) + tensor.raw_data)
    external_data_helper.set_external_data(tensor, "weights.bin", offset=64)
    tensor.ClearField("raw_data")
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    constants = import_onnx(path).constants
    for name, array in arrays.items():
        np.testing.assert_array_equal(constants[name].data, array)
    assert _owner(constants["l"].data) is mmap.mmap
    assert _owner(constants["e"].data) is mmap.mmap


def _owner(array: Array) -> type:
    """What holds the memory of ``array``."""
    base: object = array
    while (below := getattr(base, "base", None)) is not None:
        base = below
    return type(base.obj) if isinstance(base, memoryview) else type(base)


def test_values_fix_inputs() -> None:
    """A branch on an input is decided by its value."""
    model = parsed(
        """g (float[2] x, bool c) => (float y) {
          y = If (c) <then_branch = t () => (float[2] p) { p = Relu(x) },
                      else_branch = e () => (float[2] q) { q = Neg(x) }>
        }"""
    )
    graph = import_onnx(model, values={"c": np.array(False)})
    assert graph.inputs == ("x",)
    assert names(graph) == ["Neg"]


@pytest.mark.parametrize("name", ["x0", "i0", "a1", "c0"])
def test_dimensions_called_like_names_of_generated_code(name: str) -> None:
    model = onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[{name}, m, 3] x, float[{name}, 1, 3] z) => (float[{name}, m, 3] y, int64[3] s)
    {{ a = Sub(x, z) b = Abs(a) y = Add(b, x) s = Shape(y) }}""")
    x, z = np.ones((4, 5, 3), np.float32), np.full((4, 1, 3), 3, np.float32)
    found = modelcc.compile(model, threads=1, cache=None).run({"x": x, "z": z})
    np.testing.assert_array_equal(found["y"], np.abs(x - z) + x)
    assert found["s"].tolist() == [4, 5, 3]
