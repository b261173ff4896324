"""Complex tensors: pairs of real ones; graphs contain real tensors only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, Self

import numpy as np

from modelcc.frontends.kit import complex_functions as functions
from modelcc.frontends.kit.complex_functions import Complex
from modelcc.ir.types import Array
from modelcc.tensor.axes import Axes
from modelcc.tensor.complex_operators import ComplexFormError, ComplexOperators, Part
from modelcc.tensor.evaluation import evaluate
from modelcc.tensor.interoperability import TensorInteroperability
from modelcc.tensor.lazy import TRACED, callers_line


def _of_parts(name: str) -> Any:
    """A method that applies that of real tensors to both parts."""

    def method(self: ComplexTensor[Any], *args: Any, **kwargs: Any) -> Any:
        made = [getattr(part, name)(*args, **kwargs) for part in (self.real, self.imag)]
        if isinstance(made[0], list):
            return [self.paired(*pair) for pair in zip(*made, strict=True)]
        return self.paired(*made)

    method.__doc__ = getattr(TensorInteroperability, name).__doc__
    return method


def _of_values(function: Callable[[Complex], Complex]) -> Any:
    """A method that computes ``function`` of each element."""

    def method(self: ComplexTensor[Any]) -> Any:
        return self.computed(function, self)

    method.__doc__ = function.__doc__
    return method


@dataclass(frozen=True, eq=False, repr=False)
class ComplexTensor(ComplexOperators[Part]):
    """An immutable array of complex numbers: a real and an imaginary part, f32 or f64.

    It is a tree of its two parts.  A gradient by one is the complex number of those by its parts,
    the direction of steepest ascent, as in PyTorch; JAX has the conjugate.
    """

    def numpy(self) -> Array:
        """The value, which cannot be written to; computed if it is pending."""
        evaluate((self.real, self.imag))
        array = np.empty(self.real.contents().shape, self.dtype.numpy)
        array.real, array.imag = self.real.contents(), self.imag.contents()
        array.flags.writeable = False
        return array

    contents = numpy

    def item(self) -> complex:
        """The only element."""
        return self.numpy().item()

    def __complex__(self) -> complex:
        return self.item()

    def __len__(self) -> int:
        return len(self.numpy()) if not self.ndim else self.shape[0]

    def __repr__(self) -> str:
        if self.real.phase == TRACED and self.real.held is None:
            return f"ComplexTensor({self.type}, traced)"
        text = np.array2string(self.numpy(), separator=", ", prefix="ComplexTensor(")
        return f"ComplexTensor({text}, dtype={self.dtype.numpy})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.real, self.imag)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        what = f"what is called here has no form for complex numbers: it asks for {name!r}"
        raise ComplexFormError(what, callers_line(), "compute with .real and .imag, or abs(z)")

    # --- functions of each element

    exp = _of_values(functions.exponential)
    expm1 = _of_values(functions.exponential_less_one)
    log = _of_values(functions.logarithm)
    log1p = _of_values(functions.logarithm_of_one_more)
    sqrt = _of_values(functions.root)
    rsqrt = _of_values(functions.reciprocal_root)
    sigmoid = _of_values(functions.logistic)
    sin, cos, tan = map(_of_values, (functions.sine, functions.cosine, functions.tangent))
    sinh = _of_values(functions.hyperbolic_sine)
    cosh = _of_values(functions.hyperbolic_cosine)
    tanh = _of_values(functions.hyperbolic_tangent)
    sign = _of_values(functions.direction)

    def log2(self) -> Self:
        """The logarithm to base 2."""
        return self.log() * float(1 / np.log(2))

    def log10(self) -> Self:
        """The logarithm to base 10."""
        return self.log() * float(1 / np.log(10))

    def square(self) -> Self:
        """The square."""
        return self * self

    def reciprocal(self) -> Self:
        """``1 / z``."""
        return 1.0 / self

    def conj(self) -> Self:
        """The complex conjugate."""
        return self.paired(self.real, -self.imag)

    conjugate = conj

    def angle(self) -> Part:
        """The angle from the real axis, within -pi … pi."""
        return self.of_values(functions.angle)

    def isnan(self) -> Part:
        """Where a part is not a number."""
        return self.real.isnan() | self.imag.isnan()

    def isinf(self) -> Part:
        """Where a part is infinite."""
        return self.real.isinf() | self.imag.isinf()

    def isfinite(self) -> Part:
        """Where both parts are numbers."""
        return self.real.isfinite() & self.imag.isfinite()

    # --- over axes

    def var(
        self, axis: Axes = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False
    ) -> Part:
        """The mean square of the distance from the mean, which is real."""
        return self.real.var(axis, dtype, ddof, keepdims) + self.imag.var(
            axis, dtype, ddof, keepdims
        )

    def std(
        self, axis: Axes = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False
    ) -> Part:
        """The square root of :meth:`var`."""
        return self.var(axis, dtype, ddof, keepdims).sqrt()

    def any(self, axis: Axes = None, keepdims: bool = False) -> Part:
        """Whether any element is not 0."""
        return (self != 0).any(axis, keepdims)

    def all(self, axis: Axes = None, keepdims: bool = False) -> Part:
        """Whether no element is 0."""
        return (self != 0).all(axis, keepdims)

    sum, mean, cumsum, round = map(_of_parts, ("sum", "mean", "cumsum", "round"))

    # --- data movement

    reshape, ravel, flatten = map(_of_parts, ("reshape", "ravel", "flatten"))
    transpose, swapaxes, moveaxis = map(_of_parts, ("transpose", "swapaxes", "moveaxis"))
    squeeze, expand_dims = map(_of_parts, ("squeeze", "expand_dims"))
    broadcast_to, tile, repeat = map(_of_parts, ("broadcast_to", "tile", "repeat"))
    split, flip, roll, take = map(_of_parts, ("split", "flip", "roll", "take"))
    triu, tril, __getitem__ = map(_of_parts, ("triu", "tril", "__getitem__"))

    @property
    def T(self) -> Self:  # noqa: N802
        """With axes in reversed order."""
        return self.transpose()

    @property
    def mT(self) -> Self:  # noqa: N802
        """With the last two axes exchanged."""
        return self.swapaxes(-1, -2)

    def pad(self, pad_width: Any, mode: Any = "constant", constant_values: complex = 0) -> Self:
        """Padded with these numbers of elements: a number, a pair, or a pair for each axis."""
        value = complex(constant_values)
        real = self.real.pad(pad_width, mode, value.real)
        return self.paired(real, self.imag.pad(pad_width, mode, value.imag))

    def all_alike(self, others: Any) -> list[Self]:
        """This and ``others`` in their common type."""
        first = self
        for other in others:
            first, _ = first.alike(other)
        return [first, *(first.alike(other)[1] for other in others)]

    def concatenated(self, others: Any, axis: int = 0) -> Self:
        """This and ``others`` one after another along ``axis``, in their common type."""
        first, *rest = self.all_alike(others)
        return first.joined(rest, axis)

    def joined(self, others: Any, axis: int) -> Self:
        """This and ``others`` of the same type along ``axis``."""
        real = self.real.concatenated([z.real for z in others], axis)
        return self.paired(real, self.imag.concatenated([z.imag for z in others], axis))

    def __iter__(self) -> Iterator[Self]:
        return map(self.paired, self.real, self.imag)

    @property
    def at(self) -> ComplexUpdatable:
        """Copies with other elements: ``z.at[0].set(1j)``, ``z.at[i].add(w)``."""
        return ComplexUpdatable(self)


@dataclass(frozen=True)
class ComplexUpdatable:
    """Modified copies of a tensor, before a subscript."""

    tensor: ComplexTensor[Any]
    subscript: Any = ()

    def __getitem__(self, subscript: Any) -> ComplexUpdatable:
        return ComplexUpdatable(self.tensor, subscript)

    def get(self) -> ComplexTensor[Any]:
        """The elements."""
        whole: Any = self.tensor
        return whole[self.subscript]

    def set(self, values: Any) -> ComplexTensor[Any]:
        """With ``values``; the last of several for one element wins."""
        return self._written("set", values)

    def add(self, values: Any) -> ComplexTensor[Any]:
        """With ``values`` added."""
        return self._written("add", values)

    def _written(self, how: str, values: Any) -> ComplexTensor[Any]:
        z = self.tensor
        given: Any = z.lifted(values)
        parts: list[Any] = [
            getattr(part.at[self.subscript], how)(new)
            for part, new in ((z.real, given.real), (z.imag, given.imag))
        ]
        return z.paired(*parts)
