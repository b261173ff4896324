"""Every operator with an extent of 0, given or under a name: compiled, or refused with a reason."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from onnx import AttributeProto, ModelProto
from onnx.backend.test.case.node import collect_testcases

from modelcc.driver import NOWHERE, StageError, target_of
from modelcc.emission import emit
from modelcc.ir.op import ModelError
from tests.machines import chosen_options

OPTIONS = chosen_options(threads=1)
_BODIES = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


def _models() -> Mapping[str, tuple[ModelProto, list[Any]]]:
    """The first of ONNX's own test models of each operator that takes nothing but arrays."""
    found: dict[str, tuple[ModelProto, list[Any]]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases("")
    for case in cases:
        nodes = case.model.graph.node
        inputs = list(case.data_sets[0][0])
        bodies = any(a.type in _BODIES for node in nodes for a in node.attribute)
        tensors = all(i.type.HasField("tensor_type") for i in case.model.graph.input)
        if len(nodes) == 1 and not bodies and tensors:
            found.setdefault(nodes[0].op_type, (case.model, inputs))
    return MappingProxyType(found)


MODELS = _models()


def _emptied(model: ModelProto, inputs: list[Any], name: str) -> Iterator[ModelProto]:
    """The model with each extent of each input 0 (or called ``name``) in turn."""
    for which in range(len(inputs)):
        for axis in range(len(model.graph.input[which].type.tensor_type.shape.dim)):
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
            yield changed


@pytest.mark.parametrize("op", MODELS)
@pytest.mark.parametrize("name", ["", "n"])
def test_an_extent_of_0_is_no_internal_error(op: str, name: str) -> None:
    for model in _emptied(*MODELS[op], name):
        try:
            emit(model, None, "llvm", target_of(OPTIONS), OPTIONS, NOWHERE)
        except ModelError as error:
            assert not isinstance(error, StageError)
