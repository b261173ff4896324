"""Inputs and outputs of a model: names, types and named dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from modelcc.frontends.tflite.module import TfliteModel, TfliteTensor
from modelcc.ir.errors import ModelError
from modelcc.ir.index import DIM, Index, Range, Sym
from modelcc.ir.naming import Names
from modelcc.ir.types import STRING, DType, TensorType

Dims = Mapping[str, int | Range]

BATCH = "batch"
"""The name of a dynamic axis 0: converters leave it unknown for the batch, of all inputs."""


@dataclass(frozen=True)
class ModelEnds:
    """Names and types of the inputs in order, names of the outputs, and the named dimensions."""

    inputs: Mapping[str, TensorType]
    outputs: tuple[str, ...]
    bounds: Mapping[str, Range]


def model_ends(model: TfliteModel, dims: Dims) -> ModelEnds:
    """Of the main subgraph, named by its signature, if it has exactly one.

    A dynamic extent is named after its input and axis, except that of axis 0, ``batch``; ``dims``
    fixes or bounds names.
    """
    main = model.subgraphs[0]
    signatures = [s for s in model.signatures if s.subgraph == 0]
    labels = signatures[0] if len(signatures) == 1 else None
    names = _unique(main.tensors, main.inputs, labels.inputs if labels else {}, "input")
    results = _unique(main.tensors, main.outputs, labels.outputs if labels else {}, "output")
    known: dict[str, Range] = {}
    inputs: dict[str, TensorType] = {}
    for name, number in zip(names, main.inputs, strict=True):
        tensor = main.tensors[number]
        extents = tuple(_extents(name, tensor, dims, known))
        inputs[name] = TensorType(extents, _dtype(tensor, model.name))
    unknown = [name for name in dims if name not in known]
    if unknown:
        hint = f"dimensions: {', '.join(known) or 'none'}"
        raise ModelError(f"the model has no dimension {unknown[0]!r}", (model.name,), hint)
    open_ = {name: bound for name, bound in known.items() if not isinstance(dims.get(name), int)}
    return ModelEnds(inputs, results, open_)


def _unique(
    tensors: Sequence[TfliteTensor], numbers: Sequence[int], labels: Mapping[int, str], stem: str
) -> tuple[str, ...]:
    """A name for each tensor; unnamed ones are numbered."""
    names = Names()
    given = [labels.get(number) or tensors[number].name for number in numbers]
    return tuple(names.fresh(name or f"{stem}{n}") for n, name in enumerate(given))


def _extents(
    name: str, tensor: TfliteTensor, dims: Dims, known: dict[str, Range]
) -> Iterator[Index]:
    for axis, size in enumerate(tensor.shape or ()):
        if size != -1:
            yield size
            continue
        label = BATCH if axis == 0 else f"{name}_d{axis}"
        given = dims.get(label)
        known[label] = given if isinstance(given, Range) else DIM
        yield given if isinstance(given, int) else Sym(label)


def _dtype(tensor: TfliteTensor, model: str) -> DType:
    if tensor.dtype is None or tensor.dtype == STRING:
        message = f"input {tensor.name!r} is of {tensor.type}, which modelcc does not take"
        raise ModelError(message, (model,))
    return tensor.dtype
