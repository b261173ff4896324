"""Subscripts of tensors, as in NumPy, and updates at subscripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import numpy as np

from modelcc.ir.index import Index
from modelcc.ir.types import BOOL, I64, Array
from modelcc.ops.broadcast import Expand
from modelcc.ops.comparison import Where
from modelcc.ops.gather import Gather
from modelcc.ops.gather_elements import Combination
from modelcc.ops.gather_nd import GatherND, ScatterND
from modelcc.ops.shape import Concat, ReplaceSlice, Slice, Unslice
from modelcc.tensor.axes import common
from modelcc.tensor.lazy import FREE, TRACED, TracingError, callers_line
from modelcc.tensor.reductions import TensorReductions
from modelcc.tensor.subscripts import Cut, New, Part, Picked, items_of, parts_of

Kind = TypeVar("Kind", bound="TensorIndexing")


class TensorIndexing(TensorReductions):
    """Subscripts of a tensor."""

    __slots__ = ()

    def contents(self) -> Array:
        """The value; computed if it is pending."""
        raise NotImplementedError

    def __getitem__(self, subscript: Any) -> Self:
        """Numbers, slices, ``None``, ``...``, integer arrays, and bool masks.

        A mask is evaluated, since it determines the number of elements.
        """
        if self.held is not None and self.phase == FREE and _is_basic(subscript):
            return self._view(subscript)
        parts = unmasked(parts_of(subscript, self.type.shape, self.lifted))
        cut = self.cut(parts)
        places = AdvancedIndex.of(parts)
        return places.read(cut) if places.picked else cut.reshape(_extents(parts, cut.type.shape))

    def _view(self, subscript: Any) -> Self:
        """A view of a computed value, without an operation, which would differ for each index."""
        parts_of(subscript, self.type.shape, self.lifted)
        return self.of_array(np.asarray(self.contents()[subscript], order="C"))

    def cut(self, parts: Sequence[Part]) -> Self:
        """The slices of ``parts``; axes keep their order, dropped ones have extent 1."""
        cuts = list(_cuts(parts, self.type.shape))
        counts = tuple(c.count for c in cuts)
        steps = tuple(c.step for c in cuts)
        if counts == self.type.shape and all(s == 1 for s in steps):
            return self
        return self.result(Slice(tuple(c.start for c in cuts), counts, steps), self)

    @property
    def at(self) -> Updatable[Self]:
        """Modified copies: ``x.at[0].set(1)``, ``x.at[i].add(y)``."""
        return Updatable(self)

    def __iter__(self) -> Iterator[Self]:
        if not self.ndim:
            raise TypeError("a tensor without axes cannot be iterated over")
        extent = self.type.shape[0]
        if not isinstance(extent, int):
            raise TracingError(f"{self.type} cannot be iterated over: {extent} has no value",
                               callers_line(), "use modelcc.scan")  # fmt: skip
        if self.phase == FREE:
            self.contents()  # once, not by a program for each part
        return (self[i] for i in range(extent))

    def take(self, indices: Any, axis: int | None = None) -> Self:
        """The elements at ``indices`` along ``axis``, or of the flattened tensor without."""
        source = self.ravel() if axis is None else self
        place = 0 if axis is None else axis % source.ndim
        index = indices if isinstance(indices, TensorIndexing) else np.asarray(indices)
        return source[(*(slice(None),) * place, index)]


def _is_basic(subscript: Any) -> bool:
    return all(i is None or i is ... or type(i) in (int, slice) for i in items_of(subscript))


def _cuts(parts: Sequence[Part], shape: Sequence[Index]) -> Iterator[Cut]:
    """The slice of each axis; the whole axis for advanced indices."""
    extents = iter(shape)
    for part in parts:
        if not isinstance(part, New):
            extent = next(extents)
            yield part if isinstance(part, Cut) else Cut(0, extent)


def _extents(parts: Sequence[Part], cut: Sequence[Index]) -> tuple[Index, ...]:
    """The shape after slicing: with new axes, without axes of numbers."""
    extents = iter(cut)
    found = [(1 if isinstance(part, New) else next(extents), part) for part in parts]
    return tuple(e for e, part in found if not (isinstance(part, Cut) and part.gone))


def unmasked(parts: Sequence[Part]) -> list[Part]:
    """Masks as the indices of their true elements, for each of their axes."""
    return [found for part in parts for found in _unmasked(part)]


def _unmasked(part: Part) -> Sequence[Part]:
    if not isinstance(part, Picked) or part.indices.type.dtype != BOOL:
        return (part,)
    mask = part.indices
    assert isinstance(mask, TensorIndexing)
    if mask.phase == TRACED and mask.held is None:
        message = (
            "a mask that has no contents while it is traced says not how many elements to take"
        )
        raise TracingError(message, callers_line(),
                           "use modelcc.numpy.where(mask, x, other), or mask outside")  # fmt: skip
    return [Picked(mask.of_array(places)) for places in np.nonzero(mask.contents())]


@dataclass(frozen=True)
class AdvancedIndex(Generic[Kind]):
    """Advanced indexing: axes of a tensor, an index tensor for each, and their result axes.

    ``first`` is the position of the indices' own axes in the result; ``shape`` gives the other
    axes, from the extents after slicing.
    """

    parts: tuple[Part, ...]
    picked: tuple[int, ...]
    first: int

    @classmethod
    def of(cls, parts: Sequence[Part]) -> AdvancedIndex[Any]:
        """Numbers count as indices if there are others; adjacent index axes stay in place."""
        if not any(isinstance(p, Picked) for p in parts):
            return cls(tuple(parts), (), 0)
        advanced = [k for k, p in enumerate(parts) if isinstance(p, Picked) or _is_number(p)]
        together = advanced == list(range(advanced[0], advanced[-1] + 1))
        axes = [k for k, p in enumerate(parts) if not isinstance(p, New)]
        chosen = tuple(a for a, k in enumerate(axes) if k in advanced)
        first = advanced[0] if together else 0
        return cls(tuple(parts), chosen, first)

    def order(self, rank: int) -> tuple[int, ...]:
        """Axes after slicing: indexed ones first, then the others."""
        return (*self.picked, *(a for a in range(rank) if a not in self.picked))

    def rest(self, shape: Sequence[Index]) -> tuple[Index, ...]:
        """Extents of axes without index, including new ones."""
        extents = iter(shape)
        found = [(1 if isinstance(p, New) else next(extents), p) for p in self.parts]
        return tuple(e for e, p in found if not (isinstance(p, Picked) or _is_number(p)))

    def indices(self, x: Kind) -> list[Kind]:
        """The broadcast index tensors; those of numbers are 0 after slicing."""
        parts = [p for p in self.parts if isinstance(p, Picked) or _is_number(p)]
        zero = np.zeros((), np.int64)
        given: list[Any] = [p.indices if isinstance(p, Picked) else x.of_array(zero) for p in parts]
        shape = common(*[i.type.shape for i in given])
        return [i.cast(I64).broadcast_to(shape) for i in given]

    def read(self, x: Kind) -> Kind:
        """The elements of the sliced ``x``."""
        indices = self.indices(x)
        wide = len(indices[0].type.shape)
        shape = self.rest(x.type.shape)
        if len(indices) == 1:
            axis = self.picked[0]
            found = x.result(Gather(axis), x, indices[0])
            lead = self.first
            return found.reshape((*shape[:lead], *indices[0].type.shape, *shape[lead:]))
        turned = x.transpose(self.order(x.ndim))
        found = turned.result(GatherND(), turned, _rows(indices))
        found = found.reshape((*indices[0].type.shape, *shape))
        return found.moveaxis(range(wide), range(self.first, self.first + wide))

    def write(self, x: Kind, values: Kind, how: Combination) -> Kind:
        """``x`` with ``values`` written or combined at these indices."""
        indices = self.indices(x)
        wide = len(indices[0].type.shape)
        shape = self.rest(x.type.shape)
        lead = self.first
        full = (*shape[:lead], *indices[0].type.shape, *shape[lead:])
        values = values.broadcast_to(full).moveaxis(range(lead, lead + wide), range(wide))
        order = self.order(x.ndim)
        turned = x.transpose(order)
        kept = turned.type.shape[len(indices) :]
        values = values.reshape((*indices[0].type.shape, *kept))
        made = turned.result(ScatterND(how), turned, _rows(indices), values)
        return made.transpose([order.index(a) for a in range(x.ndim)])


def _is_number(part: Part) -> bool:
    return isinstance(part, Cut) and part.gone


def _rows(indices: Sequence[Kind]) -> Kind:
    """Index tensors as one, stacked along its last axis."""
    columns = [i.expand_dims(i.ndim) for i in indices]
    return columns[0].result(Concat(columns[0].ndim - 1), *columns)


@dataclass(frozen=True)
class Updatable(Generic[Kind]):
    """Modified copies of a tensor, before a subscript."""

    tensor: Kind

    def __getitem__(self, subscript: Any) -> Update[Kind]:
        return Update(self.tensor, subscript)


@dataclass(frozen=True)
class Update(Generic[Kind]):
    """Modified copies of ``tensor`` at ``subscript``; repeated indices accumulate."""

    tensor: Kind
    subscript: Any

    def get(self) -> Kind:
        """The elements."""
        return self.tensor[self.subscript]

    def set(self, values: Any) -> Kind:
        """With ``values``; the last of several for one element wins."""
        return self._written(values, "none")

    def add(self, values: Any) -> Kind:
        """With ``values`` added."""
        return self._written(values, "add")

    def multiply(self, values: Any) -> Kind:
        """Multiplied by ``values``."""
        return self._written(values, "mul")

    def max(self, values: Any) -> Kind:
        """The greater of the elements and ``values``."""
        return self._written(values, "max")

    def min(self, values: Any) -> Kind:
        """The lesser of the elements and ``values``."""
        return self._written(values, "min")

    def _written(self, given: Any, how: Combination) -> Kind:
        x = self.tensor
        values = x.lifted(given).cast(x.type.dtype)
        parts = unmasked(parts_of(self.subscript, x.type.shape, x.lifted))
        places = AdvancedIndex[Kind].of(parts)
        cut = x.cut(parts)
        if places.picked:
            made = places.write(cut, values, how)
        else:
            shape = _extents(parts, cut.type.shape)
            put = values.broadcast_to(shape).reshape(cut.type.shape)
            made = _combined(cut, put, how)
        return _put(x, made, list(_cuts(parts, x.type.shape)))


def _combined(old: Kind, new: Kind, how: Combination) -> Kind:
    match how:
        case "none":
            return new
        case "add":
            return old + new
        case "mul":
            return old * new
        case "max":
            return old.maximum(new)
        case "min":
            return old.minimum(new)


def _put(x: Kind, made: Kind, cuts: Sequence[Cut]) -> Kind:
    """``x`` with ``made`` in place of the slice."""
    if made.type.shape == x.type.shape and all(c.step == 1 for c in cuts):
        return made
    starts = tuple(c.start for c in cuts)
    if all(c.step == 1 for c in cuts):
        return x.result(ReplaceSlice(starts), x, made)
    steps = tuple(c.step for c in cuts)
    back = Unslice(starts, steps, x.type.shape)
    yes = made.of_array(np.ones((), np.bool_))
    mask = yes.result(Expand(made.type.shape), yes)
    return x.result(Where(), mask.result(back, mask), x.result(back, made), x)
