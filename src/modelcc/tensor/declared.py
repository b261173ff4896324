"""Declared graphs: inputs without contents, and values computed from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from modelcc.api import compile, export_onnx
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph as IrGraph
from modelcc.ir.graph_text import print_graph
from modelcc.ir.index import DIM, Range
from modelcc.model import Model
from modelcc.tensor.graphs import graph_of
from modelcc.tensor.spec import Input
from modelcc.tensor.tensor import Tensor


@dataclass
class Graph:
    """A model under construction: :meth:`input`, operations on tensors, :meth:`output`.

    >>> graph = Graph("double", dims={"batch": (1, 512)})
    >>> x = graph.input("x", ("batch", 4))
    >>> graph.output(x + x, "y")
    >>> net = graph.compile()                                    # doctest: +SKIP

    ``dims`` bounds named dimensions: the least and the greatest size, None for no bound.
    """

    name: str = "main"
    dims: Mapping[str, tuple[int, int | None]] = field(default_factory=dict[str, Any])
    inputs: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    outputs: dict[str, Tensor] = field(default_factory=dict[str, Tensor])

    def input(self, name: str, shape: Sequence[int | str], dtype: Any = "f32") -> Tensor:
        """An input without contents; :class:`ModelError` if the name is taken."""
        if name in self.inputs:
            raise ModelError(f"graph {self.name!r} has an input {name!r} already")
        spec = Input(tuple(shape), dtype)
        bounds = tuple((e, Range(*self.dims.get(e, (DIM.lo, DIM.hi)))) for e in spec.names)
        self.inputs[name] = Tensor.placeholder(name, spec.type, bounds)
        return self.inputs[name]

    def output(self, tensor: Tensor, name: str) -> None:
        """Make ``tensor`` an output called ``name``; :class:`ModelError` if the name is taken."""
        if name in self.outputs or name in self.inputs:
            raise ModelError(f"graph {self.name!r} has a value {name!r} already")
        self.outputs[name] = tensor

    @property
    def graph(self) -> IrGraph:
        """The current graph, at the compiler's first level."""
        if not self.outputs:
            raise ModelError(f"graph {self.name!r} has no outputs", (), "call graph.output")
        inputs = list(self.inputs.values())
        return graph_of(
            self.name, inputs, list(self.inputs), list(self.outputs.values()), list(self.outputs)
        )

    def text(self) -> str:
        """Its text, which ``modelcc.ir.graph_parser`` reads back."""
        return print_graph(self.graph)

    def export_onnx(self, path: str | Path) -> tuple[Path, ...]:
        """Writes it as ONNX; returns the files written, as :func:`modelcc.export_onnx`."""
        return export_onnx(self.graph, path)

    def compile(self, *, memory: int | str | None = None, **options: Any) -> Model:
        """The compiled model; ``options`` are those of :func:`modelcc.compile`.

        With ``memory`` (``"512MB"``) intermediate values take no more: some are recomputed rather
        than kept, as :meth:`fitted` and the model's report say.
        """
        if memory is None:
            return compile(self.graph, **options)
        return self._budget().compiled_within(self.graph, memory, **options)

    def fitted(self, memory: int | str, **options: Any) -> Any:
        """Values to recompute to fit into ``memory``, and the savings.

        It is a :class:`modelcc.tensor.memory_budget.Fitted`, whose text is a report.
        :class:`ModelError` says how much is needed if it cannot fit.
        """
        return self._budget().fitted(self.graph, memory, **options)

    @staticmethod
    def _budget() -> Any:
        """Imports the compiler, which is needed to plan memory, but not to declare a graph."""
        return import_module("modelcc.tensor.memory_budget")
