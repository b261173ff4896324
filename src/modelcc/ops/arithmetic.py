"""Elementwise arithmetic, the base classes of all elementwise ops, and gradient formulas.

Operands of an elementwise op broadcast like NumPy's and have one dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, apply
from modelcc.ir.condition import Constraints
from modelcc.ir.errors import ModelError
from modelcc.ir.narrowing import ELEMENTS, FOLLOWS
from modelcc.ir.op import (
    Builder,
    Gradients,
    Op,
    Sample,
    Values,
    broadcast_constraints,
    broadcast_shapes,
    require,
    same_dtype,
)
from modelcc.ir.operators import Arithmetic
from modelcc.ir.quantized_form import QuantizedForm
from modelcc.ir.types import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, Array, DType, TensorType
from modelcc.ops.broadcast import unbroadcast
from modelcc.ops.samples import bounded, sample, tensor

Domain = Literal["float", "int", "bool", "number", "any"]


class Elementwise(Op):
    """Base: ``result[i] = element(a[i], b[i], …)``; ``evaluate`` is the same in NumPy.

    ``domain`` is the kind of element it takes; ``function`` the scalar function it is, if it is
    just one, and ``numpy`` that of NumPy.  ``predicate`` ops give bool.
    """

    domain: ClassVar[Domain] = "number"
    function: ClassVar[str] = ""
    numpy: ClassVar[Callable[..., Array]]
    predicate: ClassVar[bool] = False

    def result(self, dtype: DType) -> DType:
        """Element type of the result for operands of ``dtype``."""
        return BOOL if self.predicate else dtype

    def element(self, *xs: Element) -> Element:
        """One element of the result."""
        return apply(self.function, *xs)

    def evaluate(self, *xs: Array) -> Array:
        """NumPy meaning, up to a final cast."""
        return type(self).numpy(*xs)

    def infer(self, *xs: TensorType) -> tuple[TensorType]:
        dtype = same_dtype(*xs)
        check_domain(type(self).__name__, self.domain, dtype)
        return (TensorType(broadcast_shapes(*(x.shape for x in xs)), self.result(dtype)),)

    def shape_constraints(self, *xs: TensorType | None) -> Constraints:
        return broadcast_constraints(*(x.shape for x in xs if x is not None))

    def reference(self, *xs: Array) -> Array:
        with np.errstate(all="ignore"):
            values = self.evaluate(*xs)
        if any(x.dtype == object for x in xs):
            texts = self.predicate and all(_is_text(x) for x in xs)
            return np.asarray(values, bool if texts else object)
        return np.asarray(values, BOOL.numpy if self.predicate else xs[-1].dtype)

    def compute(self, at: StageBuilder, *xs: Operand) -> Operand:
        shape = broadcast_shapes(*(x.shape for x in xs))
        return at.stage(shape, lambda o: self.element(*(x.broadcast(o) for x in xs)))


def _is_text(x: Array) -> bool:
    """Whether the elements are texts, and not expressions."""
    return x.dtype == object and all(isinstance(e, str) for e in x.reshape(-1).tolist())


def check_domain(op: str, domain: Domain, dtype: DType) -> None:
    """:class:`ModelError` unless ``dtype`` is of the kind that ``op`` takes."""
    fits = {
        "float": dtype.is_float,
        "int": dtype.is_integer,
        "bool": dtype == BOOL,
        "number": dtype.is_float or dtype.is_integer,
        "any": True,
    }
    words = {"int": "integer", "number": "float or integer"}
    require(
        fits[domain],
        f"{op} needs {words.get(domain, domain)} operands, not {dtype}",
        "cast the operand first",
    )


class PiecewiseConstant(Elementwise):
    """Base of elementwise ops whose gradients are 0 wherever they have one."""

    differentiable = False


class Differentiable(Elementwise):
    """Base of elementwise ops with gradients; sums them where operands were broadcast."""

    def adjoint(self, dy: Value, y: Value, *xs: Value) -> tuple[Value | None, ...]:
        """Gradient of each operand in the broadcast shape, None where there is none; ``y`` is the
        result."""
        raise NotImplementedError(self.mnemonic())

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        dy, y, *xs = (Value(build, name) for name in (dys[0], outputs[0], *inputs))
        grads = self.adjoint(dy, y, *xs)
        return tuple(
            None if g is None else unbroadcast(build, g.name, build.type_of(x).shape)
            for g, x in zip(grads, inputs, strict=True)
        )


def unary_samples(low: float = -2.0, high: float = 2.0, **attributes: object) -> tuple[Sample, ...]:
    """One float operand: vector, scalar, named extent, extent 0, every float width."""
    types = (
        tensor(5),
        tensor(),
        tensor(2, "n", 3),
        tensor(0, 2),
        tensor(4, dtype=F64),
        tensor(3, 4, dtype=F16),
        tensor(6, dtype=BF16),
    )
    return tuple(bounded((low, high), t, **attributes) for t in types)


def typed_samples(
    dtypes: Sequence[DType], arity: int, low: float = -2.0, high: float = 2.0, **attributes: object
) -> tuple[Sample, ...]:
    """``arity`` operands of each dtype."""
    least = [max(low, 0) if d.kind == "uint" else low for d in dtypes]
    return tuple(
        bounded((lowest, high), *(tensor(3, 4, dtype=d),) * arity, **attributes)
        for d, lowest in zip(dtypes, least, strict=True)
    )


def binary_samples(
    low: float = -2.0, high: float = 2.0, **attributes: object
) -> tuple[Sample, ...]:
    """Two float operands: equal shapes, every way to broadcast, named extents, narrow floats."""
    pairs = (
        (tensor(3, 4), tensor(3, 4)),
        (tensor(2, "n", 3), tensor(3)),
        (tensor(3, 1), tensor(1, 4)),
        (tensor("n"), tensor("n")),
        (tensor(), tensor(2, 2)),
        (tensor(), tensor()),
        (tensor(0, 2), tensor(1, 2)),
        (tensor(4, dtype=F64), tensor(1, dtype=F64)),
        (tensor(4, dtype=F16), tensor(4, dtype=F16)),
        (tensor(4, dtype=BF16), tensor(4, dtype=BF16)),
    )
    return tuple(bounded((low, high), *p, **attributes) for p in pairs)


@dataclass(frozen=True)
class Add(Differentiable):
    """``a + b``."""

    narrowing = ELEMENTS
    function, numpy = "add", np.add
    symbolic = True
    samples = (*binary_samples(), *typed_samples((I64, I32, U8), 2))

    def adjoint(self, dy: Value, y: Value, a: Value, b: Value) -> tuple[Value, Value]:
        return dy, dy

    def quantize(self) -> QuantizedForm:
        return QuantizedForm(None, follows=True)


@dataclass(frozen=True)
class Sub(Differentiable):
    """``a - b``."""

    narrowing = ELEMENTS
    function, numpy = "sub", np.subtract
    symbolic = True
    samples = (*binary_samples(), *typed_samples((I64, I32), 2))

    def adjoint(self, dy: Value, y: Value, a: Value, b: Value) -> tuple[Value, Value]:
        return dy, -dy

    def quantize(self) -> QuantizedForm:
        return QuantizedForm(None, follows=True)


@dataclass(frozen=True)
class Mul(Differentiable):
    """``a * b``."""

    narrowing = ELEMENTS
    function, numpy = "mul", np.multiply
    symbolic = True
    samples = (*binary_samples(), *typed_samples((I64, I32, U8), 2))

    def adjoint(self, dy: Value, y: Value, a: Value, b: Value) -> tuple[Value, Value]:
        return dy * b, dy * a

    def quantize(self) -> QuantizedForm:
        return QuantizedForm(None, follows=True)


@dataclass(frozen=True)
class Div(Differentiable):
    """``a / b``; integers round towards zero (by zero: unspecified)."""

    narrowing = ELEMENTS
    function = "div"
    samples = (
        *binary_samples(0.5),
        sample(np.array([7, -7, 7, -7, 6, 0]), np.array([2, 2, -2, -2, -3, 5])),
        *typed_samples((I32, U8), 2, 1, 9),
    )

    def evaluate(self, a: Array, b: Array) -> Array:
        if not np.issubdtype(a.dtype, np.integer):
            return np.divide(a, b)
        divisor: Array = np.where(b == 0, np.ones_like(b), b)
        return (a - np.fmod(a, divisor)) // divisor

    def adjoint(self, dy: Value, y: Value, a: Value, b: Value) -> tuple[Value, Value]:
        return dy / b, -(dy * y) / b


@dataclass(frozen=True)
class Neg(Differentiable):
    """``-x``."""

    narrowing = ELEMENTS
    function, numpy = "neg", np.negative
    symbolic = True
    samples = (*unary_samples(), *typed_samples((I64, I8), 1))

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (-dy,)


@dataclass(frozen=True, eq=False)
class Value(Arithmetic):
    """A graph value in a gradient formula; arithmetic appends nodes to ``build``."""

    build: Builder
    name: str

    @property
    def type(self) -> TensorType:
        return self.build.type_of(self.name)

    def lift(self, other: Value | float) -> Value:
        """``other``, a number becoming a constant of this value's dtype."""
        if isinstance(other, Value):
            return other
        return Value(self.build, self.build.constant(other, self.type.dtype))

    def applied(self, function: str, *args: Value | float) -> Value:
        return of(_OPERATORS[function], *map(self.lift, args))

    # A sum or product with a number has the number last.
    __radd__ = Arithmetic.__add__
    __rmul__ = Arithmetic.__mul__


