"""The interface that ONNX defines for runtimes (``onnx.backend.base``), through compiled code.

>>> import onnx.backend.test
>>> import modelcc.onnx_backend as backend
>>> tests = onnx.backend.test.BackendTest(backend, __name__)       # doctest: +SKIP
>>> globals().update(tests.test_cases)                             # doctest: +SKIP

``prepare`` compiles a model once; what it returns runs native code, with no other way to compute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
from onnx import ModelProto, NodeProto, TypeProto, defs, helper
from onnx.backend.base import Backend, BackendRep

from modelcc.api import Model
from modelcc.api import compile as compile_native
from modelcc.artifact.json_values import is_list
from modelcc.frontends.kit.errors import UnsupportedModel
from modelcc.frontends.onnx import import_onnx
from modelcc.frontends.onnx.tensors import DTYPES
from modelcc.ir.errors import ModelError
from modelcc.ir.op import is_items
from modelcc.ir.types import Array, NumpyType, dtype_of

Values = Mapping[str, Array]
Inputs = Mapping[str, object] | Iterable[object]


class CompiledModel(BackendRep):
    """A model in native code."""

    def __init__(self, model: Model, names: Sequence[str]) -> None:
        """``names`` are the inputs without a default, in the order of the ONNX model."""
        self._model = model
        self._names = tuple(names)

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the outputs are called."""
        return tuple(o.name for o in self._model.outputs)

    def run(self, inputs: Inputs, **kwargs: object) -> tuple[object, ...]:
        """Outputs in the model's order, for inputs in order, by name, or a single array."""
        return _called(self._model, _feeds(self._names, inputs))


class SpecialisedModel(BackendRep):
    """A model compiled once for every set of values of its small inputs (shapes, axes, counts),
    and for every structure of its sequences and optional values."""

    def __init__(self, proto: ModelProto, names: Sequence[str], options: Mapping[str, Any]) -> None:
        """Nothing is compiled before the values are known."""
        self._proto = proto
        self._names = tuple(names)
        self._options = dict(options)
        self._compiled: dict[tuple[object, ...], tuple[Model, Values]] = {}

    def run(self, inputs: Inputs, **kwargs: object) -> tuple[object, ...]:
        """As for a compiled model; values not seen before are compiled for."""
        feeds = _feeds(self._names, inputs)
        key = tuple(_identity(name, value) for name, value in feeds.items())
        if key not in self._compiled:
            self._compiled[key] = _specialised(self._proto, feeds, dict(self._options))
        model, fixed = self._compiled[key]
        return _called(model, {n: v for n, v in feeds.items() if n not in fixed})


