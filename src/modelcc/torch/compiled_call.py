"""A compiled graph callable with PyTorch tensors, passed as pointers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._dynamo.guards import _reinterpret_tensor as reinterpreted

from modelcc.frontends.torch.traced import (
    FromArgument,
    FromOutput,
    FromSizes,
    FromView,
    TracedInterface,
)
from modelcc.ir.index import Expr, compile_shapes
from modelcc.runtime.session import Session
from modelcc.torch.tensor_memory import Shape, TensorMemory

KEPT = 1024
"""Cached layouts per graph; a growing sequence would otherwise fill memory."""


@dataclass(frozen=True)
class CallLayout:
    """State shared by calls with the same sizes.

    ``prepared`` is the argument of running, ``makes`` are extents, strides and dtypes of new
    tensors, ``strides`` those of inputs, ``known`` the results that are sizes, ``views`` extents,
    strides and offsets of those that are views.
    """

    prepared: Any
    makes: tuple[tuple[Shape, Shape, torch.dtype], ...]
    strides: tuple[Shape, ...]
    known: tuple[int, ...]
    views: tuple[tuple[Shape, Shape, int], ...]


class CompiledCall:
    """Called with the arguments of the traced graph in a list, which it empties.

    Safe to call from several threads.  PyTorch's guards and its autograd guarantee types, shapes
    and strides; ``checked`` verifies strides in each call, for arguments computed by operators that
    PyTorch runs.
    """

    def __init__(
        self,
        interface: TracedInterface,
        session: Session,
        memory: TensorMemory,
        checked: bool = False,
    ) -> None:
        """``session`` runs the graph with this ``interface``, whose tensors are in ``memory``."""
        self._boxed_call = True  # on the instance: wrappers copy its dictionary
        self._interface = interface
        self._session = session
        self._memory = memory
        made = enumerate(memory.outputs())
        self._empties = [empty for n, empty in made if n not in interface.in_place]
        self._checked = checked
        self._sizes = tuple(interface.sizes.values())
        self._places = tuple(i.argument for i in interface.inputs)
        plain = (i.dense and not (i.carrier or i.complex or i.number) for i in interface.inputs)
        self._plain = not checked and all(plain)
        outputs = range(len(interface.outputs))
        self._only_outputs = interface.results == tuple(map(FromOutput, outputs))
        self._in_place = sorted(interface.in_place.items())
        self._evaluate = _evaluator(interface)
        self._layouts: dict[Shape, CallLayout] = {}
        self._fixed = None if interface.sizes else self._layout(())

    def __call__(self, arguments: list[Any]) -> Any:
        layout = self._fixed or self._found(arguments)
        outs: list[Any] = [
            empty(*make) for empty, make in zip(self._empties, layout.makes, strict=True)
        ]
        for output, argument in self._in_place:
            outs.insert(output, arguments[argument])
        addresses = [out.data_ptr() for out in outs]
        if self._plain:
            inputs = [arguments[place].data_ptr() for place in self._places]
            self._memory.run(layout.prepared, inputs, addresses)
        else:
            held = self._brought(arguments, layout)
            inputs = [0 if t is None else t.data_ptr() for t in held]
            self._memory.run(layout.prepared, inputs, addresses)
        for check in self._interface.checks:
            held = outs if isinstance(check.value, FromOutput) else arguments
            check.operator(held[check.value.place])
        results = outs if self._only_outputs else self._results(arguments, outs, layout)
        arguments.clear()
        return results[0] if self._interface.single else results

    def unboxed(self, *arguments: Any) -> Any:
        """As a call, with separate arguments."""
        return self(list(arguments))

    def _brought(self, arguments: list[Any], layout: CallLayout) -> list[Any]:
        """Tensors in the layout that the graph requires, copied only if necessary."""
        held: list[Any] = []
        for given, strides in zip(self._interface.inputs, layout.strides, strict=True):
            tensor: Any = None if given.carrier else arguments[given.argument]
            if given.number:
                tensor = torch.tensor([max(tensor, 0), max(-tensor, 0)])
            if given.complex:
                tensor = tensor.resolve_conj()
            if tensor is not None and not given.dense:
                tensor = tensor.contiguous()
            elif tensor is not None and self._checked and tensor.stride() != strides:
                tensor = _with_strides(tensor, strides)
            held.append(tensor)
        return held

    def _results(self, arguments: list[Any], outs: list[Any], layout: CallLayout) -> list[Any]:
        known, views, found = iter(layout.known), iter(layout.views), list[Any]()
        for result in self._interface.results:
            if isinstance(result, FromOutput):
                found.append(outs[result.place])
            elif isinstance(result, FromArgument):
                found.append(arguments[result.place])
            elif isinstance(result, FromView):
                held = outs if isinstance(result.base, FromOutput) else arguments
                found.append(_view(held[result.base.place], result, next(views)))
            else:
                found.append(next(known) if isinstance(result.value, Expr) else result.value)
        return found

    def _found(self, arguments: list[Any]) -> CallLayout:
        sizes = tuple(
            arguments[place] if axis is None else arguments[place].shape[axis]
            for place, axis in self._sizes
        )
        return self._layouts.get(sizes) or self._layout(sizes)

    def _layout(self, sizes: Shape) -> CallLayout:
        interface, shapes = self._interface, iter(self._evaluate(sizes))
        inputs, outputs = len(interface.inputs), len(interface.outputs)
        wanted = tuple(next(shapes) for _ in range(inputs))
        strides = tuple(next(shapes) for _ in range(inputs))
        types = [output.dtype for output in interface.outputs]
        makes = [(next(shapes), next(shapes), types[n]) for n in range(outputs)]
        makes = [make for n, make in enumerate(makes) if n not in interface.in_place]
        known = next(shapes)
        views = tuple((shape, next(shapes), next(shapes)[0]) for shape in shapes)
        prepared = self._memory.prepared(self._session.signature(wanted))
        made = CallLayout(prepared, tuple(makes), strides, known, views)
        if len(self._layouts) >= KEPT:
            self._layouts = {}
        self._layouts[sizes] = made
        return made


def _evaluator(interface: TracedInterface) -> Callable[[Shape], tuple[Shape, ...]]:
    """A function from sizes to: shapes and strides of inputs, both of each output, the sizes among
    results, and shape, strides and offset of each view."""
    values = [r.value for r in interface.results if isinstance(r, FromSizes)]
    views = [r for r in interface.results if isinstance(r, FromView)]
    shapes = [
        *(i.shape for i in interface.inputs),
        *(i.strides for i in interface.inputs),
        *(one for o in interface.outputs for one in (o.shape, o.strides)),
        [value for value in values if isinstance(value, Expr)],
        *(one for v in views for one in (v.shape, v.strides, [v.offset])),
    ]
    return compile_shapes(shapes, tuple(interface.sizes))


def _with_strides(tensor: torch.Tensor, strides: Shape) -> torch.Tensor:
    """A copy with these ``strides``."""
    made = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)


def _view(base: Any, view: FromView, place: tuple[Shape, Shape, int]) -> Any:
    """``view`` in the memory of ``base``, at offset ``place`` in elements of its own type."""
    shape, strides, offset = place
    if view.dtype == base.dtype:
        found = reinterpreted(base, shape, strides, offset)
    else:
        start = base.storage_offset() * base.element_size() // view.dtype.itemsize
        memory, empty = base.untyped_storage(), torch.empty(0, dtype=view.dtype, device=base.device)
        found = empty.set_(memory, start + offset, shape, strides)
    found = found.conj() if view.conjugate else found
    return torch._neg_view(found) if view.negative else found
