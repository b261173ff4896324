"""How far a session's results are off, and how far they may be: by ONNX Runtime's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from benchmarks.accuracy.truth import Truth
from modelcc.ir.types import Array
from modelcc.options import Options
from modelcc.runtime.session import Session

TOLERANCE = {"f32": 2e-5, "tf32x3": 2e-5, "tf32": 1e-2, "f16": 6e-3, "bf16": 7e-2}
"""Of the largest number of a result."""

TIMES = 2
"""So many times the error of ONNX Runtime in the same precision may a result have, as in f32
(:mod:`benchmarks.accuracy`)."""

_HALVES = {"f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}


@dataclass(frozen=True)
class Judgement:
    """How far results are off at most, as a part of the largest number, and how far they may be;
    ``peer`` is that of ONNX Runtime's own in the same precision, where that says so.  A bar of 1 is
    none: results of zeros pass it."""

    error: float
    bar: float
    peer: float | None = None

    @property
    def passes(self) -> bool:
        return self.error <= self.bar

    def __str__(self) -> str:
        peer = "" if self.peer is None else f", ONNX Runtime {self.peer:.1e}"
        return f"{self.error:.1e} of {self.bar:.1e}{peer}"


def judged(model: Path, session: Session, options: Options) -> Judgement:
    """Results of random inputs against those of ONNX Runtime in f32; sizes that ``options`` leave
    open are 2.  Those that are further off than :data:`TOLERANCE` are held against the model in 64
    bits, and may have :data:`TIMES` the error of ONNX Runtime in the same precision from there:
    that in f32, or with everything :func:`rounded` to f16 or bf16."""
    engine, precision = _engine(model), options.precision
    feeds, names = _feeds(engine, options), [output.name for output in engine.get_outputs()]
    results, usual = session.run(feeds), _results(engine, feeds)
    found, bar = [results[name] for name in names], TOLERANCE[precision]
    error = _error(found, usual)
    if error <= bar or precision == "tf32":
        return Judgement(error, bar)
    exact = Truth(model).run(feeds)
    wanted = usual if exact is None else [exact[name] for name in names]
    if precision in _HALVES:
        text = rounded(onnx.load(model), precision).SerializeToString()
        usual = _results(_engine(text, as_it_is=True), feeds)
    peer = _error(usual, wanted)
    allowed = TIMES * peer if np.isfinite(peer) else 0.0
    return Judgement(_error(found, wanted), max(bar, allowed), peer)


def rounded(model: onnx.ModelProto, precision: str) -> onnx.ModelProto:
    """``model``, which is changed, with weights, inputs and results of all operators rounded to f16
    or bf16 by Cast, and operators in f32, as machines add f16 up in f32.

    Of a model that its tool converts to f16 ONNX Runtime rounds hardly any result on processors
    without f16: it takes casts away, and of MobileNetV3's 116 operators one is left.
    """
    inferred = onnx.shape_inference.infer_shapes(model).graph
    known = {v.name: v.type.tensor_type.elem_type for v in (*inferred.value_info, *inferred.output)}
    graph, nodes, renamed = model.graph, list[onnx.NodeProto](), dict[str, str]()
    given = [i.name for i in graph.initializer if i.data_type == TensorProto.FLOAT]
    given += [v.name for v in graph.input if v.type.tensor_type.elem_type == TensorProto.FLOAT]
    for name in dict.fromkeys(given):
        renamed[name] = f"{name}.rounded"
        nodes += _casts(name, renamed[name], precision)
    for node in graph.node:
        inputs = [renamed.get(name, name) for name in node.input]
        results = [name for name in node.output if known.get(name) == TensorProto.FLOAT]
        outputs = [f"{name}.whole" if name in results else name for name in node.output]
        node.ClearField("input")
        node.ClearField("output")
        node.input.extend(inputs)
        node.output.extend(outputs)
        nodes.append(node)
        for name in results:
            nodes += _casts(f"{name}.whole", name, precision)
    copied = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    graph.ClearField("node")
    graph.node.extend(copied)
    return model


def _casts(name: str, to: str, precision: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Cast", [name], [f"{to}.half"], to=_HALVES[precision]),
        helper.make_node("Cast", [f"{to}.half"], [to], to=TensorProto.FLOAT),
    ]


def _engine(model: Path | bytes, as_it_is: bool = False) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    if as_it_is:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _results(engine: onnxruntime.InferenceSession, feeds: Mapping[str, Array]) -> list[Array]:
    return [np.asarray(result) for result in engine.run(None, feeds)]


def _feeds(engine: onnxruntime.InferenceSession, options: Options) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    feeds: dict[str, Array] = {}
    sizes = {name: size for name, size in options.dims if isinstance(size, int)}
    for given in engine.get_inputs():
        shape = [n if isinstance(n, int) else sizes.get(n, 2) for n in given.shape]
        floats = "float" in given.type
        data = rng.standard_normal(shape) if floats else rng.integers(0, 20, shape)
        feeds[given.name] = data.astype("f4" if floats else "i8" if "64" in given.type else "i4")
    return feeds


def _error(found: Sequence[Array], wanted: Sequence[Array]) -> float:
    errors = list[float]()
    for result, right in zip(found, wanted, strict=True):
        right = right.astype(np.float64)
        most = max(float(np.abs(right).max()), 1e-9)
        errors.append(float(np.abs(result.astype(np.float64) - right).max()) / most)
    return float(np.max(errors))
