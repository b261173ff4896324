"""The definition of ops: frozen dataclasses of attributes with a few facets, in named dialects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol, Self, TypeAlias, TypeGuard

from modelcc.ir.algorithm import AlgorithmBuilder
from modelcc.ir.compute import Operand, StageBuilder
from modelcc.ir.condition import Constraints
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Expr, Index, substitute
from modelcc.ir.narrowing import WIDE, Narrowing
from modelcc.ir.quantized_form import QuantizedForm
from modelcc.ir.types import Array, DType, TensorType

Values: TypeAlias = Sequence[str]
Gradients: TypeAlias = tuple[str | None, ...]
"""Values of a graph by name: the gradients of operands, None where there is none."""

Meeting: TypeAlias = tuple[Index, Index, str]
"""Two extents that must be equal, and the message where they are not."""


@dataclass(frozen=True)
class Sample:
    """An input for tests, documentation and tuning: operand types and the op's attributes.

    ``operands`` are types, concrete arrays or None (absent); users of the sample replace symbolic
    extents by small numbers.  ``low``/``high`` bound random values (``log`` needs positive ones).
    """

    operands: tuple[TensorType | Array | None, ...]
    attributes: Mapping[str, object]
    low: float = -2.0
    high: float = 2.0


class Builder(Protocol):
    """Appends nodes; used by facets that return graph ops (``decompose``, ``grad``)."""

    def add(self, op: Op, *inputs: str) -> tuple[str, ...]:
        """Append ``op``; returns the names of its results."""
        ...

    def emit(self, op: Op, *inputs: str) -> str:
        """Append a single-result ``op``; returns the name of its result."""
        (result,) = self.add(op, *inputs)
        return result

    def constant(self, value: Array | float, dtype: DType | None = None) -> str:
        """A constant with this value."""
        ...

    def type_of(self, name: str) -> TensorType:
        """Type of a value known to the builder."""
        ...


class Op:
    """Base of every op.  Subclasses are frozen dataclasses whose fields are the attributes.

    Absent optional operands are passed as ``None`` to every facet.  Facets not overridden are
    absent: see :meth:`has`.  ``symbolic`` promises that ``reference`` also works on object arrays
    of :data:`Index` (shape arithmetic); ``pure`` is false for random ops, ``differentiable`` for
    piecewise constant results: integers, choices, steps.  Gradients of loops save the results of
    ``costly`` ops and recompute all others.  ``narrowing`` is the treatment of 16-bit floats.
    """

    dialect: ClassVar[str] = "mcc"
    symbolic: ClassVar[bool] = False
    pure: ClassVar[bool] = True
    differentiable: ClassVar[bool] = True
    costly: ClassVar[bool] = False
    narrowing: ClassVar[Narrowing] = WIDE
    samples: ClassVar[tuple[Sample, ...]] = ()

    @classmethod
    def mnemonic(cls) -> str:
        """Qualified name in text form, e.g. ``mcc.Conv``."""
        return f"{cls.dialect}.{cls.__name__}"

    @classmethod
    def has(cls, facet: str) -> bool:
        """Whether the class overrides ``facet`` (``compute``, ``grad``, ``decompose`` …)."""
        return getattr(cls, facet) is not getattr(Op, facet)

    def attributes(self) -> dict[str, Any]:
        """Attribute names and values in declaration order."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def substitute(self, values: Mapping[str, Index]) -> Self:
        """The op with symbols of its attributes substituted."""
        changes = {k: _substituted(v, values) for k, v in self.attributes().items()}
        return type(self)(**changes)

    def symbols(self) -> tuple[str, ...]:
        """Names of the symbols in its attributes, sorted."""
        return tuple(sorted(_symbols(tuple(self.attributes().values()))))

    @property
    def binds(self) -> tuple[str, ...]:
        """Index symbols whose values are only known after the op has run."""
        return ()

    @property
    def required(self) -> bool:
        """Whether the op must run even if its results are unused."""
        return False

    def bound_values(self, *inputs: Array | None) -> Mapping[str, int]:
        """Values of :attr:`binds` for these operands."""
        return {}

    def infer(self, *inputs: TensorType | None) -> tuple[TensorType, ...]:
        """Result types (row-major); :class:`ModelError` if the operands break the op's rules."""
        raise NotImplementedError(self.mnemonic())

    def meetings(self, *inputs: TensorType | None) -> Iterable[Meeting]:
        """Pairs of operand extents, of correct ranks, that must be equal, with error messages."""
        return ()

    def shape_constraints(self, *inputs: TensorType | None) -> Constraints:
        """Constraints on named extents that ``infer`` assumes, :meth:`meetings` first."""
        return tuple((a, "==", b) for a, b, _ in self.meetings(*inputs) if a != b)

    def require_meetings(self, *inputs: TensorType | None) -> None:
        """Reject :meth:`meetings` of different numbers; named extents are assumed to match."""
        for a, b, what in self.meetings(*inputs):
            known = isinstance(a, int) and isinstance(b, int)
            require(not known or a == b, f"{what}: {a} against {b}")

    def require_contents(
        self, types: Sequence[TensorType | None], contents: Sequence[Array | None]
    ) -> None:
        """Reject invalid contents of constant operands (None: absent, or not constant).

        An ``algorithm`` that loads indices from tables needs this: nothing else checks them.
        """

    def reference(self, *inputs: Array | None) -> Array | tuple[Array, ...]:
        """NumPy semantics: array, or tuple of arrays when there are several results."""
        raise NotImplementedError(self.mnemonic())

    def compute(self, at: StageBuilder, *inputs: Operand | None) -> Operand | tuple[Operand, ...]:
        """Tensor-level semantics, as stages added through ``at``."""
        raise NotImplementedError(self.mnemonic())

    def algorithm(
        self, at: AlgorithmBuilder, inputs: Sequence[Operand | None], outputs: Sequence[Operand]
    ) -> None:
        """Semantics as a loop function, for unstructured computations: instead of ``compute``.

        Operands and results are row-major buffers of these names, already declared to ``at``, which
        has the machine's vector width and parallelism.
        """
        raise NotImplementedError(self.mnemonic())

    def decompose(self, build: Builder, *inputs: str) -> tuple[str, ...]:
        """The same result from simpler ops; composites are kept until a pass expands them."""
        raise NotImplementedError(self.mnemonic())

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        """Gradient of each operand (None: there is none), given those of the results.

        ``inputs`` and ``outputs`` are the op's operands and results.
        """
        raise NotImplementedError(self.mnemonic())

    def quantize(self) -> QuantizedForm | None:
        """How it computes on low-bit integers; None if it does not, with these attributes."""
        raise NotImplementedError(self.mnemonic())


