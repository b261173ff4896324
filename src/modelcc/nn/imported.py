"""Imported models as modules for further training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpy as np

from modelcc.frontends.onnx.convert import import_onnx
from modelcc.frontends.onnx.parameters import with_open_weights
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import Index, Sym
from modelcc.ir.types import Array
from modelcc.nn.functional.normalization import batch_norm as normalised
from modelcc.nn.functional.normalization import batch_statistics
from modelcc.nn.functional.values import as_tensor, detached
from modelcc.nn.module import Module
from modelcc.nn.roles import Buffer, Parameter
from modelcc.ops.conv import Conv
from modelcc.ops.norm import BatchNorm
from modelcc.passes.graph.dead_code import DeadCode
from modelcc.tensor.lazy import FREE, LITERAL, apply, callers_line, unique
from modelcc.tensor.tensor import Tensor

Statistics = Literal["fixed", "training", "folded"]
"""Batch norms use running statistics; in training those of the batch; or are folded into
weights."""

Selection = str | Sequence[str] | Callable[[str], bool] | None
"""Names of weights: patterns (``"layer4.*"``) or a predicate; None: all."""


@dataclass(frozen=True)
class ImportedModel:
    """An imported model with separate weights: ``graph`` takes them after its ``inputs``."""

    graph: Graph
    inputs: tuple[str, ...]
    weights: Mapping[str, Array]

    def values(self) -> dict[str, str]:
        """Intermediate values by name, with types: possible outputs of :meth:`trainable`."""
        return {n: str(self.graph.types[n]) for node in self.graph.nodes for n in node.outputs}

    def trainable(
        self,
        select: Selection = None,
        *,
        batch_norm: Statistics = "fixed",
        output: str | None = None,
        momentum: float = 0.1,
    ) -> GraphModule:
        """A module whose parameters are the float initializers, under their names.

        Those not in ``select`` are frozen.  With ``output`` it ends at that value, to be continued
        by other layers.  ``batch_norm``: norms keep their statistics, follow those of the batches
        in training by ``momentum``, or are folded into the weights of preceding convolutions.
        """
        graph, weights = self.graph, dict(self.weights)
        if output is not None:
            if output not in self.values():
                raise ModelError(f"{graph.name!r} has no value {output!r}", callers_line(),
                                 "values() lists them")  # fmt: skip
            graph = DeadCode()(replace(graph, outputs=(output,), interface=None))
        if batch_norm == "folded":
            graph, weights = folded_norms(graph, weights)
        read = {name for node in graph.nodes for name in node.inputs} | set(graph.outputs)
        own = {name: array for name, array in weights.items() if name in read}
        return GraphModule(GraphSource(graph, self.inputs), own, select, batch_norm, momentum)


def load_onnx(model: Any, dims: Mapping[str, int] | None = None) -> ImportedModel:
    """An ONNX model (a path, bytes, a ``ModelProto``) for further training.

    ``dims`` fixes named dimensions.  :class:`ModelError` if it has inputs that are not tensors.
    """
    opened = with_open_weights(model)
    graph = import_onnx(opened.model, dict(dims or {}))
    if graph.interface is not None:
        raise ModelError(f"{graph.name!r} takes or gives what is no tensor", callers_line())
    inputs = tuple(name for name in graph.inputs if name not in opened.weights)
    return ImportedModel(graph, inputs, opened.weights)


@dataclass(frozen=True, eq=False)
class GraphSource:
    """A graph and those of its inputs that are not weights; compares by identity."""

    graph: Graph
    inputs: tuple[str, ...]


class GraphModule(Module):
    """An imported graph; its weights are attributes under their own names."""

    def __init__(
        self,
        source: GraphSource,
        weights: Mapping[str, Array],
        select: Selection,
        batch_norm: Statistics,
        momentum: float,
    ) -> None:
        """``weights`` are those that the graph reads."""
        self._source, self.batch_norm, self.momentum = source, batch_norm, momentum
        norms = [node for node in source.graph.nodes if isinstance(node.op, BatchNorm)]
        statistics = {name for node in norms for name in node.inputs[3:]}
        self._names = tuple(weights)
        chosen = {name for name in weights if _is_selected(select, name)}
        if not chosen:
            raise ModelError(f"{select!r} selects none of {', '.join(weights)}", callers_line())
        for name, array in weights.items():
            if hasattr(Module, name) or name in self.__dict__:
                raise ModelError(f"a weight cannot be called {name!r}", callers_line())
            buffer = name in statistics
            setattr(self, name, Buffer(array) if buffer else Parameter(array, name in chosen))

    def forward(self, *args: Any) -> Any:
        """The outputs for the inputs in order; a single one not in a tuple."""
        source = self._source
        if len(args) != len(source.inputs):
            raise ModelError(f"{source.graph.name!r} takes {', '.join(source.inputs)}",
                             callers_line())  # fmt: skip
        given = {name: as_tensor(x) for name, x in zip(source.inputs, args, strict=True)}
        graph = _with_shapes(source.graph, given)
        values: dict[str, Any] = {"": None, **given}
        values |= {name: self.__dict__[name] for name in self._names}
        for name, constant in graph.constants.items():
            type = unique(constant.type)
            values[name] = Tensor.made(LITERAL, (), type, FREE, constant.data)
        for node in graph.nodes:
            results = self._results(node, [values[name] for name in node.inputs])
            values.update(zip(node.outputs, results, strict=True))
        outputs = tuple(values[name] for name in graph.outputs)
        (only, *more) = outputs
        return outputs if more else only

    def _results(self, node: Node, operands: Sequence[Any]) -> tuple[Tensor, ...]:
        follows = isinstance(node.op, BatchNorm) and self.batch_norm == "training"
        if follows and self.training:
            return (self._normalised(node, operands[0], *operands[1:3]),)
        try:
            return apply(Tensor, node.op, operands)
        except ModelError as error:
            raise error.at(*node.source) from error

    def _normalised(self, node: Node, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """With the statistics of the batch, which update the running ones."""
        assert isinstance(node.op, BatchNorm)
        mean, var = batch_statistics(x)
        size = 1
        for axis, extent in enumerate(x.shape):
            size = size * extent if axis != 1 else size
        unbiased = var * (size / (size - 1)) if isinstance(size, int) and size > 1 else var
        for name, found in zip(node.inputs[3:], (mean, unbiased), strict=True):
            old = self.__dict__[name]
            self.__dict__[name] = old * (1 - self.momentum) + detached(found) * self.momentum
        return normalised(x, mean, var, weight, bias, eps=node.op.epsilon)


def _is_selected(select: Selection, name: str) -> bool:
    if select is None:
        return True
    if callable(select):
        return select(name)
    patterns = (select,) if isinstance(select, str) else select
    return any(fnmatchcase(name, pattern) or name.startswith(f"{pattern}.") for pattern in patterns)


def _with_shapes(graph: Graph, given: Mapping[str, Tensor]) -> Graph:
    """``graph`` with named dimensions replaced by the extents of its inputs."""
    sizes: dict[str, Index] = {}
    for name, x in given.items():
        type = graph.types[name]
        known = x.ndim == type.rank and x.dtype == type.dtype
        for wanted, extent in zip(type.shape, x.shape, strict=False):
            if isinstance(wanted, Sym):
                known &= sizes.setdefault(wanted.name, extent) == extent
            else:
                known &= not isinstance(wanted, int) or wanted == extent
        if not known:
            raise ModelError(f"input {name!r} must be {type}, not {x.type}", callers_line())
    return graph.substitute(sizes)


def folded_norms(graph: Graph, weights: Mapping[str, Array]) -> tuple[Graph, dict[str, Array]]:
    """The graph with norms folded into convolutions that are read by them alone, and the new
    weights.

    A new bias is named as the norm's.  Other norms stay.
    """
    found = dict(weights)
    readers = Counter(n for node in graph.nodes for n in node.inputs) + Counter(graph.outputs)
    makers = graph.producers()
    gone: dict[str, Node] = {}
    for node in graph.nodes:
        conv = makers.get(node.inputs[0]) if isinstance(node.op, BatchNorm) else None
        if conv is None or not isinstance(conv.op, Conv) or readers[conv.outputs[0]] > 1:
            continue
        kernel, *bias = conv.inputs[1:]
        own = (kernel, *filter(None, bias), *node.inputs[1:])
        if any(name not in found or readers[name] > 1 for name in own):
            continue
        gone[conv.outputs[0]] = _folded(conv, node, found)
    made = {node.outputs[0] for node in gone.values()}
    nodes = tuple(
        gone.get(node.outputs[0], node)
        for node in graph.nodes
        if not (isinstance(node.op, BatchNorm) and node.outputs[0] in made)
    )
    return replace(graph, nodes=nodes), found


def _folded(conv: Node, norm: Node, weights: dict[str, Array]) -> Node:
    """The convolution with the norm folded in; ``weights`` are updated."""
    assert isinstance(norm.op, BatchNorm)
    kernel, *bias = conv.inputs[1:]
    scale, shift, mean, var = (weights[name] for name in norm.inputs[1:])
    factor = scale / np.sqrt(var + np.asarray(norm.op.epsilon, var.dtype))
    old = weights[bias[0]] if bias and bias[0] else np.zeros_like(mean)
    weights[kernel] = weights[kernel] * factor.reshape(-1, *(1,) * (weights[kernel].ndim - 1))
    weights[norm.inputs[2]] = (old - mean) * factor + shift
    inputs = (conv.inputs[0], kernel, norm.inputs[2])
    return replace(conv, inputs=inputs, outputs=norm.outputs, source=(*conv.source, *norm.source))
