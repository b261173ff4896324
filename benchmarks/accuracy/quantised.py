"""Quantised models: every quantised tensor against ONNX Runtime's, from the same operands.

Two engines may round a sum between two quantisation steps to either of them, and later layers
propagate the difference.  So each tensor is computed from ONNX Runtime's values of its operands:
all of them become inputs of one model, which is compiled and run once.  Layers that quantise their
state in every time step are compared step by step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

import modelcc
from benchmarks.accuracy.peer import nudged, observed
from benchmarks.accuracy.stepping import H, P, X, can_step, stepped
from benchmarks.accuracy.subjects import Arrays

TO_INTEGERS = frozenset({"QuantizeLinear", "DynamicQuantizeLinear"})
"""Standard operators whose results are quantised; those called QLinear… and QGemm are, too."""

INSIDE = frozenset({"DynamicQuantizeLSTM", "MatMulNBits", "DynamicQuantizeMatMul", "QAttention"})
"""Operators of ONNX Runtime that quantise internally: their float results may differ by a step."""

GIVEN = ".given"

SAME_STEPS = 1e-3
"""Tolerance, in quantisation steps, between a layer run step by step and as a whole, in ONNX
Runtime itself."""


NUDGES = 4
"""Number of perturbed models (by rounding errors) that ONNX Runtime also runs, to see the
sensitivity of its results."""


@dataclass(frozen=True)
class Steps:
    """Of one run: the largest difference of a quantised tensor in steps and which tensor it is, the
    fraction of all elements that differ, and the error of outputs relative to the largest.

    ``states`` are the steps in time, of each direction, that were compared one by one.  ``whole``
    is how far their results are apart, in steps, where a layer runs freely over its sequence, and
    ``own`` how far ONNX Runtime's are then from its own of models a rounding error away.

    ``top`` is the fraction of rows of outputs, computed freely, with the same greatest element, of
    the fraction ``sure`` of rows where ONNX Runtime's rounding errors cannot make another one it;
    ``given_top`` is that of all rows, computed from ONNX Runtime's quantised tensors.
    """

    tensors: int
    worst: float
    where: str
    differing: float
    outputs: float
    states: int
    whole: float
    own: float
    top: float
    sure: float
    given_top: float


def quantised_tensors(model: onnx.ModelProto) -> tuple[str, ...]:
    """Quantised results, with the operators that quantise them, in order."""
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
    """Differences of a model from ONNX Runtime; None if it is not quantised.

    ``free`` are outputs of the compiled model on ``feeds``.
    """
    model = onnx.load(path)
    names = quantised_tensors(model)
    if not names:
        return None
    outputs = [output.name for output in model.graph.output]
    layers = [node for node in model.graph.node if can_step(model, node)]
    operands = [n for node in layers for n in (node.input[X], *node.input[H:P]) if n]
    peer = _values(model, feeds, (*names, *operands, *outputs))
    others = [observed(nudged(model, n), feeds, (*names, *outputs)) for n in range(NUDGES)]
    values = {name: peer[name] for name in names}
    forced = modelcc.compile(teacher_forced(model, values, feeds), threads=2, cache=None)
    got = forced.run({**feeds, **{name + GIVEN: value for name, value in values.items()}})
    apart = {name: _in_steps(got[name], value) for name, value in values.items()}
    whole = {node.output[0]: apart.pop(node.output[0]) for node in layers}
    apart |= {node.output[0]: _of_steps(model, node, peer) for node in layers}
    where = max(apart, key=lambda name: float(apart[name].max(initial=0)))
    every = np.concatenate([difference.reshape(-1) for difference in apart.values()])
    own = [_greatest(_in_steps(o[name], peer[name]) for name in whole) for o in others]
    tops = [same_top(free[n], peer[n], [o[n] for o in others]) for n in outputs]
    return Steps(
        len(values),
        float(every.max(initial=0)),
        where,
        float((every >= 0.5).mean()),
        max(_relative(got[name], peer[name]) for name in outputs),
        sum(math.prod(peer[node.output[0]].shape[:2]) for node in layers),
        _greatest(whole.values()),
        max(own),
        min(same for same, _ in tops),
        min(sure for _, sure in tops),
        min(same_top(got[name], peer[name], ())[0] for name in outputs),
    )


def _values(model: onnx.ModelProto, feeds: Arrays, names: Sequence[str]) -> Arrays:
    """The named values: inputs, constants, and ONNX Runtime's results."""
    known = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if t.name in names}
    given = {**known, **feeds}
    return {**given, **observed(model, feeds, [name for name in names if name not in given])}


def _of_steps(model: onnx.ModelProto, node: onnx.NodeProto, peer: Arrays) -> np.ndarray:
    """The greatest difference of a layer's states after single steps.

    ValueError if single steps differ from ONNX Runtime's run of the whole sequence.
    """
    found = stepped(model, node, peer)
    if found.from_whole > SAME_STEPS:
        raise ValueError(
            f"{node.output[0]}: single steps are {found.from_whole:g} from the sequence"
        )
    return np.array([found.worst])


def _greatest(differences: Iterable[np.ndarray]) -> float:
    return max((float(each.max(initial=0)) for each in differences), default=0.0)


def _in_steps(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Differences in steps: of integers 1, of floats 1/255 of the range."""
    difference = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
    if wanted.dtype.kind != "f":
        return difference
    if wanted.size == 1:  # a scale
        return difference / np.maximum(np.abs(wanted), 1e-30) * 255
    return difference / max(float(np.ptp(wanted)), 1e-30) * 255


def _relative(got: np.ndarray, wanted: np.ndarray) -> float:
    difference = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
    return float(difference.max(initial=0) / max(float(np.abs(wanted).max(initial=0)), 1e-30))


def same_top(
    got: np.ndarray, wanted: np.ndarray, others: Sequence[np.ndarray]
) -> tuple[float, float]:
    """The fraction of rows with the same argmax, among those where it is certain, and the fraction
    of these.

    It is unless the two largest elements of ``wanted`` are closer than twice the deviation of an
    element in one of ``others``.
    """
    if wanted.ndim < 2 or wanted.shape[-1] < 2 or not wanted.size:
        return 1.0, 1.0
    pair = np.sort(wanted, -1)[..., -2:]
    spread = np.max([np.abs(other - wanted).max(-1) for other in others] or [0 * pair[..., 0]], 0)
    sure = pair[..., 1] - pair[..., 0] > 2 * spread if others else np.ones(pair.shape[:-1], bool)
    same = got.argmax(-1) == wanted.argmax(-1)
    return float(same[sure].mean()) if sure.any() else 1.0, float(sure.mean())
