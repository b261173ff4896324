"""Graphs traced by torch.compile are converted, with the memory layouts of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import is_nested_int, statically_known_true

from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.kit.errors import Unsupported, UnsupportedForm
from modelcc.frontends.torch.dimensions import dimensions, range_of
from modelcc.frontends.torch.dtypes import dtype_of
from modelcc.frontends.torch.effects import is_token, is_value_check, value_check, without_checks
from modelcc.frontends.torch.handlers import HANDLERS
from modelcc.frontends.torch.memory import inverted, memory_order
from modelcc.frontends.torch.partial_conversion import HOST, PartialConversion
from modelcc.frontends.torch.sharing import shared_results
from modelcc.frontends.torch.sizes import index_of, symbol_of
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_states import with_states
from modelcc.ir.index import Index, Range, Sym, substitute
from modelcc.ir.types import BOOL, I64, TensorType
from modelcc.ops.shape import Transpose


@dataclass(frozen=True)
class TensorInput:
    """An input of the graph: which argument, its ``shape`` as laid out in memory, its strides.

    One that is not ``dense`` is passed as a contiguous copy.  ``carrier``: the argument is a
    number, passed as the extent of an input tensor that is never read.  A ``complex`` one has an
    additional axis of parts in ``shape``, and may be a conjugate view.  ``number``: the argument
    may be negative, and the input has its positive and negative parts.  ``host``: it is in host
    memory, as are numbers.
    """

    argument: int
    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    dense: bool = True
    carrier: bool = False
    complex: bool = False
    number: bool = False
    host: bool = True


@dataclass(frozen=True)
class TensorOutput:
    """An output of the graph: a tensor of these extents and strides, on the ``host`` or not."""

    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    dtype: torch.dtype
    host: bool = True


@dataclass(frozen=True)
class TracedInterface:
    """Mapping of arguments and results of a torch.fx graph to inputs and outputs of ours.

    ``sizes`` are the graph's dimensions: the argument and its axis, None for a number.  A result is
    an output (by position), an argument itself, a view of either, or computed from the sizes.
    ``checks`` are applied to computed values.  Outputs ``in_place`` are written to an argument's
    memory, of the same shape and strides.
    """

    inputs: tuple[TensorInput, ...]
    outputs: tuple[TensorOutput, ...]
    results: tuple[Result, ...]
    sizes: Mapping[str, tuple[int, int | None]]
    single: bool
    checks: tuple[ValueCheck, ...] = ()
    in_place: Mapping[int, int] = field(default_factory=dict[int, int])


@dataclass(frozen=True)
class Traced:
    """A graph of torch.fx, converted as far as possible.

    ``problems`` are the nodes that cannot be converted; without them ``graph`` is complete.
    """

    graph: Graph
    interface: TracedInterface
    problems: Mapping[fx.Node, Unsupported]

    def written(self, count: int) -> tuple[bool, ...]:
        """Which of the last ``count`` results are written in place by the graph itself."""
        results = self.interface.results
        return tuple(
            isinstance(result, FromOutput) and result.place in self.interface.in_place
            for result in results[len(results) - count :]
        )


@dataclass(frozen=True)
class FromOutput:
    """A result that the graph computes."""

    place: int


@dataclass(frozen=True)
class FromArgument:
    """A result that is an argument."""

    place: int


@dataclass(frozen=True)
class FromView:
    """A result in the memory of ``base``: elements of ``dtype`` from ``offset`` on, counted from
    the start of ``base``; ``conjugate`` and ``negative`` are PyTorch's lazy flags."""

    base: FromOutput | FromArgument
    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    offset: Index
    dtype: torch.dtype
    conjugate: bool = False
    negative: bool = False


@dataclass(frozen=True)
class FromSizes:
    """A result that is not a tensor: a size, or a constant."""

    value: Any


Writes = Sequence[int]
"""Arguments, by position, that a graph mutates to its last results."""

Result = FromOutput | FromArgument | FromView | FromSizes


