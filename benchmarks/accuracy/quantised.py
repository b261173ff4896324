"""Quantised models: every quantised tensor against ONNX Runtime's, from the same operands.

Two engines may round a sum that lies between two steps to either of them, and what follows carries
such a step on and on.  So each tensor is computed from ONNX Runtime's values of those before it:
all of them become inputs of one model, which is compiled and run once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper

import modelcc
from benchmarks.accuracy.subjects import Arrays

TO_INTEGERS = frozenset({"QuantizeLinear", "DynamicQuantizeLinear"})
"""Standard operators whose results are quantised; those called QLinear… and QGemm are, too."""

INSIDE = frozenset({"DynamicQuantizeLSTM", "MatMulNBits", "DynamicQuantizeMatMul", "QAttention"})
"""Operators of ONNX Runtime that quantise within: their float results may be a step apart."""

GIVEN = ".given"


@dataclass(frozen=True)
class Steps:
    """Of one run: the greatest difference of a quantised tensor in steps and which tensor it is,
    the fraction of all their elements that differ, the error of outputs relative to the greatest,
    and the fraction of rows of outputs, computed freely, with the same greatest element."""

    tensors: int
    worst: float
    where: str
    differing: float
    outputs: float
    top: float


def quantised_tensors(model: onnx.ModelProto) -> tuple[str, ...]:
    """Results that are quantised, with what quantises them, in order."""
    return tuple(
        name
        for node in model.graph.node
        if node.op_type in TO_INTEGERS | INSIDE or node.op_type.startswith(("QLinear", "QGemm"))
        for name in (node.output if node.op_type not in INSIDE else node.output[:1])
        if name
    )


def teacher_forced(model: onnx.ModelProto, values: Arrays, feeds: Arrays) -> onnx.ModelProto:
    """``model`` of the shapes of ``feeds`` whose tensors in ``values`` are inputs and outputs."""
    forced = onnx.ModelProto()
    forced.CopyFrom(model)
    graph = forced.graph
    del graph.value_info[:]
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in values:
                node.input[place] = name + GIVEN
    outputs = [output.name for output in graph.output]
    del graph.input[:], graph.output[:]
    graph.input.extend(_value(name, value) for name, value in feeds.items())
    graph.input.extend(_value(name + GIVEN, value) for name, value in values.items())
    wanted = dict.fromkeys((*values, *outputs))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    return forced


def _value(name: str, value: np.ndarray) -> onnx.ValueInfoProto:
    code = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, code, value.shape)


def steps_apart(path: Path, feeds: Arrays, free: Arrays) -> Steps | None:
    """How far a model is from ONNX Runtime's; None if it is not quantised.

    ``free`` are outputs of the compiled model on ``feeds``.
    """
    model = onnx.load(path)
    names = quantised_tensors(model)
    if not names:
        return None
    outputs = [output.name for output in model.graph.output]
    peer = _observed(model, feeds, (*names, *outputs))
    values = {name: peer[name] for name in names}
    forced = modelcc.compile(teacher_forced(model, values, feeds), threads=2, cache=None)
    got = forced.run({**feeds, **{name + GIVEN: value for name, value in values.items()}})
    apart = {name: _in_steps(got[name], value) for name, value in values.items()}
    where = max(apart, key=lambda name: float(apart[name].max(initial=0)))
    every = np.concatenate([difference.reshape(-1) for difference in apart.values()])
    return Steps(
        len(values),
        float(every.max(initial=0)),
        where,
        float((every >= 0.5).mean()),
        max(_relative(got[name], peer[name]) for name in outputs),
        min(_same_top(free[name], peer[name]) for name in outputs),
    )


def _observed(model: onnx.ModelProto, feeds: Arrays, names: Sequence[str]) -> Arrays:
    """What ONNX Runtime computes for these values, in one thread.

    In several it quantises the state of DynamicQuantizeLSTM by the rows that each of them has, so
    that its results hang on their number.
    """
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    del watched.graph.output[:]
    watched.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        watched.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found = [output.name for output in session.get_outputs()]
    return dict(zip(found, session.run(found, feeds), strict=True))


def _in_steps(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Differences in steps: of integers their own, of floats 255th parts of the range."""
    difference = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
    if wanted.dtype.kind != "f":
        return difference
    if wanted.size == 1:  # a scale
        return difference / np.maximum(np.abs(wanted), 1e-30) * 255
    return difference / max(float(np.ptp(wanted)), 1e-30) * 255


def _relative(got: np.ndarray, wanted: np.ndarray) -> float:
    difference = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
    return float(difference.max(initial=0) / max(float(np.abs(wanted).max(initial=0)), 1e-30))


def _same_top(got: np.ndarray, wanted: np.ndarray) -> float:
    """The fraction of rows whose greatest elements are at the same place."""
    if wanted.ndim < 2 or wanted.shape[-1] < 2 or not wanted.size:
        return 1.0
    return float((got.argmax(-1) == wanted.argmax(-1)).mean())