_OPERATORS: Mapping[str, Op] = MappingProxyType(
    {"add": Add(), "sub": Sub(), "mul": Mul(), "div": Div(), "neg": Neg()}
)


def of(op: Op, *xs: Value) -> Value:
    """The single result of ``op``."""
    build = xs[0].build
    return Value(build, build.emit(op, *(x.name for x in xs)))


@dataclass(frozen=True)
class Identity(Differentiable):
    """``x``."""

    narrowing = FOLLOWS
    domain = "any"
    symbolic = True
    samples = (*unary_samples(), *typed_samples((I64, BOOL), 1))

    def element(self, x: Element) -> Element:
        return x

    def evaluate(self, x: Array) -> Array:
        return np.array(x)

    def adjoint(self, dy: Value, y: Value, x: Value) -> tuple[Value]:
        return (dy,)


@dataclass(frozen=True)
class Cast(Op):
    """x as ``to``: floats truncate to integers, bool is ``x != 0``; out of range: unspecified."""

    to: DType
    samples = (
        sample(tensor(3, "n"), to=F64),
        sample(tensor(4), to=F16),
        sample(tensor(4), to=BF16),
        sample(np.array([1.5, -1.5, 0.0, -0.25], np.float32), to=I32),
        sample(np.array([1.5, 0.0, -0.25], np.float32), to=BOOL),
        sample(tensor(3, dtype=I64), to=F32),
        sample(np.array([300, -1, 7], np.int64), to=U8),
        sample(tensor(3, dtype=BOOL), to=I64),
        sample(tensor(), to=F32),
    )
    symbolic = True

    def infer(self, x: TensorType) -> tuple[TensorType]:
        textual = "string" in (x.dtype.kind, self.to.kind)
        require(not textual, f"cannot cast {x.dtype} to {self.to}: strings are not computed with")
        return (TensorType(x.shape, self.to),)

    def reference(self, x: Array) -> Array:
        if x.dtype == object and self.to.is_integer:
            return np.array(x)
        if x.dtype == object and not all(isinstance(e, int) for e in x.reshape(-1).tolist()):
            raise ModelError(f"named dimensions cannot become {self.to} before the model runs")
        with np.errstate(all="ignore"):
            return x.astype(self.to.numpy)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        return at.stage(x.shape, lambda o: x[o].cast(self.to))

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        (x,) = inputs
        dtype = build.type_of(x).dtype
        if not (dtype.is_float and self.to.is_float):
            return (None,)
        return (build.emit(Cast(dtype), dys[0]),)


