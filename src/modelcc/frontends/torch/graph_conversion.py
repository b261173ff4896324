"""A graph of torch.fx is converted to a modelcc graph, operator by operator, in one pass."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import fx
from torch._ops import HigherOrderOperator
from torch.utils._pytree import tree_leaves

from modelcc.frontends.kit.complex_values import (
    ComplexValue,
    as_parts,
    complex_type,
    of_parts,
    part_type,
)
from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.kit.errors import OUR_FAULT, Unsupported, UnsupportedForm, unsupported
from modelcc.frontends.torch.aten import Aten, Handler, Subgraph
from modelcc.frontends.torch.complex_parts import is_complex
from modelcc.frontends.torch.complex_tensors import complex_result
from modelcc.frontends.torch.conditions import assumed, condition
from modelcc.frontends.torch.dimensions import proved_range
from modelcc.frontends.torch.dtypes import DTYPES, array_of, dtype_of
from modelcc.frontends.torch.effects import asserted
from modelcc.frontends.torch.locations import location, operator_of
from modelcc.frontends.torch.real_numbers import real_number
from modelcc.frontends.torch.sizes import index_of, symbol_of
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, compare
from modelcc.ir.types import I64, DType, TensorType
from modelcc.ir.types import dtype_of as array_dtype
from modelcc.ops.arithmetic import Value
from modelcc.ops.elementwise import Identity
from modelcc.ops.shape import Transpose
from modelcc.ops.views import reshaped

CHECKS = (
    "sym_constrain_range",
    "sym_constrain_range_for_size",
    "_assert_scalar",
    "_assert_async",
    "_functional_assert_async",
    "_functional_assert_scalar",
    "_assert_tensor_metadata",
)
"""Operators without a result: facts that PyTorch has proved of sizes, or checks of values."""

ASSERTIONS = (
    *("_assert_scalar", "_assert_async"),
    *("_functional_assert_scalar", "_functional_assert_async"),
)
"""Those that raise if a value is false."""

Stored = str | tuple[str | None, ...] | None
"""The value of a node's result, or those of its results."""


