"""Alternative results of a model and its inputs, to explain differences.

Besides the results of onnxruntime and onnx's evaluator there are onnxruntime's for perturbed
models: inputs, constants or the results of all nodes moved to adjacent numbers; and for NumPy's
semantics: NaN is propagated by MaxPool, ReduceMax, ReduceMin, ArgMax and ArgMin, which in
onnxruntime lose some or find others.  MaxPool of NaN is unspecified: whether it is lost depends on
the order in which an engine visits its neighbours.  So results that depend on it may be anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Arrays = Mapping[str, Any]
Runner = Callable[[Arrays], Arrays]

FLOATS: dict[int, type[np.floating[Any]]] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
    TensorProto.FLOAT16: np.float16,
}

MOVING = frozenset(
    (
        "Constant", "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten",
        "Expand", "Slice", "Gather", "Concat", "Split", "Pad", "Tile", "Where", "Cast", "Relu",
        "Max", "Min", "MaxPool", "ReduceMax", "ReduceMin",
    )
)  # fmt: skip
"""Operators whose results are copies of operand elements, and thus exact."""

ORDERED = frozenset(("MaxPool", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin"))


def onnxruntime_runner(
    model: Path | onnx.ModelProto, optimised: bool = False, exact: bool = False
) -> Runner:
    """``model`` in onnxruntime, on one thread.

    Without VNNI its products of u8 and i8 are added in pairs that saturate at 16 bits, unless
    ``exact`` ones are requested, which its optimisations implement.
    """
    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = (
        levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    )
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if exact:
        options.add_session_config_entry("session.x64quantprecision", "1")
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: flat(dict(zip(names, session.run(None, dict(feeds)), strict=True)))


def flat(results: Mapping[str, Any]) -> dict[str, Any]:
    """``results`` with the elements of lists and dicts as separate arrays, under extended names.

    Scores in dicts are f32, not Python's floats.
    """
    found: dict[str, Any] = {}
    for name, value in results.items():
        if isinstance(value, list):
            found |= flat({f"{name}[{place}]": each for place, each in enumerate(value)})
        elif isinstance(value, dict):
            found |= flat({f"{name}[{key!r}]": each for key, each in value.items()})
        else:
            found[name] = np.asarray(value, np.float32 if isinstance(value, float) else None)
    return found


def opinions(path: Path, feeds: Arrays, got: Arrays) -> Iterator[tuple[str, Arrays]]:
    """Results by source, besides ``got`` of modelcc; none of sources that cannot run the model."""
    model = onnx.load(path)
    up, down = (partial(_neighbours, feeds, towards) for towards in (np.inf, -np.inf))
    makers: dict[str, Callable[[], Arrays]] = {
        "onnxruntime with its optimisations": lambda: onnxruntime_runner(path, True)(feeds),
        "onnxruntime with exact sums of integers": lambda: onnxruntime_runner(path, True, True)(
            feeds
        ),
        "onnxruntime for inputs an ulp larger": lambda: onnxruntime_runner(path)(up()),
        "onnxruntime for inputs an ulp smaller": lambda: onnxruntime_runner(path)(down()),
        "onnxruntime with constants an ulp larger": lambda: onnxruntime_runner(
            constants_moved(model, np.inf)
        )(feeds),
        "onnx's evaluator": lambda: evaluated(model, feeds),
        "onnxruntime told to keep NaN": lambda: onnxruntime_runner(nan_kept(model))(feeds),
        "onnxruntime, whatever MaxPool makes of NaN,": lambda: _but_for_pools(model, feeds, got),
        "onnxruntime with results an ulp away from 0": lambda: onnxruntime_runner(
            results_moved(model, 1)
        )(feeds),
        "onnxruntime with results an ulp towards 0": lambda: onnxruntime_runner(
            results_moved(model, -1)
        )(feeds),
    }
    for name, make in makers.items():
        try:
            with np.errstate(all="ignore"):
                yield name, make()
        except Exception:
            continue  # no opinion


def evaluated(model: onnx.ModelProto, feeds: Arrays) -> Arrays:
    """Results of onnx's evaluator."""
    names = [output.name for output in model.graph.output]
    return flat(dict(zip(names, ReferenceEvaluator(model).run(None, dict(feeds)), strict=True)))


def _but_for_pools(model: onnx.ModelProto, feeds: Arrays, got: Arrays) -> Arrays:
    """onnxruntime's results, except ``got`` where they depend on MaxPool's treatment of NaN."""
    kept, lost = (onnxruntime_runner(nan_kept(each))(feeds) for each in (model, nan_lost(model)))

    def chosen(name: str) -> Any:
        alike = _same_numbers(kept[name], lost[name])
        if name in got and got[name].shape == alike.shape:
            return np.where(alike, kept[name], got[name]).astype(kept[name].dtype)
        return kept[name]

    return {name: chosen(name) for name in kept}


def _same_numbers(a: Any, b: Any) -> Any:
    return (a == b) | ((a != a) & (b != b))


