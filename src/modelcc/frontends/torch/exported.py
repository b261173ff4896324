"""Conversion of programs of torch.export: parameters become constants, inputs stay inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.kit.errors import UnsupportedForm, UnsupportedModel
from modelcc.frontends.kit.naming import renamed
from modelcc.frontends.torch.call_form import call_form
from modelcc.frontends.torch.decompositions import decompositions
from modelcc.frontends.torch.dimensions import Dimensions, Dims, dimensions, range_of, with_roots
from modelcc.frontends.torch.dtypes import array_of, dtype_of
from modelcc.frontends.torch.graph_conversion import GraphConversion
from modelcc.frontends.torch.handlers import EXPORTED
from modelcc.frontends.torch.sizes import index_of, symbol_of
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.graph_states import with_states
from modelcc.ir.structure import Interface

Labels = Sequence[Sequence[str | None]]
"""Names of dimensions, by input and axis."""


def import_exported(
    program: ExportedProgram,
    dims: Dims | None = None,
    name: str = "main",
    labels: Labels = (),
) -> Graph:
    """The graph of an exported program.

    A dynamic dimension is named by ``labels``, by input and axis, else ``<input>_d<axis>`` after
    the first input that has it.  It has the bounds it was exported with; ``dims`` fixes or bounds
    it further.  Raises ``UnsupportedModel``, with all operators that cannot be imported and their
    lines in the user's Python, and :class:`ModelError` for other failures.
    """
    try:
        whole = program.run_decompositions(decompositions(EXPORTED))
    except Exception as error:  # whatever PyTorch's decompositions raise
        hint = "export it with strict=True, or see torch.export's guide"
        raise ModelError(f"PyTorch cannot decompose it: {error}", (name,), hint) from error
    return _Exported(whole, dims or {}, name, labels).graph()


_CHANGES = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)


def _changed(program: ExportedProgram, name: str) -> dict[str, str]:
    """Buffers and parameters that a call mutates: placeholders with PyTorch's names of them."""
    signature = program.graph_signature
    others = [
        str(spec.target or spec.arg.name)
        for spec in signature.output_specs
        if spec.kind not in (*_CHANGES, OutputKind.USER_OUTPUT, OutputKind.TOKEN)
    ]
    if others:
        raise ModelError(
            f"it changes {', '.join(others)}, which the caller gives", (name,),
            "return what is new instead of writing it into an input",
        )  # fmt: skip
    targets = {spec.target for spec in signature.output_specs if spec.kind in _CHANGES}
    return {s.arg.name: s.target for s in signature.input_specs if s.target in targets}


class _Exported:
    def __init__(self, program: ExportedProgram, dims: Dims, name: str, labels: Labels) -> None:
        self._program = program
        self._name = name
        inputs = program.graph_signature.input_specs
        self._tokens = {s.arg.name for s in inputs if s.kind == InputKind.TOKEN}
        self._placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
        found = self._dimensions(dims, labels)
        self._emitter = Emitter(GraphBuilder(name, found.bounds), found.bounds)
        self._conversion = GraphConversion(
            program.graph_module, self._emitter, EXPORTED, found.names
        )

    def graph(self) -> Graph:
        """The whole graph; outputs have PyTorch's names."""
        constants = self._contents()
        changed = _changed(self._program, self._name)
        for node in self._placeholders:
            constant = None if node.name in changed else constants.get(node.name)
            self._conversion.values[node] = self._input(node, constant)
        self._conversion.run(self._program.graph)
        if self._conversion.problems:
            raise UnsupportedModel(self._name, self._conversion.problems)
        return self._with_states(changed, constants)

    def _dimensions(self, dims: Dims, labels: Labels) -> Dimensions:
        """Dimensions as exported by PyTorch, named by ``labels``, fixed and bounded by ``dims``."""
        ranges = {str(s): r for s, r in self._program.range_constraints.items()}
        named = dict(zip(self._program.graph_signature.user_inputs, labels, strict=False))
        inputs = [(n.name, n.meta.get("val"), named.get(n.name, ())) for n in self._placeholders]
        found = dimensions(inputs, lambda size: range_of(ranges.get(symbol_of(size) or "")), dims)
        found = with_roots(found, inputs, lambda symbol: range_of(ranges.get(symbol)), dims)
        unknown = sorted(set(dims) - found.places.keys())
        if unknown:
            known = ", ".join(found.places) or "none"
            what = f"there is no dimension {unknown[0]!r}"
            raise ModelError(what, (self._name,), f"dimensions: {known}")
        return found

    def _contents(self) -> Mapping[str, torch.Tensor]:
        """Parameters, buffers and constants by their placeholders' names."""
        program, found = self._program, dict[str, torch.Tensor]()
        for spec in program.graph_signature.input_specs:
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                values: Any = program.state_dict
                found[spec.arg.name] = values.get(spec.target, program.constants.get(spec.target))
        return found

    def _input(self, node: fx.Node, constant: torch.Tensor | None) -> str | None:
        if constant is not None:
            return self._conversion.constant(constant, node.name)
        fake = node.meta.get("val")
        if node.name in self._tokens:
            return self._emitter.constant(np.zeros(0, np.float32))
        if not isinstance(fake, torch.Tensor):
            return None
        try:
            shape = tuple(index_of(size, self._conversion.names) for size in fake.shape)
            dtype = dtype_of(fake.dtype)
        except UnsupportedForm as form:
            place = (self._name, f"input {node.name!r}")
            raise ModelError(f"unsupported: {form}", place) from form
        return self._conversion.input(node.name, shape, dtype)

    def _with_states(
        self, changed: Mapping[str, str], constants: Mapping[str, torch.Tensor]
    ) -> Graph:
        """The graph; buffers that are mutated (``changed``, by placeholder) are states."""
        specs = self._program.graph_signature.output_specs
        order = {spec.target: n for n, spec in enumerate(specs) if spec.kind in _CHANGES}
        given = self._results()
        results = [given[n] for n, s in enumerate(specs) if s.kind == OutputKind.USER_OUTPUT]
        users = [
            n for n, spec in enumerate(specs)
            if spec.kind == OutputKind.USER_OUTPUT and isinstance(given[n], fx.Node)
        ]  # fmt: skip
        graph = self._built([*users, *(order[target] for target in changed.values())])
        form = call_form(self._program, graph.outputs[: len(users)], results)
        if form is not None:
            seen = Interface({n: n for n in graph.inputs}, {n: n for n in graph.outputs})
            graph = replace(graph, interface=replace(seen, call=form))
        if not changed:
            return graph
        after = graph.outputs[len(users) :]
        pairs = zip(changed.items(), after, strict=True)
        states = {target: (name, result) for (name, target), result in pairs}
        initial = {t: array_of(constants[n]).copy() for n, t in changed.items()}
        return with_states(graph, states, initial)

    def _results(self) -> Sequence[Any]:
        (output,) = self._program.graph.output_node().args
        return cast("Sequence[Any]", output)

    def _built(self, places: Sequence[int]) -> Graph:
        """The graph with the program's results at ``places``."""
        output = self._results()
        results: list[str] = []
        wanted: dict[str, str] = {}
        for node in (output[place] for place in places):
            if not isinstance(node, fx.Node) or not isinstance(
                self._conversion.values.get(node), str
            ):
                what = f"an output is no tensor: {node}"
                raise ModelError(what, (self._name,), "return tensors, or None, which is left out")
            results.append(self._conversion.output(node, results))
            if not self._emitter.builder.is_input(node.name) and node.name not in wanted.values():
                wanted[results[-1]] = node.name
        return renamed(self._emitter.builder.build(results), wanted)
