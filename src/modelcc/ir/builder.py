"""Building a graph node by node, with inferred types and generated names.

build = GraphBuilder("main")
x = build.input("x", TensorType((Sym("batch"), 64), F32))
y = build.emit(MatMul(), x, build.constant(weights), names=("y",))
graph = build.build([y])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import DIM, Bounds, Range, product, symbols
from modelcc.ir.naming import Names
from modelcc.ir.op import Op
from modelcc.ir.types import F32, MOST_BYTES, Array, DType, TensorType


def infer_types(op: Op, inputs: Sequence[TensorType | None], *where: str) -> tuple[TensorType, ...]:
    """``op.infer``; a :class:`ModelError` names the op, its operands' types and ``where``.

    It also rejects results that are too large to be stored.
    """
    try:
        results = op.infer(*inputs)
        for type in results:
            require_room(type)
        return results
    except ModelError as error:
        raise error.at(*(where or (op.mnemonic(),))) from error
    except (TypeError, ValueError, AttributeError) as error:
        if isinstance(error, AttributeError) and None not in inputs:
            raise
        given = ", ".join("absent" if t is None else str(t) for t in inputs)
        message = f"{op.mnemonic()} does not take these operands: ({given}): {error}"
        raise ModelError(message, where) from error


def require_room(type: TensorType) -> None:
    """:class:`ModelError` for a type too large to be stored, counting static extents only."""
    least = next((e for e in type.shape if isinstance(e, int) and e < 0), 0)
    if least:
        raise ModelError(f"{type} has a negative extent, {least}")
    room = product(max(1, e) for e in type.shape if isinstance(e, int)) * type.dtype.bytes
    if isinstance(room, int) and room > MOST_BYTES:
        raise ModelError(
            f"{type} would take {room:,} bytes, and no more than {MOST_BYTES:,} can be had"
        )


def as_array(value: Array | float, dtype: DType | None) -> Array:
    """``value`` as an array of ``dtype``; Python numbers without a dtype become f32."""
    if isinstance(value, np.ndarray | np.generic):
        value = np.asarray(value)
        return value if dtype is None else value.astype(dtype.numpy, copy=False)
    return np.asarray(value, (dtype or F32).numpy)


class ConstantPool:
    """Named constants, each content once.

    Contents are hashed in full only where dtype, shape and a sample of the elements coincide, so
    that large models are not read twice.
    """

    def __init__(self, constants: Mapping[str, Constant]) -> None:
        self.by_name: dict[str, Constant] = {}
        self._alike: dict[tuple[str, tuple[int, ...], bytes], list[str]] = {}
        for name, constant in constants.items():
            self.add(name, constant)

    def find(self, constant: Constant) -> str | None:
        """Name of a constant of the same content."""
        alike = self._alike.get(constant.sample, ())
        return next((n for n in alike if self.by_name[n] == constant), None)

    def add(self, name: str, constant: Constant) -> None:
        """Keep ``constant`` under ``name``."""
        self.by_name[name] = constant
        self._alike.setdefault(constant.sample, []).append(name)


class GraphBuilder:
    """Appends inputs, constants and nodes to a graph (:class:`~modelcc.ir.op.Builder`).

    ``dims`` bounds named dimensions; those of the inputs that it lacks get :data:`DIM`.
    """

    def __init__(self, name: str = "main", dims: Bounds | None = None) -> None:
        self.name = name
        self._inputs: list[str] = []
        self._nodes: list[Node] = []
        self._types: dict[str, TensorType] = {}
        self._names = Names()
        self._constants = ConstantPool({})
        self._dims = dict(dims or {})

    def input(self, name: str, type: TensorType, bounds: Bounds | None = None) -> str:
        """A graph input called ``name``; ``ValueError`` if the name is taken.

        ``bounds`` are those of new dimensions.
        """
        self._dims |= bounds or {}
        self._inputs.append(self._names.claim(name))
        self._types[name] = type
        for dim in type.shape:
            for symbol in sorted(symbols(dim)):
                self._dims.setdefault(symbol, DIM)
        return name

    def dimension(self, name: str, known: Range) -> str:
        """An index symbol with these bounds; its name, ``name`` if that is free."""
        fresh, number = name, 2
        while fresh in self._dims:
            fresh, number = f"{name}_{number}", number + 1
        self._dims[fresh] = known
        return fresh

    def constant(
        self, value: Array | float, dtype: DType | None = None, name: str | None = None
    ) -> str:
        """A constant; equal contents share the first one's name."""
        constant = Constant(as_array(value, dtype))
        found = self._constants.find(constant)
        if found is not None:
            return found
        fresh = self._names.fresh(name or "c")
        self._constants.add(fresh, constant)
        self._types[fresh] = constant.type
        return fresh

    def add(
        self, op: Op, *inputs: str, source: Sequence[str] = (), names: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Append ``op``; returns the names of its results (``names`` where given and not empty).

        :class:`ModelError` at ``source`` if the operands do not suit the op; ``ValueError`` if an
        operand is unknown or a name is taken.
        """
        operands = tuple(self.type_of(n) if n else None for n in inputs)
        types = infer_types(op, operands, *source)
        outputs = tuple(
            self._result_name(op, names[i] if i < len(names) else "") for i in range(len(types))
        )
        self._nodes.append(Node(op, inputs, outputs, tuple(source)))
        self._types.update(zip(outputs, types, strict=True))
        return outputs

    def emit(
        self, op: Op, *inputs: str, source: Sequence[str] = (), name: str | None = None
    ) -> str:
        """Append a single-result ``op``; returns the name of its result."""
        (result,) = self.add(op, *inputs, source=source, names=(name,) if name else ())
        return result

    def located(self, source: Sequence[str]) -> LocatedBuilder:
        """This builder, whose nodes come from ``source``."""
        return LocatedBuilder(self, tuple(source))

    def type_of(self, name: str) -> TensorType:
        """Type of a value; ``ValueError`` if there is none of this name."""
        found = self._types.get(name)
        if found is None:
            raise ValueError(f"graph {self.name!r} has no value {name!r} so far")
        return found

    def is_input(self, name: str) -> bool:
        """Whether ``name`` is a graph input."""
        return name in self._inputs

    def constant_value(self, name: str) -> Array | None:
        """Data of a constant; None if ``name`` is computed or an input."""
        constant = self._constants.by_name.get(name)
        return None if constant is None else constant.data

    def nodes(self) -> Iterator[Node]:
        """The nodes so far."""
        return iter(self._nodes)

    def build(self, outputs: Sequence[str]) -> Graph:
        """The graph with these outputs; unused constants are dropped."""
        for name in outputs:
            self.type_of(name)
        read = {n for node in self._nodes for n in node.inputs} | set(outputs)
        constants = {n: c for n, c in self._constants.by_name.items() if n in read}
        unread = self._constants.by_name.keys() - constants.keys()
        types = {n: t for n, t in self._types.items() if n not in unread}
        return Graph(
            self.name,
            tuple(self._inputs),
            tuple(outputs),
            tuple(self._nodes),
            MappingProxyType(types),
            MappingProxyType(constants),
            MappingProxyType(dict(self._dims)),
        )

    def _result_name(self, op: Op, wanted: str) -> str:
        return self._names.claim(wanted) if wanted else self._names.fresh(type(op).__name__.lower())


@dataclass(frozen=True)
class LocatedBuilder:
    """A builder whose nodes come from one location in the user's program."""

    build: GraphBuilder
    source: tuple[str, ...]

    def located(self, source: Sequence[str]) -> LocatedBuilder:
        """The same builder, at another location."""
        return self.build.located(source)

    def add(self, op: Op, *inputs: str) -> tuple[str, ...]:
        return self.build.add(op, *inputs, source=self.source)

    def emit(self, op: Op, *inputs: str) -> str:
        return self.build.emit(op, *inputs, source=self.source)

    def constant(self, value: Array | float, dtype: DType | None = None) -> str:
        return self.build.constant(value, dtype)

    def type_of(self, name: str) -> TensorType:
        return self.build.type_of(name)
