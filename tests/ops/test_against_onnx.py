"""References of elementwise, reduction, shape and gather ops against ONNX runtimes.

onnxruntime is the judge; where its CPU build lacks a kernel for a dtype, ONNX's own reference
evaluator is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from modelcc.ir.op import Op, Sample
from modelcc.ir.types import BF16, BOOL, Array, DType, dtype_of
from modelcc.ops import activation, cumulative, elementwise, gather, padding, reduce, shape
from modelcc.ops.samples import arrays, sizes

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
reference = pytest.importorskip("onnx.reference")

Twin = tuple[str, dict[str, Any], Sequence[Array | None]]
OPSET = 21


def ints(values: Sequence[Any]) -> Array:
    return np.array(values, np.int64)


def plain(op: Op, xs: Sequence[Array | None]) -> Twin:
    """Same name, same attributes, same operands."""
    attributes = {
        k: int(v) if isinstance(v, bool) else v for k, v in op.attributes().items() if v != ()
    }
    return type(op).__name__, attributes, xs


def renamed(name: str, **attributes: str) -> Callable[[Any, Sequence[Array | None]], Twin]:
    """Another name; ONNX attribute names of some attributes."""

    def twin(op: Op, xs: Sequence[Array | None]) -> Twin:
        _, values, _ = plain(op, xs)
        return name, {attributes.get(k, k): v for k, v in values.items()}, xs

    return twin


def number_of(dtype: DType) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(dtype.numpy))


def shift(op: Any, xs: Sequence[Array | None]) -> Twin:
    return "BitShift", {"direction": "LEFT" if op.left else "RIGHT"}, xs


def reduction(op: Any, xs: Sequence[Array | None]) -> Twin:
    name = type(op).__name__
    attributes = {"keepdims": int(op.keepdims), "noop_with_empty_axes": 1}
    return name, attributes, [xs[0], ints(op.axes)]


def at_elements(op: Any, xs: Sequence[Array | None]) -> Twin:
    """Indices of ONNX are always signed."""
    name, attributes, operands = plain(op, xs)
    return name, {k: v for k, v in attributes.items() if k != "signed"}, operands


def slicing(op: Any, xs: Sequence[Array | None]) -> Twin:
    steps = zip(op.starts, op.extents, op.steps, strict=True)
    stops = [start + extent * step for start, extent, step in steps]
    stops = [stop if stop >= 0 else -(2**31) for stop in stops]
    axes = range(len(op.starts))
    return "Slice", {}, [xs[0], ints(op.starts), ints(stops), ints(axes), ints(op.steps)]


def pad(op: Any, xs: Sequence[Array | None]) -> Twin:
    (x,) = xs
    assert x is not None
    value = np.array(op.value, x.dtype)
    return "Pad", {"mode": op.mode}, [x, ints([*op.before, *op.after]), value]


def clip(op: Any, xs: Sequence[Array | None]) -> Twin:
    (x,) = xs
    assert x is not None
    bounds = [None if b is None else np.array(b, x.dtype) for b in (op.low, op.high)]
    return "Clip", {}, [x, *bounds]


def at_tuples(op: Any, xs: Sequence[Any]) -> Twin:
    """Indices with places along the axes before those that they select."""
    x, indices, updates = xs
    lead, outer = x.shape[: op.axis], indices.shape[:-1]
    grid = np.moveaxis(np.indices(lead, indices.dtype), 0, -1)
    own = indices.reshape(*outer, *(1,) * op.axis, -1)
    sides = [np.broadcast_to(a, (*outer, *lead, a.shape[-1])) for a in (grid, own)]
    return "ScatterND", {"reduction": op.reduction}, [x, np.concatenate(sides, -1), updates]


TWINS: dict[type[Op], Callable[[Any, Sequence[Any]], Twin]] = {
    **dict.fromkeys((*elementwise.OPS, *activation.OPS), plain),
    **dict.fromkeys(reduce.OPS, reduction),
    elementwise.NotEqual: lambda op, xs: ("Not", {}, [np.asarray(np.equal(*xs))]),
    elementwise.Rsqrt: lambda op, xs: ("Reciprocal", {}, [np.asarray(np.sqrt(xs[0]))]),
    elementwise.Exp2: lambda op, xs: ("Pow", {}, [np.asarray(2, xs[0].dtype), xs[0]]),
    elementwise.Expm1: lambda op, xs: (
        "Sub",
        {},
        [np.asarray(np.exp(xs[0])), np.asarray(1, xs[0].dtype)],
    ),
    elementwise.Log1p: lambda op, xs: ("Log", {}, [np.asarray(xs[0] + xs[0].dtype.type(1))]),
    elementwise.BitShift: shift,
    elementwise.ClipTensor: renamed("Clip"),
    elementwise.Cast: lambda op, xs: ("Cast", {"to": number_of(op.to)}, xs),
    elementwise.BitCast: lambda op, xs: ("BitCast", {"to": number_of(op.to)}, xs),
    activation.Clip: clip,
    activation.Silu: lambda op, xs: ("Swish", {}, xs),
    activation.Affine: lambda op, xs: (
        "Add",
        {},
        [np.asarray(xs[0] * xs[0].dtype.type(op.alpha)), np.asarray(op.beta, xs[0].dtype)],
    ),
    activation.ScaledTanh: lambda op, xs: (
        "Mul",
        {},
        [np.asarray(np.tanh(xs[0] * xs[0].dtype.type(op.beta))), np.asarray(op.alpha, xs[0].dtype)],
    ),
    reduce.ArgMax: plain,
    reduce.ArgMin: plain,
    cumulative.CumSum: lambda op, xs: (
        "CumSum",
        {"exclusive": int(op.exclusive), "reverse": int(op.reverse)},
        [xs[0], np.array(op.axis, np.int64)],
    ),
    cumulative.CumProd: lambda op, xs: (
        "CumProd",
        {"exclusive": int(op.exclusive), "reverse": int(op.reverse)},
        [xs[0], np.array(op.axis, np.int64)],
    ),
    shape.Reshape: lambda op, xs: ("Reshape", {"allowzero": 1}, [xs[0], ints(op.shape)]),
    shape.Expand: lambda op, xs: ("Expand", {}, [xs[0], ints(op.shape)]),
    shape.Transpose: plain,
    shape.Slice: slicing,
    shape.Concat: plain,
    padding.Pad: pad,
    shape.Tile: lambda op, xs: ("Tile", {}, [xs[0], ints(op.repeats)]),
    shape.Trilu: lambda op, xs: ("Trilu", {"upper": int(op.upper)}, [xs[0], ints(op.k)]),
    shape.EyeLike: lambda op, xs: ("EyeLike", {"dtype": number_of(op.dtype), "k": op.k}, xs),
    gather.Gather: plain,
    gather.GatherElements: at_elements,
    gather.GatherND: plain,
    gather.ScatterElements: at_elements,
    gather.ScatterND: at_tuples,
    gather.OneHot: lambda op, xs: ("OneHot", {"axis": op.axis}, [xs[0], ints(op.depth), xs[1]]),
}
OPSETS: dict[type[Op], int] = {
    activation.Silu: 24,
    activation.Swish: 24,
    elementwise.BitCast: 26,
    cumulative.CumProd: 26,
}
UNJUDGED = {
    ("Cast", 2): "onnxruntime gives no bf16 back to NumPy",
    **{
        ("Mod", i): "ONNX knows float remainders with the sign of the dividend only"
        for i in range(9)
    },
    ("ReduceMax", 14): "onnxruntime drops NaN where NumPy, torch and ONNX's evaluator keep it",
    ("ReduceMin", 14): "onnxruntime drops NaN where NumPy, torch and ONNX's evaluator keep it",
    **{
        (name, i): "onnxruntime's places of NaN follow no rule; these are NumPy's"
        for name in ("ArgMax", "ArgMin")
        for i in (5, 11)
    },
    ("Slice", 4): "onnxruntime slices no scalars",
    ("Pad", 5): "onnxruntime reflects by less than the extent only",
    ("Pad", 6): "onnxruntime reflects by less than the extent only",
    ("Pad", 10): "onnxruntime pads no scalars",
    ("OneHot", 2): "onnxruntime takes no scalar index",
}


def one_node(twin: Twin, opset: int) -> Any:
    """A model of one node."""
    name, attributes, operands = twin
    names = ["" if x is None else f"x{i}" for i, x in enumerate(operands)]
    node = onnx.helper.make_node(name, names, ["y"], **attributes)
    inputs = [
        onnx.helper.make_tensor_value_info(
            n, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
        )
        for n, x in zip(names, operands, strict=True)
        if x is not None
    ]
    graph = onnx.helper.make_graph([node], "one", inputs, [onnx.ValueInfoProto(name="y")])
    opsets = [onnx.helper.make_opsetid("", opset)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


def judged(twin: Twin, opset: int) -> Array:
    """The result by onnxruntime, or by ONNX's evaluator where that has no kernel."""
    model = one_node(twin, opset)
    feeds = {f"x{i}": x for i, x in enumerate(twin[2]) if x is not None}
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return np.asarray(session.run(None, feeds)[0])
    except (
        ort.capi.onnxruntime_pybind11_state.NotImplemented,
        ort.capi.onnxruntime_pybind11_state.InvalidGraph,
    ):
        with np.errstate(all="ignore"):
            return np.asarray(reference.ReferenceEvaluator(model).run(None, feeds)[0])


