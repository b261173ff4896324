"""Epilogues on the axes of their kernel where a reshape lies in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from modelcc.ir.index import Index, Sym, product, substitute, symbols
from modelcc.ir.naming import Names
from modelcc.ir.scalar_tree import map_own_indices, own_indices, reads, transform, walk
from modelcc.ir.tensor import (
    Axis,
    Bind,
    Item,
    Kernel,
    Read,
    Scalar,
    Stage,
    TensorProgram,
    View,
    item_inputs,
    item_outputs,
)
from modelcc.ir.types import TensorType
from modelcc.passes.tensor.fused_kernel import with_stages
from modelcc.passes.tensor.unify_axes import Place


@dataclass(frozen=True)
class EpilogueAxes:
    """A pointwise stage that reads a kernel's result through a view is reshaped to that result.

    Views of its other operands, and of its result, compensate, so that a product, say, and its
    epilogue can be one kernel, however often this reads the result.  A stage is unchanged if an
    operand has only some of the axes that the view joins or splits, or is defined later, which
    fusion does not wait for.

    before::

        program @main(%a: f32[6, 8], %b: f32[8, 4], %x: f32[2, 3, 4]) -> (%y) {
          kernel @Gemm(%a: f32[6, 8], %b: f32[8, 4]) -> (%c: f32[6, 4]) {
            %c: f32[6, 4] = [i < 6, j < 4] sum[k < 8] %a[i, k] * %b[k, j]
          }
          view %v: f32[2, 3, 4] = %c
          kernel @Add(%v: f32[2, 3, 4], %x: f32[2, 3, 4]) -> (%y: f32[2, 3, 4]) {
            %y: f32[2, 3, 4] = [l < 2, m < 3, n < 4] %v[l, m, n] * %v[l, m, n] + %x[l, m, n]
          }
        }

    after::

        program @main(%a: f32[6, 8], %b: f32[8, 4], %x: f32[2, 3, 4]) -> (%y) {
          kernel @Gemm(%a: f32[6, 8], %b: f32[8, 4]) -> (%c: f32[6, 4]) {
            %c: f32[6, 4] = [i < 6, j < 4] sum[k < 8] %a[i, k] * %b[k, j]
          }
          view %x.view: f32[6, 4] = %x
          kernel @Add(%c: f32[6, 4], %x.view: f32[6, 4]) -> (%y.flat: f32[6, 4]) {
            %y.flat: f32[6, 4] = [i0 < 6, i1 < 4] %c[i0, i1] * %c[i0, i1] + %x.view[i0, i1]
          }
          view %y: f32[2, 3, 4] = %y.flat
        }
    """

    def __call__(self, program: TensorProgram) -> TensorProgram:
        done = _Epilogues(program)
        for position, item in enumerate(program.items):
            done.add(item, position)
        return replace(program, types=done.types).with_items(done.read_items())


Run = tuple[tuple[Axis, ...], tuple[Axis, ...]]
"""Axes that are joined or split, and those that replace them."""


@dataclass(frozen=True)
class _Regrouping:
    """The mapping of ``old`` axes to those of another shape, ``new``.

    ``values`` are the new values of axes that are neither joined nor split; ``runs``, by their
    first axes, are the others.
    """

    old: tuple[Axis, ...]
    new: tuple[Axis, ...]
    values: Mapping[str, Index]
    runs: Mapping[str, Run]

    @staticmethod
    def of(old: tuple[Axis, ...], shape: Sequence[Index]) -> _Regrouping | None:
        """To a ``shape`` of equally many elements; None if the equality is not provable."""
        new = tuple(Axis(f"i{dim}", extent) for dim, extent in enumerate(shape))
        groups = _groups(_long(old), _long(new))
        if groups is None:
            return None
        single = {a.name: Sym(b[0].name) for (a, *more), b in groups if not more and len(b) == 1}
        runs = {a[0].name: (a, b) for a, b in groups if a[0].name not in single}
        return _Regrouping(old, new, {**_units(old), **single}, runs)

    def index(self, index: Index) -> Index | None:
        """An index of unchanged axes in terms of the new ones; None if it uses others."""
        moved = {a.name for first, _ in self.runs.values() for a in first}
        return None if symbols(index) & moved else substitute(index, self.values)

    def place(self, read: Read, shape: tuple[Index, ...]) -> tuple[Place, Place] | None:
        """Indices of ``read``, from a tensor of ``shape``, on the new axes, and the view's shape;
        None if no view compensates for the axes."""
        if shape == _extents(self.old) and _is_own_point(read, self.old):
            return _indices(self.new), _extents(self.new)
        places, extents = list[Index](), list[Index]()
        dim = 0
        while dim < len(shape):
            first = read.indices[dim]
            run = self.runs.get(first.name) if isinstance(first, Sym) else None
            if run is None:
                index = self.index(first)
                if index is None:
                    return None
                own, more, count = (index,), (shape[dim],), 1
            else:
                own, more, count = _indices(run[1]), _extents(run[1]), len(run[0])
                part = slice(dim, dim + count)
                if (read.indices[part], shape[part]) != (_indices(run[0]), _extents(run[0])):
                    return None
            places += own
            extents += more
            dim += count
        return tuple(places), tuple(extents)


def _groups(old: Sequence[Axis], new: Sequence[Axis]) -> list[Run] | None:
    """The shortest runs of both with equal numbers of points."""
    ends, others = ({n: at for at, n in enumerate(_points(axes))} for axes in (old, new))
    cuts = [(at, others[n]) for n, at in ends.items() if n in others]
    if cuts[-1] != (len(old), len(new)) or 0 in ends:
        return None
    return [(tuple(old[a:c]), tuple(new[b:d])) for (a, b), (c, d) in pairwise(cuts)]


def _points(axes: Sequence[Axis]) -> list[Index]:
    """Numbers of points of the first 0, 1, 2 … axes."""
    return [product(_extents(axes)[:count]) for count in range(len(axes) + 1)]


def _long(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    return tuple(a for a in axes if a.extent != 1)


def _units(axes: Sequence[Axis]) -> dict[str, Index]:
    return {a.name: 0 for a in axes if a.extent == 1}


def _extents(axes: Sequence[Axis]) -> Place:
    return tuple(a.extent for a in axes)


def _indices(axes: Sequence[Axis]) -> Place:
    return tuple(Sym(a.name) for a in axes)


def _is_own_point(read: Read, axes: Sequence[Axis]) -> bool:
    """Whether it reads the element at the axes."""
    own, units = _indices(axes), _units(axes)
    here = (tuple(substitute(i, units) for i in place) for place in (read.indices, own))
    return len(set(here)) == 1


class _Epilogues:
    """The program as rewritten so far.

    ``home`` is the position of the earliest item after which a tensor can be computed; ``computed``
    are results of kernels.
    """

    def __init__(self, program: TensorProgram) -> None:
        self.types = dict(program.types)
        self._items: list[Item] = []
        self._program = program
        self._names = Names(program.types)
        self._written = Counter(n for item in program.items for n in item_outputs(item))
        self._home: dict[str, int] = {}
        self._computed: set[str] = set()
        self._views: dict[str, View] = {}
        self._shaped: dict[tuple[str, Place], str] = {}

    def add(self, item: Item, position: int) -> None:
        """Adds the next item of the program, which is at ``position`` in it."""
        match item:
            case View():
                self._view(item)
            case Kernel(stages=(stage,)) if self._is_pointwise(stage):
                self._pointwise(item, position)
            case _:
                self._keep(item, position)

    def read_items(self) -> tuple[Item, ...]:
        """All items except unused views."""
        read, kept = set(self._program.outputs), list[Item]()
        for item in reversed(self._items):
            if not isinstance(item, View) or item.output in read:
                kept.append(item)
                read.update(item_inputs(item))
        return tuple(reversed(kept))

    def _keep(self, item: Item, home: int) -> None:
        self._items.append(item)
        self._home |= dict.fromkeys(item_outputs(item), home)
        if isinstance(item, Kernel):
            self._computed.update(item.outputs)

    def _view(self, view: View) -> None:
        self._keep(view, self._home.get(view.input, -1))
        self._views[view.output] = view

    def _is_pointwise(self, stage: Stage) -> bool:
        """Whether it defines a whole tensor, which may be a view, element by element."""
        name, body = stage.output, stage.body
        tensors = {name, *(r.tensor for r in reads(body))}
        plain = all(self.types[n].layout is None for n in tensors)
        alone = self._written[name] == 1 and name not in self._program.states
        fills = not stage.reduce and stage.write == _indices(stage.axes)
        return plain and alone and fills and not any(isinstance(s, Bind) for s in walk(body))

    def _pointwise(self, kernel: Kernel, position: int) -> None:
        """Adds a pointwise kernel, a candidate for an epilogue."""
        (stage,) = kernel.stages
        home = max((self._home.get(n, -1) for n in kernel.inputs), default=-1)
        last = [r for r in reads(stage.body) if self._home.get(r.tensor, -1) == home]
        bases = [self._base(r.tensor) for r in last]
        follows = all(b in self._computed and self._written[b] < 2 for b in bases)
        if home < 0 or not follows or not all(_is_own_point(r, stage.axes) for r in last):
            self._keep(kernel, position)
        elif not any(r.tensor in self._views for r in last):
            self._keep(kernel, home)
        else:
            self._regroup(kernel, self.types[bases[0]].shape, home, position)

    def _regroup(self, kernel: Kernel, shape: Place, home: int, position: int) -> None:
        """The kernel on axes of ``shape``, if possible."""
        (stage,) = kernel.stages
        regrouping = _Regrouping.of(stage.axes, shape)
        body = self._body(stage.body, regrouping) if regrouping else None
        if regrouping is None or body is None:
            self._keep(kernel, position)
            return
        name = self._names.fresh(f"{stage.output}.flat")
        own = Stage(name, regrouping.new, _indices(regrouping.new), body)
        self.types[name] = TensorType(shape, body.dtype)
        self._keep(with_stages(replace(kernel, outputs=(name,)), (own,)), home)
        self._view(View(stage.output, name, kernel.source))

    def _body(self, body: Scalar, regrouping: _Regrouping) -> Scalar | None:
        """``body`` on the new axes; None if impossible."""
        places = {r: regrouping.place(r, self.types[r.tensor].shape) for r in reads(body)}
        others = (i for s in walk(body) if not isinstance(s, Read) for i in own_indices(s))
        if None in places.values() or any(regrouping.index(i) is None for i in others):
            return None
        views = {r: self._as_shape(r.tensor, place[1]) for r, place in places.items() if place}

        def visit(node: Scalar) -> Scalar:
            place = places.get(node) if isinstance(node, Read) else None
            if isinstance(node, Read) and place is not None:
                return replace(node, tensor=views[node], indices=place[0])
            return map_own_indices(node, lambda i: substitute(i, regrouping.values))

        return transform(body, visit)

    def _base(self, name: str) -> str:
        """The base of the view ``name``."""
        while name in self._views:
            name = self._views[name].input
        return name

    def _as_shape(self, name: str, shape: Place) -> str:
        """``name`` in another shape: its base, or a new view."""
        base = self._base(name)
        for known in (name, base):
            if self.types[known].shape == shape:
                return known
        if (base, shape) not in self._shaped:
            view = self._names.fresh(f"{base}.view")
            self._shaped[base, shape] = view
            self.types[view] = replace(self.types[base], shape=shape)
            self._view(View(view, base))
        return self._shaped[base, shape]