def is_items(attribute: object) -> TypeGuard[tuple[object, ...]]:
    """Whether an attribute is a tuple of attributes."""
    return isinstance(attribute, tuple)


def _substituted(attribute: object, values: Mapping[str, Index]) -> object:
    if is_items(attribute):
        return tuple(_substituted(item, values) for item in attribute)
    return substitute(attribute, values) if isinstance(attribute, Expr) else attribute


def _symbols(attribute: object) -> frozenset[str]:
    if is_items(attribute):
        return frozenset[str]().union(*(_symbols(item) for item in attribute))
    return attribute.symbols if isinstance(attribute, Expr) else frozenset()


@dataclass(frozen=True)
class Dialect:
    """A named set of ops; third-party packages expose one by the ``modelcc.dialects`` group."""

    name: str
    ops: tuple[type[Op], ...]

    def find(self, mnemonic: str) -> type[Op] | None:
        """The op class called ``mnemonic`` (``dialect.Name``), if it is here."""
        return next((op for op in self.ops if op.mnemonic() == mnemonic), None)


def require(condition: bool, message: str, hint: str | None = None) -> None:
    """Raise :class:`ModelError` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise ModelError(message, (), hint)


def same_dtype(*types: TensorType) -> DType:
    """The common dtype of operands; :class:`ModelError` naming both when two differ."""
    first = types[0].dtype
    for other in types[1:]:
        require(other.dtype == first, f"operands have different dtypes: {first} and {other.dtype}")
    return first


def broadcast_shapes(*shapes: tuple[Index, ...]) -> tuple[Index, ...]:
    """NumPy broadcasting over symbolic extents; equal names match, 1 stretches.

    A named extent against a number greater than 1 is assumed to be that number.
    """
    rank = max((len(s) for s in shapes), default=0)
    result: list[Index] = []
    for i in range(rank):
        extent: Index = 1
        for shape in shapes:
            j = i - (rank - len(shape))
            extent = _broadcast_extent(extent, shape[j], shapes) if j >= 0 else extent
        result.append(extent)
    return tuple(result)


def equal(a: Sequence[Index], b: Sequence[Index]) -> Constraints:
    """Constraints that extents of ``a`` equal those of ``b``, up to the shorter length."""
    return tuple((x, "==", y) for x, y in zip(a, b, strict=False) if x != y)


def broadcast_constraints(*shapes: tuple[Index, ...]) -> Constraints:
    """Constraints for the equalities that :func:`broadcast_shapes` assumes."""
    whole = broadcast_shapes(*shapes)
    return tuple(
        (whole[-distance], "==", shape[-distance])
        for shape in shapes
        for distance in range(1, len(shape) + 1)
        if shape[-distance] not in (1, whole[-distance])
    )


def _broadcast_extent(a: Index, b: Index, shapes: tuple[tuple[Index, ...], ...]) -> Index:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        text = " and ".join("[" + ", ".join(map(str, s)) + "]" for s in shapes)
        raise ModelError(f"shapes {text} do not broadcast: extent {a} against {b}")
    return a if isinstance(a, int) else b
