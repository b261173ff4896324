"""Programs of torch.export become graphs: parameters are constants, inputs are inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.kit.errors import UnsupportedModel
from modelcc.frontends.kit.naming import renamed
from modelcc.frontends.torch.decompositions import decompositions
from modelcc.frontends.torch.dtypes import array_of, dtype_of
from modelcc.frontends.torch.graph_conversion import GraphConversion
from modelcc.frontends.torch.handlers import HANDLERS
from modelcc.frontends.torch.sizes import index_of, symbol_of
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.index import Index, Range, Sym
from modelcc.ir.types import TensorType
from modelcc.ir.types import dtype_of as array_dtype
from modelcc.ops.elementwise import Identity

Dims = Mapping[str, int | Range]


def import_exported(
    program: ExportedProgram, dims: Dims | None = None, name: str = "main"
) -> Graph:
    """The graph of an exported program.

    A dimension that is not fixed is called as the first input's that has it,
    ``<input>_d<position>``, with the bounds it was exported with; ``dims`` fixes or bounds them
    further.  Raises ``UnsupportedModel``, with all operators that cannot be imported and their
    lines in the user's Python, and :class:`ModelError` for what else stands in the way.
    """
    whole = program.run_decompositions(decompositions(HANDLERS))
    return _Exported(whole, dims or {}, name).graph()


class _Exported:
    def __init__(self, program: ExportedProgram, dims: Dims, name: str) -> None:
        self._program = program
        self._name = name
        self._placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
        self._user = set(program.graph_signature.user_inputs)
        names, bounds = self._dimensions(dims)
        self._emitter = Emitter(GraphBuilder(name, bounds), bounds)
        self._conversion = GraphConversion(program.graph_module, self._emitter, HANDLERS, names)

    def graph(self) -> Graph:
        """The whole graph; outputs have the names that PyTorch gives them."""
        constants = self._contents()
        for node in self._placeholders:
            self._conversion.values[node] = self._input(node, constants)
        self._conversion.run(self._program.graph)
        if self._conversion.problems:
            raise UnsupportedModel(self._name, self._conversion.problems)
        return self._built()

    def _dimensions(self, dims: Dims) -> tuple[dict[str, Index], dict[str, Range]]:
        """What PyTorch's symbols stand for, and the bounds of those that are dimensions."""
        names: dict[str, Index] = {}
        bounds: dict[str, Range] = {}
        known = {str(s): r for s, r in self._program.range_constraints.items()}
        for node in self._placeholders:
            fake = node.meta.get("val")
            sizes = fake.shape if isinstance(fake, torch.Tensor) else ()
            for axis, size in enumerate(sizes):
                symbol = symbol_of(size)
                if symbol is None or symbol in names:
                    continue
                label = f"{node.name}_d{axis}"
                names[symbol], bound = _dimension(label, _range(known.get(symbol)), dims)
                if bound is not None:
                    bounds[label] = bound
        unknown = sorted(set(dims) - {f"{n.name}_d{a}" for n in self._placeholders
                                      for a in range(16)})  # fmt: skip
        if unknown:
            raise ModelError(f"there is no dimension {unknown[0]!r}", (self._name,))
        return names, bounds

    def _contents(self) -> Mapping[str, torch.Tensor]:
        """Parameters, buffers and constants by their placeholders' names."""
        program, found = self._program, dict[str, torch.Tensor]()
        for spec in program.graph_signature.input_specs:
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                values: Any = program.state_dict
                found[spec.arg.name] = values.get(spec.target, program.constants.get(spec.target))
        return found

    def _input(self, node: fx.Node, constants: Mapping[str, torch.Tensor]) -> str | None:
        if node.name in constants:
            array = array_of(constants[node.name])
            return self._emitter.note(array, array_dtype(array), node.name)
        fake = node.meta.get("val")
        if not isinstance(fake, torch.Tensor):
            return None
        shape = tuple(index_of(size, self._conversion.names) for size in fake.shape)
        return self._emitter.builder.input(node.name, TensorType(shape, dtype_of(fake.dtype)))

    def _built(self) -> Graph:
        specs = self._program.graph_signature.output_specs
        changed = [s.target for s in specs if s.kind != OutputKind.USER_OUTPUT]
        if changed:
            raise ModelError(
                f"it changes {', '.join(map(str, changed))}", (self._name,),
                "compile it in evaluation mode (module.eval()), or pass what changes as an input "
                "and return it",
            )  # fmt: skip
        (output,) = self._program.graph.output_node().args
        results: list[str] = []
        wanted: dict[str, str] = {}
        for node in output:
            if not isinstance(node, fx.Node) or not isinstance(
                self._conversion.values.get(node), str
            ):
                raise ModelError("an output is no tensor", (self._name,), "return tensors only")
            results.append(self._output(node, results, wanted))
        return renamed(self._emitter.builder.build(results), wanted)

    def _output(self, node: fx.Node, taken: list[str], wanted: dict[str, str]) -> str:
        value = self._conversion.values[node]
        assert isinstance(value, str)
        stored = self._emitter.stored(value)
        builder = self._emitter.builder
        owned = builder.is_input(stored) or builder.constant_value(stored) is not None
        if stored in taken or owned:
            stored = builder.emit(Identity(), stored, source=(node.name,))
        if not builder.is_input(node.name) and node.name not in wanted.values():
            wanted[stored] = node.name
        return stored


def _range(known: Any) -> Range:
    """Bounds as PyTorch has them; beyond its largest integer there is none."""
    if known is None:
        return Range(0, None)
    low, high = known.lower, known.upper
    return Range(max(0, int(low)), int(high) if high.is_finite and int(high) < 2**31 else None)


def _dimension(label: str, exported: Range, dims: Dims) -> tuple[Index, Range | None]:
    given = dims.get(label, exported)
    if isinstance(given, int):
        return given, None
    return Sym(label), given