def _neighbours(feeds: Arrays, towards: float) -> Arrays:
    def moved(array: Any) -> Any:
        return np.nextafter(array, array.dtype.type(towards)) if array.dtype.kind == "f" else array

    return {name: moved(array) for name, array in feeds.items()}


def constants_moved(model: onnx.ModelProto, towards: float) -> onnx.ModelProto:
    """``model`` with every float of its initializers moved to the adjacent one ``towards``."""
    changed = _copy(model)
    for tensor in changed.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind == "f":
            array = np.nextafter(array, array.dtype.type(towards))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return changed


def results_moved(model: onnx.ModelProto, ulps: int) -> onnx.ModelProto:
    """``model`` with every computed float multiplied by 1 + ``ulps`` · epsilon."""
    types = _element_types(model)

    def moved(node: NodeProto) -> Iterator[NodeProto]:
        if node.op_type in MOVING or node.domain:
            yield node
            return
        names = [name for name in node.output if types.get(name) in FLOATS]
        yield _renamed(node, names)
        for name in names:
            dtype = FLOATS[types[name]]
            factor = np.asarray(1 + ulps * np.finfo(dtype).eps, dtype)
            yield _constant(f"{name}_factor", factor)
            yield helper.make_node("Mul", [f"{name}_own", f"{name}_factor"], [name])

    return _rewritten(model, moved)


def nan_kept(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with NaN-propagating extrema: the first NaN, if there is one."""
    types = _element_types(model)

    def kept(node: NodeProto) -> Iterator[NodeProto]:
        dtype = FLOATS.get(types.get(node.input[0], 0)) if node.input else None
        if node.op_type not in ORDERED or dtype is None or len(node.output) != 1:
            yield node
            return
        (name,) = node.output
        flags, found, own = f"{name}_flags", f"{name}_found", f"{name}_own"
        yield _renamed(node, [name])
        yield helper.make_node("IsNaN", [node.input[0]], [f"{name}_isnan"])
        yield helper.make_node("Cast", [f"{name}_isnan"], [flags], to=TensorProto.FLOAT)
        operator = "MaxPool" if node.op_type == "MaxPool" else "ReduceMax"
        yield _same(node, operator, flags, f"{name}_any")
        yield helper.make_node("Cast", [f"{name}_any"], [found], to=TensorProto.BOOL)
        if node.op_type.startswith("Arg"):
            yield _same(node, "ArgMax", flags, f"{name}_nan")
        else:
            yield _constant(f"{name}_nan", np.asarray(np.nan, dtype))
        yield helper.make_node("Where", [found, f"{name}_nan", own], [name])

    return _rewritten(model, kept)


def nan_lost(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with minus infinity for NaN as operands of MaxPool."""
    types = _element_types(model)

    def lost(node: NodeProto) -> Iterator[NodeProto]:
        dtype = FLOATS.get(types.get(node.input[0], 0)) if node.input else None
        if node.op_type != "MaxPool" or dtype is None:
            yield node
            return
        x, start = node.input[0], node.output[0]
        flags, least, seen = f"{start}_none", f"{start}_least", f"{start}_seen"
        yield helper.make_node("IsNaN", [x], [flags])
        yield _constant(least, np.asarray(-np.inf, dtype))
        yield helper.make_node("Where", [flags, least, x], [seen])
        yield _same(node, "MaxPool", seen, start)

    return _rewritten(model, lost)


def _same(node: NodeProto, operator: str, x: str, y: str) -> NodeProto:
    """``node`` as another ``operator`` with the same geometry, on ``x``."""
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.name = ""  # names of nodes are unique
    copy.op_type, copy.input[0], copy.output[0] = operator, x, y
    if node.op_type.startswith("Arg") and operator == "ReduceMax":
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        del copy.attribute[:]
        copy.attribute.append(helper.make_attribute("axes", [given.get("axis", 0)]))
        copy.attribute.append(helper.make_attribute("keepdims", given.get("keepdims", 1)))
    return copy


def _renamed(node: NodeProto, names: list[str]) -> NodeProto:
    """``node`` with ``_own`` appended to those of its results."""
    copy = NodeProto()
    copy.CopyFrom(node)
    for place, name in enumerate(node.output):
        copy.output[place] = f"{name}_own" if name in names else name
    return copy


def _constant(name: str, value: Any) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value, name))


def _rewritten(
    model: onnx.ModelProto, rule: Callable[[NodeProto], Iterator[NodeProto]]
) -> onnx.ModelProto:
    changed = _copy(model)
    nodes = [new for node in model.graph.node for new in rule(node)]
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    return changed


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    return changed


def _element_types(model: onnx.ModelProto) -> dict[str, int]:
    """Known element types of all tensors outside of bodies."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    values = (*graph.input, *graph.value_info, *graph.output)
    types = {v.name: v.type.tensor_type.elem_type for v in values}
    return types | {tensor.name: tensor.data_type for tensor in graph.initializer}