@dataclass(frozen=True)
class BitCast(Op):
    """The bits of x as another dtype of the same width."""

    differentiable = False
    to: DType
    samples = (
        sample(tensor(3, "n"), to=I32),
        sample(tensor(4, dtype=F64), to=I64),
        sample(np.array([1, -2, 3], np.int16), to=F16),
        sample(tensor(4, dtype=BOOL), to=U8),
        sample(np.array([0, 255, 3], np.uint8), to=I8),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require(x.dtype.bits == self.to.bits, f"{x.dtype} and {self.to} differ in width")
        return (TensorType(x.shape, self.to),)

    def reference(self, x: Array) -> Array:
        return x.view(self.to.numpy)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        if BOOL in (x.dtype, self.to):
            return at.stage(x.shape, lambda o: x[o].cast(self.to))
        return at.stage(x.shape, lambda o: x[o].bitcast(self.to))


@dataclass(frozen=True)
class Mod(Differentiable):
    """Remainder of ``a / b`` with the sign of b, or with that of a if ``fmod`` (C's ``fmod``)."""

    fmod: bool = False
    samples = (
        *binary_samples(0.5),
        *binary_samples(0.5, fmod=True),
        sample(np.array([7, -7, 7, -7, 6]), np.array([3, 3, -3, -3, -3])),
        sample(np.array([7, -7, 7, -7, 6]), np.array([3, 3, -3, -3, -3]), fmod=True),
    )

    def element(self, a: Element, b: Element) -> Element:
        return apply("fmod" if self.fmod else "mod", a, b)

    def evaluate(self, a: Array, b: Array) -> Array:
        return np.fmod(a, b) if self.fmod else np.mod(a, b)

    def adjoint(self, dy: Value, y: Value, a: Value, b: Value) -> tuple[Value, Value]:
        return dy, -(dy * ((a - y) / b))


@dataclass(frozen=True)
class Floor(PiecewiseConstant):
    """The greatest integer not above x."""

    domain, function, numpy = "float", "floor", np.floor
    samples = unary_samples()


@dataclass(frozen=True)
class Ceil(PiecewiseConstant):
    """The least integer not below x."""

    domain, function, numpy = "float", "ceil", np.ceil
    samples = unary_samples()


@dataclass(frozen=True)
class Round(PiecewiseConstant):
    """The nearest integer, halves to the even one."""

    domain, function, numpy = "float", "round", np.rint
    samples = (*unary_samples(), sample(np.array([-2.5, -1.5, 0.5, 1.5, 2.5], np.float32)))


OPS: tuple[type[Op], ...] = (
    *(Identity, Cast, BitCast, Add, Sub, Mul, Div, Mod, Neg, Floor, Ceil, Round),
)
