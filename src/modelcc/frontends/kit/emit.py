"""Emission of graph nodes that keeps known contents (constants, shapes) out of the graph.

A value whose contents are known is only *noted*; it becomes a constant, or an ``Indices`` node if
symbolic, when a node of the graph uses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.groups import GroupValue, MapValue, refuse_group
from modelcc.frontends.kit.ratio import Ratio, as_ratio
from modelcc.frontends.kit.shapes import (
    NAMED_LIMIT,
    Contents,
    Facts,
    evaluate,
    is_data,
    is_symbolic,
)
from modelcc.frontends.kit.stretching import common_shape
from modelcc.ir.builder import GraphBuilder, as_array, infer_types
from modelcc.ir.condition import Constraint
from modelcc.ir.index import Bounds, Expr, Index, Range, Sym, compare, product, symbols
from modelcc.ir.op import Op
from modelcc.ir.structure import HostStep, Setting
from modelcc.ir.types import I64, Array, DType, TensorType, dtype_of
from modelcc.ops.arithmetic import Elementwise
from modelcc.ops.broadcast import Expand
from modelcc.ops.elementwise import Cast, Div, Equal
from modelcc.ops.matmul import MatMul
from modelcc.ops.quant import DequantizeLinear
from modelcc.ops.runtime_size import ReadSize
from modelcc.ops.shape import Indices

ANYTHING = Range()
"""No bounds on a size."""

PREFIX = "$"
"""Prefix of the names of noted values and groups; they never reach the graph."""


@dataclass(frozen=True)
class Noted:
    """A value with known contents; ``name`` is the name for the constant."""

    contents: Contents
    dtype: DType
    name: str | None = None

    @property
    def type(self) -> TensorType:
        return TensorType(tuple(self.contents.shape), self.dtype)


class Emitter:
    """A :class:`~modelcc.ir.op.Builder` with constant folding; ``bounds`` are those of the dims."""

    def __init__(
        self,
        builder: GraphBuilder,
        bounds: Bounds,
        dynamic: Mapping[str, int | Range] | None = None,
        inner: bool = False,
    ) -> None:
        """``dynamic`` bounds sizes read at run time, by name.

        ``inner`` is for the body of a branch or a loop, whose inputs are not the caller's.
        """
        self.builder = builder
        self._inner = inner
        self.bounds = dict(bounds)
        self.steps: list[HostStep] = []
        self.dynamic = dict(dynamic or {})
        self._sizes: dict[tuple[str, tuple[Range, ...]], tuple[Index, ...]] = {}
        self._noted: dict[str, Noted] = {}
        self._stored: dict[str, str] = {}
        self._groups: dict[str, GroupValue] = {}
        self._equalities: dict[str, tuple[Index, Index]] = {}

    def note(self, contents: Contents, dtype: DType, name: str | None = None) -> str:
        """A value with these contents."""
        key = f"{PREFIX}{len(self._noted)}"
        self._noted[key] = Noted(contents, dtype, name)
        return key

    def note_indices(self, elements: Sequence[Index], dtype: DType) -> str:
        """A vector of known elements, possibly symbolic."""
        array = np.empty(len(elements), object)
        array[:] = elements
        return self.note(array if is_symbolic(array) else array.astype(dtype.numpy), dtype)

    def constant(self, value: Array | float, dtype: DType | None = None) -> str:
        """A value with these concrete contents."""
        array = as_array(value, dtype)
        return self.note(array, dtype_of(array))

    def group(self, group: GroupValue) -> str:
        """A value that is not a tensor."""
        key = f"{PREFIX}g{len(self._groups)}"
        self._groups[key] = group
        return key

    def fresh_dim(self, name: str) -> Sym:
        """A dimension known at call time; 0 or more."""
        self.bounds[name] = Range(0, None)
        return Sym(name)

    def host_step(
        self,
        function: str,
        inputs: Sequence[str],
        results: Mapping[str, TensorType],
        settings: Mapping[str, Setting],
    ) -> tuple[str, ...]:
        """Results, by name, of a step that the runtime executes before compiled code.

        Not supported unless the inputs are the caller's, constants or results of such steps.
        """
        names = tuple(self._given(name) for name in inputs)
        self.steps.append(HostStep(function, names, tuple(results), settings))
        return tuple(
            self.builder.input(name, type, {s: self.bounds[s] for d in type.shape
                                            for s in symbols(d)})
            for name, type in results.items()
        )  # fmt: skip

    def _given(self, name: str) -> str:
        """The runtime's name of a value."""
        group = self._groups.get(name)
        if isinstance(group, MapValue) and not self._inner:
            return group.name
        noted = self._noted.get(name)
        if noted is None:
            if self._inner or not self.builder.is_input(name):
                unsupported("the runtime does its work before compiled code; it can only be done "
                            "on what the caller gives, not on what the model makes")  # fmt: skip
            return name
        if self._inner:
            unsupported("the runtime does its work before compiled code, not in a loop or branch")
        literal = f"{name}.literal"
        texts = tuple(str(text) for text in noted.contents.reshape(-1).tolist())
        settings = {"texts": texts, "shape": tuple(noted.contents.shape)}
        if all(literal not in step.outputs for step in self.steps):
            self.steps.append(HostStep("literal", (), (literal,), settings))
        return literal

    def find_group(self, name: str) -> GroupValue | None:
        """The group that a value is, None if it is a tensor."""
        return self._groups.get(name)

    def read_sizes(
        self,
        value: str,
        label: str,
        known: Range | Sequence[Range] = ANYTHING,
        constraints: Sequence[Constraint] = (),
        source: Sequence[str] = (),
    ) -> tuple[Index, ...]:
        """The elements of a static i64 value as indices.

        If its contents are unknown at import: symbols that are read at run time, with bounds
        ``known`` and ``constraints``, in which the symbol ``#i`` is element i.
        """
        contents = self.contents(value)
        if contents is not None:
            return tuple(require_index(e, label) for e in contents.reshape(-1).tolist())
        type = self.type_of(value)
        if not type.is_static or not isinstance(type.elements, int):
            unsupported(f"the number of elements of {label!r} is not known before the model runs")
        ranges = (known,) * type.elements if isinstance(known, Range) else tuple(known)
        key = (value, ranges)
        if key not in self._sizes or constraints:
            names = tuple(
                self._size_name(label if len(ranges) == 1 else f"{label}_{i}", bound)
                for i, bound in enumerate(ranges)
            )
            own: dict[str, Index] = {f"#{i}": Sym(name) for i, name in enumerate(names)}
            op = ReadSize(names, tuple(constraints)).with_symbols(own)
            self.builder.emit(op, value, source=source)
            self._sizes[key] = tuple(map(Sym, names))
        return self._sizes[key]

    def _size_name(self, label: str, known: Range) -> str:
        given = self.dynamic.pop(label, None)
        if given is not None:
            known = given if isinstance(given, Range) else Range(given, given)
        name = self.builder.dimension(label, known)
        self.bounds[name] = known
        return name

    def require(
        self, constraints: Sequence[Constraint], source: Sequence[str] = (), always: bool = False
    ) -> None:
        """Makes the run fail if those of ``constraints`` that are not proved do not hold.

        Only sizes read at run time are checked, unless ``always``.
        """
        dynamic = {
            name for sizes in self._sizes.values() for size in sizes for name in symbols(size)
        }
        open_ = [
            d
            for d in dict.fromkeys(constraints)
            if compare(*d, self.bounds) is not True
            and (always or dynamic & (symbols(d[0]) | symbols(d[2])))
        ]
        if open_:
            nothing = self.builder.constant(np.zeros(0, np.int64))
            self.builder.emit(ReadSize((), tuple(open_)), nothing, source=source)

    def contents(self, name: str) -> Contents | None:
        """A value's contents if all are known, else None."""
        noted = self._noted.get(name)
        return None if noted is None else noted.contents

    def type_of(self, name: str) -> TensorType:
        """Type of a tensor; not supported for a group."""
        if name in self._groups:
            refuse_group(self._groups[name])
        noted = self._noted.get(name)
        return self.builder.type_of(name) if noted is None else noted.type

    def emit(self, op: Op, *inputs: str, source: Sequence[str] = ()) -> str:
        """The single result of ``op``."""
        (result,) = self.add(op, *inputs, source=source)
        return result

    def add(self, op: Op, *inputs: str, source: Sequence[str] = ()) -> tuple[str, ...]:
        """Results of ``op``: folded if the operands' contents suffice, else of a new node."""
        noted = self._evaluate(op, inputs, source)
        if noted is not None:
            return (noted,)
        return self.add_node(op, *inputs, source=source)

    def add_node(self, op: Op, *inputs: str, source: Sequence[str] = ()) -> tuple[str, ...]:
        """Results of a new node, without constant folding."""
        operands = tuple(self.stored(n, source) if n else "" for n in inputs)
        if isinstance(op, Elementwise | MatMul):
            operands = self._stretched(op, operands, source)
        results = self.builder.add(op, *operands, source=source)
        types = (self.type_of(n) if n else None for n in operands)
        self.require(op.shape_constraints(*types), source, always=True)
        if isinstance(op, Equal):
            self._note_equality(results[0], inputs)
        return results

    def _stretched(self, op: Op, names: Sequence[str], source: Sequence[str]) -> tuple[str, ...]:
        """``names``, expanded where an extent may be 1 at run time and that of others is not."""
        count = 2 if isinstance(op, MatMul) else 0
        shapes = [self.type_of(name).shape for name in names]
        stretching = [shape[: len(shape) - count] for shape in shapes]
        whole = common_shape(stretching, self.bounds)
        return tuple(
            self.stretched(n, (*whole[len(whole) - len(s) :], *shape[len(s) :]), source)
            for n, s, shape in zip(names, stretching, shapes, strict=True)
        )

    def stretched(self, name: str, target: tuple[Index, ...], source: Sequence[str] = ()) -> str:
        """A value expanded to ``target`` along axes whose extents may be 1 at run time.

        The run fails if an extent is neither 1 nor that of ``target``.
        """
        shape = self.type_of(name).shape
        pairs = tuple(zip(shape, target, strict=True))
        if all(old == 1 or compare(old, "==", new, self.bounds) for old, new in pairs):
            return name
        wide = tuple(old if old == 1 else new for old, new in pairs)
        return self.emit(Expand(wide), name, source=source)

    def equality(self, name: str) -> tuple[Index, Index] | None:
        """The two indices whose equality ``name`` compares, if it is only known at run time."""
        return self._equalities.get(name)

    def _note_equality(self, result: str, operands: Sequence[str]) -> None:
        known = [self.contents(name) for name in operands]
        sides = [k.reshape(-1).tolist()[0] for k in known if k is not None and k.size == 1]
        if len(sides) == 2 and all(isinstance(side, int | Expr) for side in sides):
            self._equalities[result] = (sides[0], sides[1])

    def _evaluate(self, op: Op, inputs: Sequence[str], source: Sequence[str]) -> str | None:
        known = [self._noted.get(n) for n in inputs]
        if isinstance(op, DequantizeLinear) and known[0] and known[0].contents.size > 1:
            return None  # integer kernels need integers
        given = [k for n, k in zip(inputs, known, strict=True) if n]
        if any(k is None or is_data(k.contents) for k in given):
            return None
        types = infer_types(op, [k and k.type for k in known], *source)
        if len(types) != 1 or not self._is_short(types[0]):
            return None
        facts = Facts(types[0].dtype, self.bounds)
        result = evaluate(op, [None if k is None else k.contents for k in known], facts)
        return None if result is None or is_data(result) else self.note(result, types[0].dtype)

    def _is_short(self, type: TensorType) -> bool:
        return type.is_static and compare(product(type.shape), "<=", NAMED_LIMIT, {}) is True

    def stored(self, name: str, source: Sequence[str] = ()) -> str:
        """The value as one of the graph: noted contents are materialised as a constant or
        ``Indices``."""
        noted = self._noted.get(name)
        if noted is None:
            if name in self._groups:
                refuse_group(self._groups[name])
            return name
        if name not in self._stored:
            self._stored[name] = self._store(noted, source)
        return self._stored[name]

    def _store(self, noted: Noted, source: Sequence[str]) -> str:
        if not is_symbolic(noted.contents):
            return self.builder.constant(noted.contents, noted.dtype, noted.name)
        elements = noted.contents.reshape(-1).tolist()
        if any(isinstance(e, Ratio | float) for e in elements):
            return self._store_ratios(noted, source)
        indices = Indices(tuple(elements), tuple(noted.contents.shape), noted.dtype)
        return self.builder.emit(indices, source=source)

    def _store_ratios(self, noted: Noted, source: Sequence[str]) -> str:
        ratios = [as_ratio(e) for e in noted.contents.reshape(-1).tolist()]
        if any(r is None for r in ratios):
            unsupported("symbolic shape arithmetic gives infinities")
        shape = tuple(noted.contents.shape)
        tops = Indices(tuple(r.numerator for r in ratios if r), shape, I64)
        bottoms = np.array([r.denominator for r in ratios if r]).reshape(shape)
        top = self.builder.emit(Cast(noted.dtype), self.builder.emit(tops, source=source))
        bottom = self.builder.constant(bottoms.astype(noted.dtype.numpy), noted.dtype)
        return self.builder.emit(Div(), top, bottom, source=source)


def require_index(element: object, what: str) -> Index:
    """A known element as an index; the node is not supported if it is not an integer."""
    if isinstance(element, Expr):
        return element
    if not isinstance(element, int | float) or element != int(element):
        unsupported(f"{what} is not a whole number: {element}")
    return int(element)
