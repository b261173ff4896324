"""Every operator with an extent of 0, given or under a name: onnxruntime's results, or a reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from types import MappingProxyType
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, TensorProto
from onnx.numpy_helper import to_array

import modelcc
from modelcc.driver import NOWHERE, StageError, target_of
from modelcc.emit.emission import emit
from modelcc.ir.errors import ModelError
from tests.frontends.onnx.onnx_models import run_onnxruntime
from tests.frontends.onnx.standard_cases import MODULES, cases_of
from tests.machines import chosen_options
from tests.shares import Turn

OPTIONS = chosen_options(threads=1)
_BODIES = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


def _models(module: str) -> Mapping[str, tuple[ModelProto, list[Any]]]:
    """The first of ONNX's own test models of each operator that takes nothing but arrays."""
    found: dict[str, tuple[ModelProto, list[Any]]] = {}
    for case in cases_of(module):
        assert case.model is not None and case.data_sets
        nodes = case.model.graph.node
        inputs = list(case.data_sets[0][0])
        bodies = any(a.type in _BODIES for node in nodes for a in node.attribute)
        tensors = all(i.type.HasField("tensor_type") for i in case.model.graph.input)
        if len(nodes) == 1 and not bodies and tensors:
            found.setdefault(nodes[0].op_type, (case.model, inputs))
    assert found, f"no case of {module} is a single operator of arrays"
    return found


_STRUCTURED = {"if_", "loop", "scan", "sequence_map", "sequenceinsert"}
OPERATORS = [module for module in MODULES if module not in _STRUCTURED]


def _emptied(
    model: ModelProto, inputs: list[Any], name: str
) -> Iterator[tuple[ModelProto, dict[str, Any]]]:
    """The model with each extent of each input 0 (or called ``name``) in turn, and such inputs."""
    for which in range(len(inputs)):
        for axis in range(len(model.graph.input[which].type.tensor_type.shape.dim)):
            arrays = [to_array(x) if isinstance(x, TensorProto) else np.asarray(x) for x in inputs]
            arrays[which] = np.take(arrays[which], [], axis=axis)
            changed = ModelProto()
            changed.CopyFrom(model)
            extent = changed.graph.input[which].type.tensor_type.shape.dim[axis]
            extent.Clear()
            if name:
                extent.dim_param = name
            else:
                extent.dim_value = 0
            for output in changed.graph.output:
                output.type.tensor_type.ClearField("shape")
            names = (i.name for i in changed.graph.input)
            yield changed, dict(zip(names, arrays, strict=True))


@pytest.mark.parametrize("module", OPERATORS)
def test_an_extent_of_0_is_no_internal_error(module: str, turn: Turn) -> None:
    for name, (op, case) in product(("", "n"), _models(module).items()):
        cases = [model for model, _ in _emptied(*case, name)]
        for model in turn.of(cases, 6, crc32((op + name).encode())):
            _emits_or_refuses(model)


def _emits_or_refuses(model: ModelProto) -> None:
    try:
        emit(model, None, "llvm", target_of(OPTIONS), OPTIONS, NOWHERE)
    except ModelError as error:
        assert not isinstance(error, StageError)


_ABORTS = ("GRU", "LSTM", "RNN")
"""onnxruntime ends the process where these have no steps."""
_OTHERS = MappingProxyType(
    {
        "ConvInteger": "onnxruntime leaves sums of nothing as the memory was",
        "MatMulInteger": "onnxruntime leaves sums of nothing as the memory was",
        "QLinearMatMul": "onnxruntime leaves sums of nothing as the memory was",
        "ReduceMean": "a mean of nothing is NaN, as in NumPy; onnxruntime's is 0 for given axes",
        "Squeeze": "no axes are none, as in the standard's evaluator; onnxruntime takes all",
    }
)
_REFUSED = MappingProxyType(
    {
        "DFT": "a transform of no numbers has no meaning",
        "NonMaxSuppression": "a limit that is given is a number",
    }
)
"""What onnxruntime runs with an extent of 0."""


@pytest.mark.parametrize("module", OPERATORS)
def test_results_without_elements_are_those_of_onnxruntime(module: str, turn: Turn) -> None:
    for op, model in _models(module).items():
        if op not in _ABORTS:
            _agrees(op, model, turn)


def _agrees(op: str, full: tuple[ModelProto, list[Any]], turn: Turn) -> None:
    cases = [(name, *case) for name in ("", "n") for case in _emptied(*full, name)]
    for name, model, feeds in turn.of(cases, max(1, len(cases)), crc32(op.encode())):
        try:
            expected = run_onnxruntime(model, feeds)
        except Exception as error:
            assert "onnxruntime" in type(error).__module__
            continue
        try:
            results = modelcc.compile(model, options=OPTIONS, cache=None).run(feeds)
        except modelcc.Error as error:
            assert op in _REFUSED or (name and isinstance(error, ModelError)), error
            continue
        for one, other in zip(results.values(), expected.values(), strict=True):
            if op not in _OTHERS:
                assert one.shape == other.shape
                if one.dtype.kind in "biuf":
                    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