@dataclass(frozen=True)
class GraphConversion:
    """Conversion of a graph under way.

    ``names`` are sizes by PyTorch's symbols, ``values`` the values of nodes.  ``problems`` are the
    operators that cannot be imported, ``failed`` all nodes that therefore have no value.
    """

    module: torch.nn.Module
    emitter: Emitter
    handlers: Mapping[str, Handler]
    names: dict[str, Index]
    values: dict[fx.Node, Stored] = field(default_factory=dict[fx.Node, Stored])
    problems: list[Unsupported] = field(default_factory=list[Unsupported])
    failed: set[fx.Node] = field(default_factory=set[fx.Node])

    def run(self, graph: fx.Graph) -> None:
        """Convert all nodes except placeholders, which have their values, and the output."""
        for node in graph.nodes:
            if node.op in ("get_attr", "call_function"):
                self.convert(node)

    def convert(self, node: fx.Node) -> None:
        """The value of ``node``; failures are added to the problems."""
        source = location(node)
        try:
            if self.failed.intersection(node.all_input_nodes):
                self.failed.add(node)
                if node.target is not operator.getitem and _name(node) not in CHECKS:
                    self._handler(node)
            else:
                self.values[node] = self.value_of(node, source)
        except UnsupportedForm as form:
            self.failed.add(node)
            self.problems.append(Unsupported("/".join(source), operator_of(node), "", str(form)))
        except ModelError as error:
            raise error.at(*source) from error
        except NotImplementedError as error:
            raise ModelError(f"{operator_of(node)} is incomplete: {error}", source) from error

    def value_of(self, node: fx.Node, source: tuple[str, ...]) -> Stored:
        """The value of ``node``; UnsupportedForm if it cannot be imported."""
        if node.op == "get_attr":
            return self._attribute(node)
        fake = node.meta.get("val")
        if node.target is operator.getitem and not isinstance(fake, torch.SymInt):
            whole, place = cast("tuple[fx.Node, int]", node.args)
            results = self.values[whole]
            assert isinstance(results, tuple)
            return results[place]
        if isinstance(fake, torch.SymInt):
            self._size(node, fake, source)
        elif _name(node) == "_local_scalar_dense":
            call = self._call(node, fake, source)
            return reshaped(Value(call, call.inputs[0])).name
        if isinstance(node.target, HigherOrderOperator):
            return self._with_graphs(node, source)
        if _name(node) in ASSERTIONS:
            self._assert(node, source)
        if not _has_tensors(fake) or _name(node) in CHECKS:
            return None  # sizes are represented by their expressions
        return self._converted(node, fake, source)

    def _assert(self, node: fx.Node, source: tuple[str, ...]) -> None:
        """Makes the run fail unless the check of ``node`` holds."""
        given, *rest = _arguments(node)
        message = str(rest[0]) if rest and isinstance(rest[0], str) else "an assertion"
        if not isinstance(given, fx.Node):
            return
        held, call = given.meta.get("val"), self._call(node, None, source)
        if isinstance(held, torch.Tensor):
            asserted(call, self._operand(given, call), message)
        elif isinstance(held, torch.SymBool):
            self.emitter.require(assumed(held, self.names), (*source, message))

    def output(self, node: fx.Node, taken: Sequence[str], order: Sequence[int] = ()) -> str:
        """The value of ``node``, its axes in ``order``, as an output distinct from those in
        ``taken``."""
        value = self.values[node]
        assert isinstance(value, str)
        builder, source = self.emitter.builder, (node.name,)
        stored = self.emitter.stored(as_parts(self.emitter, value))
        if order and self.emitter.find_group(value) is not None:
            order = (*order, len(order))
        if tuple(order) != tuple(range(len(order))):
            stored = builder.emit(Transpose(tuple(order)), stored, source=source)
        owned = builder.is_input(stored) or builder.constant_value(stored) is not None
        if stored in taken or owned:
            stored = builder.emit(Identity(), stored, source=source)
        return stored

    def _with_graphs(self, node: fx.Node, source: tuple[str, ...]) -> Stored:
        """An operator with sub-graphs as operands; PyTorch records no result types for it."""
        handler, call = self._handler(node), self._call(node, None, source)
        results = handler(call, *(self._argument(a, call) for a in _arguments(node)))
        assert not isinstance(results, Value)
        return tuple(None if r is None else r.name for r in results)

    def _subgraph(self, module: fx.GraphModule) -> Subgraph:
        def converted(emitter: Emitter, operands: Sequence[str | Index]) -> Sequence[str]:
            own = replace(self, module=module, emitter=emitter, names=dict(self.names), values={})
            return own.results(module.graph, operands)

        return converted

    def results(self, graph: fx.Graph, operands: Sequence[str | Index]) -> Sequence[str]:
        """The results of ``graph`` on ``operands``, one per placeholder."""
        placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        for node, operand in zip(placeholders, operands, strict=True):
            symbol = symbol_of(node.meta.get("val"))
            if isinstance(operand, str):
                self.values[node] = operand
            elif symbol is not None:
                self.names[symbol] = operand
        self.run(graph)
        nodes = tree_leaves(graph.output_node().args)
        found = [self.values.get(node) for node in nodes]
        names = [value for value in found if isinstance(value, str)]
        if len(names) < len(nodes):
            unsupported("there is no value for a result of its graph")
        return names

    def _found(self, node: fx.Node) -> Any:
        """The object that an attribute's name refers to."""
        found: Any = self.module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        return found

    def _attribute(self, node: fx.Node) -> Stored:
        found = self._found(node)
        if not isinstance(found, torch.Tensor):
            return None
        return self.constant(found, str(node.target))

    def constant(self, tensor: torch.Tensor, name: str) -> str:
        """The value of a constant tensor."""
        array = array_of(tensor)
        value = self.emitter.note(array, array_dtype(array), name)
        return of_parts(self.emitter, value) if tensor.is_complex() else value

    def input(self, name: str, shape: Sequence[Index], dtype: DType) -> str:
        """The value of an input; a complex one has its parts in a last axis."""
        if dtype.kind != "complex":
            return self.emitter.builder.input(name, TensorType(tuple(shape), dtype))
        type = TensorType((*shape, 2), part_type(dtype))
        return of_parts(self.emitter, self.emitter.builder.input(name, type))

    def _size(self, node: fx.Node, fake: torch.SymInt, source: tuple[str, ...]) -> None:
        """Records the size that is read from a tensor."""
        symbol = symbol_of(fake)
        if symbol is None or symbol in self.names or _name(node) != "_local_scalar_dense":
            return
        call = self._call(node, fake, source)
        element = Value(call, call.inputs[0])
        value = call.as_value(element, I64).name
        (index,) = self.emitter.read_sizes(value, symbol, proved_range(fake), (), source)
        self.names[symbol] = index

    def _converted(self, node: fx.Node, fake: object, source: tuple[str, ...]) -> Stored:
        call = self._call(node, fake, source)
        arguments = [self._argument(a, call) for a in _arguments(node)]
        if is_complex(call):
            results = complex_result(call, self._found_handler(node), arguments)
        else:
            results = self._handler(node)(call, *arguments)
        single = isinstance(results, Value)
        names = [results.name] if single else [None if r is None else r.name for r in results]
        fakes: Sequence[object] = [fake] if single else cast("Sequence[object]", fake)
        for name, expected in zip(names, fakes, strict=True):
            if name is not None:
                self._check(name, expected)
        return names[0] if single else tuple(names)

    def _handler(self, node: fx.Node) -> Handler:
        handler = self._found_handler(node)
        if handler is None:
            unsupported("modelcc has no such operator")
        return handler

    def _found_handler(self, node: fx.Node) -> Handler | None:
        name = operator_of(node).removeprefix("aten.")
        return self.handlers.get(name) or self.handlers.get(name.rpartition(".")[0])

    def _call(self, node: fx.Node, fake: object, source: tuple[str, ...]) -> Aten:
        operands = [n for n in node.all_input_nodes if isinstance(self.values.get(n), str)]
        fakes = cast("Sequence[object]", fake if isinstance(fake, tuple | list) else (fake,))
        return Aten(
            tuple(cast(str, self.values[n]) for n in operands),
            tuple(n.name for n in operands),
            source,
            self.emitter,
            operator_of(node),
            tuple(map(self.type_of, fakes)),
            tuple(fx.map_arg(a, lambda n: n.meta.get("val")) for a in _arguments(node)),
        )

    def type_of(self, fake: object) -> TensorType | None:
        """The type that PyTorch infers; an extent known only at run time has PyTorch's symbol
        name."""
        if not isinstance(fake, torch.Tensor):
            return None
        shape = tuple(self._extent(size) for size in fake.shape)
        return TensorType(shape, dtype_of(fake.dtype))

    def _extent(self, size: object) -> Index:
        symbol = symbol_of(size)
        if symbol is not None and symbol not in self.names:
            return self.emitter.fresh_dim(symbol)
        return index_of(size, self.names)

    def _argument(self, given: Any, call: Aten) -> Any:
        match given:
            case fx.Node():
                return self._operand(given, call)
            case list() | tuple():
                items = cast("Sequence[Any]", given)
                return tuple(self._argument(item, call) for item in items)
            case torch.dtype() if given in DTYPES:
                return dtype_of(given)
            case _:
                return given

    def _operand(self, node: fx.Node, call: Aten) -> Any:
        value, fake = self.values.get(node), node.meta.get("val")
        if isinstance(value, str):
            return Value(call, value)
        if isinstance(fake, torch.SymInt):
            return index_of(fake, self.names)
        if isinstance(fake, torch.SymBool):
            return condition(call, fake, self.names)
        if isinstance(fake, torch.SymFloat):
            return real_number(call, fake, self.names)
        if isinstance(fake, int | float | bool):
            return fake
        if node.op == "get_attr":
            return self._subgraph(self._found(node))
        unsupported(f"its operand {node.name!r}, which is neither a tensor nor a size")

    def _made(self, name: str) -> TensorType:
        """The type of a value; PyTorch's one if complex."""
        group = self.emitter.find_group(name)
        if not isinstance(group, ComplexValue):
            return self.emitter.type_of(name)
        real = self.emitter.type_of(group.real)
        return TensorType(real.shape, complex_type(real.dtype))

    def _check(self, name: str, fake: object) -> None:
        """Checks a result against PyTorch's inferred type; new symbols there are bound to its
        extents."""
        assert isinstance(fake, torch.Tensor)
        type = self._made(name)
        for size, extent in zip(fake.shape, type.shape, strict=False):
            symbol = symbol_of(size)
            if symbol is not None and symbol not in self.names:
                self.names[symbol] = extent
        wanted = self.type_of(fake)
        assert wanted is not None
        pairs = zip(type.shape, wanted.shape, strict=False)
        alike = all(compare(a, "==", b, self.emitter.bounds) is not False for a, b in pairs)
        if type.dtype != wanted.dtype or type.rank != wanted.rank or not alike:
            raise ModelError(f"it became {type} but PyTorch makes {wanted} of it", (), OUR_FAULT)


def _has_tensors(fake: object) -> bool:
    if isinstance(fake, tuple | list):
        return any(isinstance(f, torch.Tensor) for f in cast("Sequence[object]", fake))
    return isinstance(fake, torch.Tensor)


def _name(node: fx.Node) -> str:
    """The operator's name without namespace and overload."""
    return (*operator_of(node).split("."), "")[1]


def _arguments(node: fx.Node) -> tuple[Any, ...]:
    """All arguments in the order of the schema, including defaults."""
    schema: Any = getattr(node.target, "_schema", None)
    if schema is None:
        return (*node.args, *node.kwargs.values())
    given = list(node.args)
    for argument in schema.arguments[len(given) :]:
        given.append(node.kwargs.get(argument.name, argument.default_value))
    return tuple(given)
