"""The named dimensions of traced inputs: names, bounds, and where each first occurs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from modelcc.frontends.torch.sizes import symbol_of, symbols_of
from modelcc.ir.index import Index, Range, Sym

Dims = Mapping[str, int | Range]
TracedInput = tuple[str, Any, Sequence[str | None]]
"""Name, the traced example, and the user's names of its dimensions, where given."""


@dataclass(frozen=True)
class Dimensions:
    """``names`` are sizes by PyTorch's symbols, ``bounds`` and ``places`` by their own names.

    A place is an input's position and an axis.
    """

    names: dict[str, Index] = field(default_factory=dict[str, Index])
    bounds: dict[str, Range] = field(default_factory=dict[str, Range])
    places: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])


def dimensions(
    inputs: Iterable[TracedInput], bounds: Callable[[Any], Range], dims: Dims
) -> Dimensions:
    """The dimensions of ``inputs``, each a symbol of PyTorch's with its ``bounds``.

    Named by the user, else ``<input>_d<axis>`` after its first occurrence; ``dims`` fixes sizes or
    other bounds by these names.
    """
    found = Dimensions()
    for position, (name, traced, labels) in enumerate(inputs):
        sizes = traced.shape if isinstance(traced, torch.Tensor) else ()
        for axis, size in enumerate(sizes):
            symbol = symbol_of(size)
            if symbol is None or symbol in found.names:
                continue
            own = labels[axis] if axis < len(labels) else None
            label = own or f"{name}_d{axis}"
            given = dims.get(label, bounds(size))
            found.places[label] = (position, axis)
            found.names[symbol] = given if isinstance(given, int) else Sym(label)
            if isinstance(given, Range):
                found.bounds[label] = given
    return found


def with_roots(
    found: Dimensions, inputs: Iterable[TracedInput], bounds: Callable[[str], Range], dims: Dims
) -> Dimensions:
    """``found``, and symbols that occur only within expressions, as ``s`` of an even extent
    ``2*s``.

    Named ``<input>_d<axis>_<symbol>`` after the first extent that mentions it.
    """
    for position, (name, traced, _) in enumerate(inputs):
        sizes = traced.shape if isinstance(traced, torch.Tensor) else ()
        for axis, size in enumerate(sizes):
            for symbol in symbols_of(size):
                if symbol in found.names:
                    continue
                label = f"{name}_d{axis}_{symbol}"
                given = dims.get(label, bounds(symbol))
                found.places[label] = (position, axis)
                found.names[symbol] = given if isinstance(given, int) else Sym(label)
                if isinstance(given, Range):
                    found.bounds[label] = given
    return found


def proved_range(size: Any) -> Range:
    """The range that PyTorch has proved of a ``SymInt`` that is a single symbol; unbounded for
    others."""
    node = size.node
    known = node.shape_env.var_to_range.get(node.expr)
    return Range() if known is None or not known.lower >= 0 else range_of(known)


def range_of(known: Any) -> Range:
    """Bounds of a PyTorch range; its largest integer means unbounded."""
    if known is None:
        return Range(0, None)
    low, high = (
        int(e) if isinstance(e, sympy.Integer) else None for e in (known.lower, known.upper)
    )
    return Range(max(0, low or 0), high if high is not None and high < 2**31 else None)
