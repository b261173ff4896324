"""The suite's single operators on every type that their schemas allow: the meaning of graphs.

That code agrees with the meaning of graphs, whatever the types are, is shown in tests/ops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper
from onnx.defs import OpSchema
from onnx.reference import ReferenceEvaluator

from conformance.cases import Case, collect
from modelcc.frontends.onnx import import_onnx
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import Array

CODES = {
    helper.tensor_dtype_to_string(code).removeprefix("TensorProto.").lower(): code
    for code in TensorProto.DataType.values()
    if code not in (0, TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.COMPLEX128)
}
TOLERANCES = {TensorProto.FLOAT: 1e-3, TensorProto.DOUBLE: 1e-5, TensorProto.FLOAT16: 2e-2,
              TensorProto.BFLOAT16: 5e-2}  # fmt: skip

LEFT_OUT: Mapping[str, str] = {
    "Attention": "queries of another type than keys: the standard's own definition has none",
    "BitCast": "its types must be equally wide",
    "ImageDecoder": "the runtime decodes, before the graph",
    "OptionalGetElement": "the cases are optional inputs",
    "OptionalHasElement": "the cases are optional inputs",
    "Pow": "there are no integers to powers below 0",
    "Resize": "its first case is cubic interpolation, of which there is none of integers",
    "SplitToSequence": "how many parts there are depends on data",
    "TreeEnsemble": "its attributes have the type of its operand",
}
DIFFERS: Mapping[str, str] = {
    "AffineGrid": "the evaluator's result is f32",
    "Adam": "the evaluator's result has the type of the rate",
    "Bernoulli": "random",
    "DequantizeLinear.T1=float4e2m1": "zero points of floats are 0",
    "Det.T=bfloat16": "the evaluator's result is f64",
    "GridSample": "the evaluator weighs integers by integers",
    "LayerNormalization": "the evaluator's statistics are not of the type of stash_type",
    "Momentum": "the evaluator's result has the type of the rate",
    "QLinearMatMul": "zero points of floats are 0",
    "QuantizeLinear.T3": "zero points of floats are 0",
    "RMSNormalization": "the evaluator's result has not the type of the scale",
    "ReduceSumSquare": "the evaluator's sums are wider",
}


@dataclass(frozen=True)
class Variant:
    """A case with the operands of a type variable as another type."""

    label: str
    model: ModelProto
    feeds: dict[str, Array]


def as_type(x: Array, code: int) -> Array | None:
    """``x`` within the range of a type; None if it has no such numbers."""
    dtype = helper.tensor_dtype_to_np_dtype(code)
    wide = x.astype(np.float64)
    if code == TensorProto.BOOL:
        return wide > 0
    if dtype.kind not in "iu" and "int" not in dtype.name:
        with np.errstate(all="ignore"):
            return wide.astype(dtype)
    info = ml_dtypes.iinfo(dtype)
    whole = np.clip(np.rint(np.nan_to_num(wide)), float(info.min), min(float(info.max), 2.0**31))
    return (np.abs(whole) if info.min == 0 else whole).astype(np.int64).astype(dtype)


def variants(case: Case) -> Iterator[Variant]:
    loaded = case.load()
    (node,) = loaded.model.graph.node
    inputs = loaded.data_sets[0][0]
    if any(not isinstance(x, np.ndarray) or x.dtype == object for x in inputs):
        return
    version = next(o.version for o in loaded.model.opset_import if o.domain == node.domain)
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    names = [i.name for i in loaded.model.graph.input]
    kinds = types_of(node.input, schema.inputs)
    results = types_of(node.output, schema.outputs)
    for constraint in schema.type_constraints:
        variable = constraint.type_param_str
        if variable not in kinds.values():
            continue
        for text in constraint.allowed_type_strs:
            code = CODES.get(text.removeprefix("tensor(").removesuffix(")"))
            if code is None or (node.op_type == "Mod" and version < 28 and code in TOLERANCES):
                continue  # before operator set 28, the remainder of floats wants fmod = 1
            changed = {n: x if kinds.get(n) != variable else as_type(x, code)
                       for n, x in zip(names, inputs, strict=True)}  # fmt: skip
            feeds = {n: x for n, x in changed.items() if x is not None}
            if len(feeds) == len(changed):
                label = f"{node.op_type}.{variable}={text[7:-1]}"
                yield Variant(label, retyped(loaded.model, kinds | results, variable, code), feeds)


def types_of(names: Sequence[str], formals: Sequence[OpSchema.FormalParameter]) -> dict[str, str]:
    """The type variable of each operand or result; the last formal one may be many."""
    return {n: formals[min(i, len(formals) - 1)].type_str for i, n in enumerate(names) if n}


def retyped(model: ModelProto, kinds: Mapping[str, str], variable: str, code: int) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = max(copy.ir_version, 13)
    for value in (*copy.graph.input, *copy.graph.output):
        if kinds.get(value.name) == variable and value.type.HasField("tensor_type"):
            value.type.tensor_type.elem_type = code
    return copy


def single(case: Case) -> NodeProto | None:
    """The only node of a case, if it is one without graphs."""
    if case.kind != "node":
        return None
    model = case.load().model
    if len(model.graph.node) != 1 or model.functions:
        return None
    (node,) = model.graph.node
    graphs = (AttributeProto.GRAPH, AttributeProto.GRAPHS)
    return None if any(a.type in graphs for a in node.attribute) else node


def expected(variant: Variant) -> Sequence[object] | None:
    """What the reference evaluator gives, None where it gives up."""
    try:
        with np.errstate(all="ignore"):
            return [*ReferenceEvaluator(variant.model).run(None, variant.feeds)]
    except Exception:
        return None


def difference(ours: Array, theirs: Array) -> str:
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return f"{ours.dtype}{ours.shape} instead of {theirs.dtype}{theirs.shape}"
    if ours.dtype == object or not ours.size:
        return ""
    tolerance = TOLERANCES.get(helper.np_dtype_to_tensor_dtype(ours.dtype), 0.0)
    x, y = ours.astype(np.float64), theirs.astype(np.float64)
    scale = max(1.0, float(np.abs(np.where(np.isfinite(y), y, 0)).max()))
    close = np.isclose(x, y, tolerance, tolerance * scale, equal_nan=True)
    return "" if close.all() else f"{x[~close][0]} instead of {y[~close][0]}"


def fault(variant: Variant) -> str:
    graph = import_onnx(variant.model)
    found = interpret(graph, variant.feeds)
    theirs = expected(variant)
    if theirs is None or any(re.match(name, variant.label) for name in DIFFERS):
        return ""
    pairs = zip(graph.outputs, theirs, strict=True)
    told = (difference(found[n], t) for n, t in pairs if isinstance(t, np.ndarray))
    return next((text for text in told if text), "")


@pytest.fixture(scope="module")
def every() -> dict[str, Variant]:
    """One variant for each operator, type variable and type."""
    found: dict[str, Variant] = {}
    for case in collect():
        node = single(case)
        if node is not None and node.op_type not in LEFT_OUT:
            for variant in variants(case):
                found.setdefault(variant.label, variant)
    return found


def test_every_type_that_a_schema_allows(every: dict[str, Variant]) -> None:
    assert len(every) > 1300
    faults: list[str] = []
    for label, variant in every.items():
        try:
            text = fault(variant)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        faults += [f"{label}: {text}"] if text else []
    assert not faults, "\n".join(faults)