@dataclass(frozen=True)
class ValueCheck:
    """A PyTorch operator that raises if its tensor is invalid."""

    operator: Callable[[torch.Tensor], object]
    value: FromOutput | FromArgument


def import_traced(
    module: fx.GraphModule,
    name: str = "main",
    sharing: bool = False,
    writes: Writes = (),
    device: str = HOST,
) -> Traced:
    """``module``, whose nodes carry fake tensors, converted as far as possible.

    With ``sharing``, results that are views of others, or of arguments, alias their memory.  The
    last results are ``writes``, the new values of arguments: they are computed in place if that is
    not observable.  Tensors are on the host, or on a ``device`` of this kind.
    """
    return _Import(module, name, device).traced(sharing, writes)


class _Import:
    def __init__(self, module: fx.GraphModule, name: str, device: str) -> None:
        self._nodes = [n for n in module.graph.nodes if n.op == "placeholder"]
        self._module = module
        found = dimensions([(n.name, n.meta.get("val"), ()) for n in self._nodes], _bounds_of, {})
        self._sizes: dict[str, tuple[int, int | None]] = dict(found.places)
        self._numbers: dict[int, str] = {}  # symbols of arguments, by position
        self._nothing: dict[str, Index] = {}  # sizes that are 0 to the caller, who keeps the whole
        self._carried = self._carriers(found.names, found.bounds)
        self._emitter = Emitter(GraphBuilder(name, found.bounds), found.bounds)
        self._conversion = PartialConversion(
            module, self._emitter, HANDLERS, found.names, places=(HOST, device)
        )
        self._inputs: list[TensorInput] = []
        self._names: list[str] = []  # of outputs
        self._outputs: list[TensorOutput] = []
        self._places: dict[fx.Node, FromOutput] = {}

    def _carriers(self, names: dict[str, Index], bounds: dict[str, Range]) -> dict[int, str]:
        """Numbers among the arguments that are not extents of any tensor, by position; those that
        may be negative are recorded, to be read when the graph runs.

        Those that stand for the lengths of nested tensors are passed on, and nothing else.
        """
        carried: dict[int, str] = {}
        for position, node in enumerate(self._nodes):
            number = node.meta.get("val")
            symbol = symbol_of(number)
            if symbol is None or is_nested_int(cast(Any, number).node.hint):
                continue
            known = _bounds_of(number)
            if symbol not in names and _may_be_negative(number):
                self._numbers[position] = symbol
                continue
            if symbol not in names:
                names[symbol], bounds[node.name] = Sym(node.name), known
                carried[position] = node.name
            label = names[symbol]
            if isinstance(label, Sym):
                self._sizes[label.name] = (position, None)
        return carried

    def traced(self, sharing: bool, writes: Writes) -> Traced:
        orders = [self._place(position, node) for position, node in enumerate(self._nodes)]
        for node, order in zip(self._nodes, orders, strict=True):
            self._turn(node, order)  # after all inputs are named
        self._conversion.run(self._module.graph)
        (given,) = self._module.graph.output_node().args
        single = isinstance(given, fx.Node)
        wanted = (given,) if single else cast("Sequence[object]", given)
        shared = shared_results(self._module.graph, wanted) if sharing else {}
        results = tuple(self._result(r, shared) for r in wanted)
        checks = tuple(self._checks())  # before outputs are listed, which include their values
        places = self._in_place(results, checks, writes)
        interface = TracedInterface(
            tuple(self._inputs),
            tuple(self._outputs),
            results,
            self._sizes,
            single,
            checks,
            {output: self._inputs[n].argument for output, n in places.items()},
        )
        graph = self._emitter.builder.build(self._names)
        if places:
            states = {
                graph.inputs[n]: (graph.inputs[n], graph.outputs[output])
                for output, n in places.items()
            }
            graph = with_states(graph, states)
        return Traced(graph, interface, self._conversion.reasons)

    def _place(self, position: int, node: fx.Node) -> tuple[int, ...]:
        """Makes an argument an input with its axes in memory order, which is returned."""
        fake, conversion = node.meta.get("val"), self._conversion
        conversion.values[node] = None
        if position in self._carried:
            shape = (Sym(self._carried[position]),)
            self._emitter.builder.input(node.name, TensorType(shape, BOOL))
            self._inputs.append(TensorInput(position, shape, (1,), carrier=True))
        if position in self._numbers:
            self._number(position, node)
        if not isinstance(fake, torch.Tensor) or _is_idle(node, fake):
            return ()
        try:
            return self._input(position, node, fake)
        except UnsupportedForm:
            return ()  # its users are not converted and report it

    def _number(self, position: int, node: fx.Node) -> None:
        """Makes a numeric argument an input that is read first.

        Sizes are never negative, so it is the difference of two, of which one is 0.
        """
        conversion, emitter = self._conversion, self._emitter
        value = emitter.builder.input(node.name, TensorType((2,), I64))
        above, below = emitter.read_sizes(value, node.name, Range(0, None), source=(node.name,))
        assert isinstance(above, Sym) and isinstance(below, Sym)
        conversion.names[self._numbers[position]] = above - below
        conversion.numbers.update((above.name, below.name))
        self._sizes[above.name] = (position, None)
        self._nothing[below.name] = 0
        self._inputs.append(TensorInput(position, (2,), (1,), number=True))

    def _input(self, position: int, node: fx.Node, fake: torch.Tensor) -> tuple[int, ...]:
        order = memory_order(fake)
        axes = tuple(range(len(fake.shape))) if order is None else order
        extents = tuple(index_of(size, self._conversion.names) for size in fake.shape)
        lying, dtype = tuple(extents[a] for a in axes), dtype_of(fake.dtype)
        whole = dtype.kind == "complex"
        self._conversion.values[node] = self._conversion.input(node.name, lying, dtype)
        strides, shape = _strides(extents, axes), (*lying, 2) if whole else lying
        on_host, dense = fake.device.type == HOST, order is not None
        given = TensorInput(position, shape, strides, dense, complex=whole, host=on_host)
        self._inputs.append(given)
        return axes

    def _turn(self, node: fx.Node, axes: tuple[int, ...]) -> None:
        """The value of an argument, its axes in PyTorch's order."""
        value = self._conversion.values[node]
        if not isinstance(value, str) or axes == tuple(range(len(axes))):
            return
        group, turn = self._emitter.find_group(value), Transpose(inverted(axes))
        parts = [value] if group is None else group.parts
        turned = [self._emitter.emit(turn, part, source=(node.name,)) for part in parts]
        whole = turned[0] if group is None else self._emitter.group(group.of(turned))
        self._conversion.values[node] = whole

    def _result(self, given: Any, shared: Mapping[fx.Node, fx.Node]) -> Result:
        if not isinstance(given, fx.Node):
            return FromSizes(given)
        given = without_checks(given)
        fake = given.meta.get("val")
        if given in self._nodes:
            return FromArgument(self._nodes.index(given))
        if not isinstance(fake, torch.Tensor):
            return FromSizes(self._known(fake))
        if not isinstance(self._conversion.values.get(given), str):
            return FromSizes(None)  # there are problems, so this is never run
        view = self._view(fake, shared[given], shared) if given in shared else None
        return view or self._output(given, fake)

    def _in_place(
        self, results: Sequence[Result], checks: Sequence[ValueCheck], writes: Writes
    ) -> dict[int, int]:
        """Outputs that may be computed in an input's memory, and in which: neither has other
        aliases among the results, and both have the same layout."""
        plain = results[: len(results) - len(writes)]
        used = [r.base if isinstance(r, FromView) else r for r in plain]
        used += [check.value for check in checks]
        whole = [r.base if isinstance(r, FromView) else r for r in results]
        read = [*whole, *(check.value for check in checks)]
        inputs = {
            given.argument: n
            for n, given in enumerate(self._inputs)
            if FromArgument(given.argument) not in read
        }
        found: dict[int, int] = {}
        for argument, result in zip(writes, results[len(plain) :], strict=True):
            place = inputs.get(argument)
            if place is None or not isinstance(result, FromOutput) or result in used:
                continue
            used.append(result)
            given, made = self._inputs[place], self._outputs[result.place]
            alike = (given.shape, given.strides) == (self._lying(result), made.strides)
            same = self._nodes[argument].meta["val"].dtype == made.dtype and given.host == made.host
            fixed = all(isinstance(extent, int) for extent in given.shape)
            if alike and same and fixed and given.dense and not (given.complex or given.carrier):
                found[result.place] = place
        return found

    def _lying(self, result: FromOutput) -> tuple[Index, ...]:
        """The shape of an output as laid out in memory."""
        return self._emitter.type_of(self._names[result.place]).shape

    def _checks(self) -> Iterator[ValueCheck]:
        """Value checks; none if there are problems."""
        for node in () if self._conversion.reasons else self._module.graph.nodes:
            if is_value_check(node):
                check, tensor = value_check(node)
                value = self._result(tensor, {})
                assert isinstance(value, FromOutput | FromArgument)
                yield ValueCheck(check, value)

    def _view(self, fake: Any, base: fx.Node, shared: Mapping[fx.Node, fx.Node]) -> FromView | None:
        whole: Any = base.meta["val"]
        width = whole.element_size()
        names, start = self._conversion.names, whole.storage_offset() * width
        try:
            shape = tuple(index_of(size, names) for size in fake.shape)
            strides = tuple(index_of(stride, names) for stride in fake.stride())
            offset = index_of(fake.storage_offset() - start // fake.element_size(), names)
            offset = substitute(offset, self._nothing)
        except UnsupportedForm:
            return None
        found = self._result(base, shared)
        if not isinstance(found, FromOutput | FromArgument):
            return None
        kept = fake.is_conj() != whole.is_conj(), fake.is_neg() != whole.is_neg()
        return FromView(found, shape, strides, offset, fake.dtype, *kept)

    def _output(self, given: fx.Node, fake: torch.Tensor) -> FromOutput:
        if given in self._places:
            return self._places[given]
        order = memory_order(fake) or tuple(range(len(fake.shape)))
        self._names.append(self._conversion.output(given, self._names, order))
        shape = tuple(index_of(size, self._conversion.names) for size in fake.shape)
        self._places[given] = FromOutput(len(self._outputs))
        on_host = fake.device.type == HOST
        self._outputs.append(TensorOutput(shape, _strides(shape, order), fake.dtype, on_host))
        return self._places[given]

    def _known(self, fake: object) -> object:
        if not isinstance(fake, torch.SymInt):
            return fake
        try:
            return substitute(index_of(fake, self._conversion.names), self._nothing)
        except UnsupportedForm:
            return None


def _is_idle(node: fx.Node, fake: torch.Tensor) -> bool:
    """Whether an argument is unused, and no size depends on it."""
    return is_token(node) or (not node.users and all(isinstance(size, int) for size in fake.shape))


def _strides(shape: Sequence[Index], order: Sequence[int]) -> tuple[Index, ...]:
    """Those of a dense tensor with its axes in ``order``, the outermost first.

    As in PyTorch, an axis of extent 0 counts as 1.
    """
    strides: dict[int, Index] = {}
    step: Index = 1
    for axis in reversed(order):
        strides[axis] = step
        step = step if shape[axis] == 0 else step * shape[axis]
    return tuple(strides[axis] for axis in range(len(shape)))


def _bounds_of(size: Any) -> Range:
    """PyTorch's bounds of a size that is a symbol."""
    node = size.node
    return range_of(node.shape_env.var_to_range.get(node.expr))


def _may_be_negative(size: Any) -> bool:
    return not statically_known_true(size >= 0)