class ModelccBackend(Backend):
    """Compiles ONNX models for the processor that Python runs on."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: object) -> bool:
        """Whether the model may be tried; ``prepare`` tells why one cannot be compiled."""
        return cls.supports_device(device)

    @classmethod
    def prepare(
        cls, model: ModelProto, device: str = "CPU", *, specialise: bool = False, **kwargs: Any
    ) -> BackendRep:
        """The model in native code; :class:`ModelError` if it cannot be compiled.

        With ``specialise``, a model that can only be compiled when values of small inputs are
        known is compiled at each call with new ones; this is never done unasked.  A model with
        sequences, optional values or tensors of unknown rank is compiled when it is called, once
        for each number of elements and so on.  Other keywords are those of
        :func:`modelcc.compile`; the default is one thread.
        """
        if not cls.supports_device(device):
            raise ModelError(f"there is no device {device!r}", (), "use CPU")
        names = input_names(model)
        options: dict[str, Any] = {"threads": 1, **kwargs}
        if not has_open_structure(model):
            try:
                return CompiledModel(compile_native(model, **options), names)
            except UnsupportedModel:
                if not specialise:
                    raise
        return SpecialisedModel(model, names, options)

    @classmethod
    def run_model(
        cls, model: ModelProto, inputs: Inputs, device: str = "CPU", **kwargs: Any
    ) -> tuple[object, ...]:
        """Outputs of the model for these inputs."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Inputs,
        device: str = "CPU",
        outputs_info: Sequence[tuple[NumpyType, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[object, ...]:
        """Outputs of one operator; ``opset_version`` is that of its domain (default: newest)."""
        version = kwargs.pop("opset_version", defs.onnx_opset_version())
        arrays = [np.asarray(value) for value in inputs]
        model = _model_of(node, arrays, version)
        return cls.prepare(model, device, **kwargs).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether ``device`` is a processor."""
        return device.split(":")[0] == "CPU"


def input_names(model: ModelProto) -> tuple[str, ...]:
    """Names of the inputs that have no default."""
    stored = {t.name for t in model.graph.initializer}
    stored |= {t.values.name for t in model.graph.sparse_initializer}
    return tuple(i.name for i in model.graph.input if i.name not in stored)


def _is_named(inputs: Inputs) -> TypeGuard[Mapping[str, object]]:
    return isinstance(inputs, Mapping)


def _feeds(names: Sequence[str], inputs: Inputs) -> dict[str, object]:
    if _is_named(inputs):
        return dict(inputs)
    values: list[object] = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
    if len(values) > len(names):
        raise ModelError(f"{len(values)} inputs for a model of {len(names)}: {', '.join(names)}")
    return dict(zip(names, values, strict=False))


def _called(model: Model, feeds: Mapping[str, object]) -> tuple[object, ...]:
    results: object = model(dict(feeds))
    return results if is_items(results) else (results,)


def _identity(name: str, value: object) -> tuple[object, ...]:
    if value is None:
        return (name, True)
    if is_list(value):
        return (name, False, *(_identity(name, item) for item in value))
    if not _is_short(value):
        return (name,)
    return (name, value.dtype.name, value.shape, value.tobytes())


def _is_short(value: object) -> TypeGuard[Array]:
    return isinstance(value, np.ndarray) and value.ndim < 2 and not value.dtype.hasobject


def _specialised(proto: ModelProto, feeds: Mapping[str, object], options: dict[str, Any]) -> (
    tuple[Model, Values]
):  # fmt: skip
    """Compiled with as few inputs fixed as will do: none, counts, then numbers too."""
    dims = {**options.pop("dims", {}), **structure_of(proto, feeds)}
    short = {name: value for name, value in feeds.items() if _is_short(value)}
    counts = {name: value for name, value in short.items() if value.dtype.kind in "iub"}
    for fixed in (*([{}] if dims else []), counts):
        try:
            return compile_native(import_onnx(proto, dims, fixed), **options), fixed
        except ModelError:  # an extent that is told by a value contradicts a name for it
            continue
    return compile_native(import_onnx(proto, dims, short), **options), short


def has_open_structure(model: ModelProto) -> bool:
    """Whether what an input consists of is only known from an argument."""
    return any(_is_open(value.type) for value in model.graph.input)


def _is_open(type: TypeProto) -> bool:
    kind = type.WhichOneof("value")
    if kind == "map_type":
        return False
    return kind != "tensor_type" or not type.tensor_type.HasField("shape")


def structure_of(model: ModelProto, feeds: Mapping[str, object]) -> dict[str, int]:
    """The dimensions to fix so that ``feeds`` can be arguments: lengths, presence and ranks."""
    sizes: dict[str, int] = {}
    for value in model.graph.input:
        if value.name in feeds:
            sizes |= _sizes(value.type, value.name, feeds[value.name])
    return sizes


def _sizes(type: TypeProto, name: str, value: object) -> dict[str, int]:
    match type.WhichOneof("value"):
        case "optional_type" if value is None:
            return {f"{name}_present": 0}
        case "optional_type":
            return {f"{name}_present": 1} | _sizes(type.optional_type.elem_type, name, value)
        case "sequence_type" if is_list(value):
            sizes = {f"{name}_length": len(value)}
            for i, item in enumerate(value):
                sizes |= _sizes(type.sequence_type.elem_type, f"{name}[{i}]", item)
            return sizes
        case _:
            return {f"{name}_rank": np.ndim(np.asarray(value))} if _is_open(type) else {}


def _model_of(node: NodeProto, arrays: Sequence[Array], version: int) -> ModelProto:
    """A model of one node with these inputs; the types of its outputs are left open."""
    codes = {dtype: code for code, dtype in DTYPES.items()}
    present = [name for name in node.input if name]
    inputs = [
        helper.make_tensor_value_info(name, codes[dtype_of(array)], array.shape)
        for name, array in zip(present, arrays, strict=True)
    ]
    outputs = [helper.make_value_info(name, TypeProto()) for name in node.output if name]
    graph = helper.make_graph([node], node.op_type, inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])


is_compatible = ModelccBackend.is_compatible
prepare = ModelccBackend.prepare
run_model = ModelccBackend.run_model
run_node = ModelccBackend.run_node
supports_device = ModelccBackend.supports_device