CASES = [
    pytest.param(kind(**sample.attributes), sample, number, id=f"{kind.__name__}-{number}")
    for kind in TWINS
    for number, sample in enumerate(kind.samples)
]


@pytest.mark.parametrize(("op", "sample", "number"), CASES)
def test_reference_agrees_with_onnx(op: Op, sample: Sample, number: int) -> None:
    if (type(op).__name__, number) in UNJUDGED:
        pytest.skip(UNJUDGED[type(op).__name__, number])
    concrete, operands = op.substitute(sizes(op, sample)), arrays(op, sample)
    if any(x is not None and dtype_of(x) == BF16 for x in operands):
        pytest.skip("neither judge computes in bf16")
    twin = TWINS[type(op)](concrete, operands)
    wanted = judged(twin, OPSETS.get(type(op), OPSET))
    with np.errstate(all="ignore"):
        actual = np.asarray(concrete.reference(*operands))
    assert actual.dtype == wanted.dtype
    assert actual.shape == wanted.shape
    tolerance = 1e-2 if wanted.dtype == np.float16 else 1e-5
    if wanted.dtype == BOOL.numpy or dtype_of(wanted).is_integer:
        np.testing.assert_array_equal(actual, wanted)
    else:
        np.testing.assert_allclose(
            actual.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance
        )
