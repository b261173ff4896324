"""Complex numbers as pairs of real tensors: their types and arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product as choices
from operator import add
from types import MappingProxyType
from typing import Any, Generic, Self, TypeVar

import numpy as np

from modelcc.frontends.kit import complex_functions as functions
from modelcc.frontends.kit.complex_functions import Complex, magnitude
from modelcc.frontends.kit.complex_values import part_type
from modelcc.ir.errors import ModelError
from modelcc.ir.op import Op
from modelcc.ir.types import C64, C128, F32, Array, DType, TensorType
from modelcc.ops.arithmetic import Add, Div, Mul, Sub, Value
from modelcc.ops.comparison import Equal, Less, NotEqual
from modelcc.ops.elementwise import Pow
from modelcc.tensor.builder import applied
from modelcc.tensor.interoperability import ArrayProtocols, TensorInteroperability
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.operators import is_number
from modelcc.tensor.promotion import is_complex, named_type, promoted

Part = TypeVar("Part", bound=TensorInteroperability)


class ComplexFormError(ModelError, AttributeError):
    """An operation without a form for complex numbers."""


ARITHMETIC: Mapping[type[Op], Callable[[Complex, Complex], Complex]] = MappingProxyType(
    {
        Add: Complex.__add__,
        Sub: Complex.__sub__,
        Mul: Complex.__mul__,
        Div: Complex.__truediv__,
        Pow: functions.power,
    }
)


@dataclass(frozen=True, eq=False, repr=False)
class ComplexOperators(ArrayProtocols, Generic[Part]):
    """Operators between complex tensors and others."""

    real: Part
    imag: Part

    @classmethod
    def of_array(cls, kind: type[Part], array: Array) -> Self:
        """The tensor of a complex array, whose parts are of ``kind``."""
        whole: Any = array
        return cls(*(kind.of_array(_own(part)) for part in (whole.real, whole.imag)))

    def paired(self, real: Any, imag: Any) -> Self:
        """A tensor with these parts."""
        return type(self)(real, imag)

    def tree_parts(self) -> dict[str, Any]:
        """Its two parts."""
        return {"real": self.real, "imag": self.imag}

    def with_tree_parts(self, parts: Mapping[str, Any]) -> Self:
        """A tensor with these parts."""
        return self.paired(parts["real"], parts["imag"])

    def tree_form(self) -> Hashable:
        """Nothing besides the parts."""
        return None

    @property
    def dtype(self) -> DType:
        """The element type, c64 or c128."""
        return C64 if self.real.type.dtype == F32 else C128

    @property
    def type(self) -> TensorType:
        """Shape and element type."""
        return TensorType(self.real.shape, self.dtype)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Extents: numbers, or named dimensions while a function is traced."""
        return self.real.shape

    @property
    def ndim(self) -> int:
        return self.real.ndim

    @property
    def size(self) -> Any:
        """The number of elements."""
        return self.real.size

    # --- types

    def cast(self, dtype: Any) -> Self:
        """With parts of another precision; :class:`ModelError` for real types."""
        wanted = named_type(dtype)
        if wanted.kind != "complex":
            raise ModelError(f"complex numbers as {wanted}", callers_line(), "use .real, or abs(z)")
        part = part_type(wanted)
        return self.paired(self.real.cast(part), self.imag.cast(part))

    astype = cast

    def as_complex(self, dtype: DType = C64) -> Self:
        """Itself, of ``dtype`` at least."""
        return self.cast(promoted(self.dtype, dtype))

    def lifted(self, other: Any) -> Self:
        """``other`` as a complex tensor; Python numbers take the type of this one."""
        if isinstance(other, type(self)):
            return other
        if is_number(other) or type(other) is complex:
            return self.of_array(type(self.real), np.asarray(other, self.dtype.numpy))
        if is_complex(other):
            return self.of_array(type(self.real), np.asarray(other))
        return self.real.lifted(other).as_complex()

    def alike(self, other: Any) -> tuple[Self, Self]:
        """Both in their common element type."""
        b = self.lifted(other)
        dtype = promoted(self.dtype, b.dtype)
        return self.cast(dtype), b.cast(dtype)

    # --- arithmetic

    def computed(self, function: Callable[..., Complex], *operands: Self) -> Self:
        """``function`` of complex values."""

        def of_values(*parts: Any) -> Any:
            found = function(*map(Complex, parts[::2], parts[1::2]))
            return found.re, found.im

        return self.paired(*applied(of_values, *(p for z in operands for p in (z.real, z.imag))))

    def arithmetic(self, op: Op, other: Any, swapped: bool = False) -> Self:
        """``op`` of both in their common type."""
        function = ARITHMETIC.get(type(op))
        if function is None:
            raise ComplexFormError(f"{type(op).__name__} of complex numbers", callers_line(),
                                   "it has no meaning; use .real and .imag")  # fmt: skip
        a, b = self.alike(other)
        return self.computed(function, *((b, a) if swapped else (a, b)))

    combined = arithmetic

    def scaled(self, op: Op, other: Any) -> Self:
        """Product with or quotient by a possibly real value, applied to both parts."""
        if is_complex(other):
            return self.arithmetic(op, other)
        if is_number(other):
            return self.paired(self.real.arithmetic(op, other), self.imag.arithmetic(op, other))
        a, b = self.alike(other)
        return self.paired(a.real.arithmetic(op, b.real), a.imag.arithmetic(op, b.real))

    def __add__(self, other: Any) -> Self:
        return self.arithmetic(Add(), other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        return self.arithmetic(Sub(), other)

    def __rsub__(self, other: Any) -> Self:
        return self.arithmetic(Sub(), other, True)

    def __mul__(self, other: Any) -> Self:
        return self.scaled(Mul(), other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        return self.scaled(Div(), other)

    def __rtruediv__(self, other: Any) -> Self:
        return self.arithmetic(Div(), other, True)

    def __pow__(self, other: Any) -> Self:
        if isinstance(other, int) and 0 < abs(other) < 4:
            found = {1: self, 2: self * self, 3: self * self * self}[abs(other)]
            return found if other > 0 else 1.0 / found
        return self.arithmetic(Pow(), other)

    def __rpow__(self, other: Any) -> Self:
        return self.arithmetic(Pow(), other, True)

    def __matmul__(self, other: Any) -> Self:
        return self.product(*self.alike(other))

    def __rmatmul__(self, other: Any) -> Self:
        return self.product(*self.alike(other)[::-1])

    def product(self, a: Self, b: Self) -> Self:
        """The matrix product."""

        def of_parts(x: Part, y: Part) -> Part:
            return x @ y

        return self.multiplied(of_parts, (a, b))

    def multiplied(self, product: Callable[..., Part], factors: Sequence[Self]) -> Self:
        """A ``product`` of real tensors, linear in each, of complex ones."""
        sums: list[list[Part]] = [[], []]
        for choice in choices((0, 1), repeat=len(factors)):
            parts = [z.imag if n else z.real for z, n in zip(factors, choice, strict=True)]
            found, power = product(*parts), sum(choice)
            sums[power % 2].append(-found if power % 4 > 1 else found)
        return self.paired(*(reduce(add, terms) for terms in sums))

    def compared(self, op: Op, other: Any) -> Any:
        """Equality of both parts, or its negation; there is no order."""
        a, b = self.alike(other)
        match op:
            case Equal():
                return (a.real == b.real) & (a.imag == b.imag)
            case NotEqual():
                return (a.real != b.real) | (a.imag != b.imag)
            case _:
                raise ComplexFormError("complex numbers have no order", callers_line(),
                                       "compare .real, .imag or abs(z)")  # fmt: skip

    def __eq__(self, other: Any) -> Any:
        return self.compared(Equal(), other)

    def __ne__(self, other: Any) -> Any:
        return self.compared(NotEqual(), other)

    __hash__ = object.__hash__

    def _unordered(self, other: Any) -> Any:
        return self.compared(Less(), other)

    __lt__ = __le__ = __gt__ = __ge__ = _unordered

    def __neg__(self) -> Self:
        return self.paired(-self.real, -self.imag)

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Part:
        return self.of_values(magnitude)

    abs = __abs__

    def of_values(self, function: Callable[[Complex], Value]) -> Part:
        """A real ``function`` of each element."""

        def of_parts(re: Value, im: Value) -> Value:
            return function(Complex(re, im))

        (found,) = applied(of_parts, self.real, self.imag)
        return found


def _own(part: Array) -> Array:
    array = np.array(part, order="C")
    array.flags.writeable = False
    return array
