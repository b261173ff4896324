"""One function for kernels that differ in the names of sizes computed at run time.

Every layer of a model that computes sizes reads its own, each under its own name::

    y0[a0] = x0[a0 + v7_first]     a0 < v7_count <= time
    y0[a0] = x0[a0 + v9_first]     a0 < v9_count <= time

are both the function of ``y0[a0] = x0[a0 + size1]``, ``a0 < size0 <= time``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from modelcc.ir.dimensions import bind_type
from modelcc.ir.index import Index, Range, Sym, substitute, symbols
from modelcc.ir.scalar_tree import index_symbols, substitute_stage
from modelcc.schedule.canonical import CanonicalKernel


def with_free_sizes(
    kernel: CanonicalKernel, read: Collection[str]
) -> tuple[CanonicalKernel, Mapping[str, Index]]:
    """``kernel`` with the symbols ``read`` renamed ``size0…`` in order of occurrence, and their
    values."""
    names = {name for name, _ in kernel.dims}
    if names.isdisjoint(read):
        return kernel, {}
    own = list(dict.fromkeys(name for name in _mentioned(kernel) if name in read))
    new = [f"size{number}" for number in range(len(own))]
    if not names.isdisjoint(new):
        return kernel, {}
    values = dict(zip(own, map(Sym, new), strict=True))
    dims = ((_name(name, values), _range(bounds, values)) for name, bounds in kernel.dims)
    renamed = replace(
        kernel,
        stages=tuple(substitute_stage(stage, values) for stage in kernel.stages),
        types=tuple((name, bind_type(type_, values)) for name, type_ in kernel.types),
        dims=tuple(sorted(dims, key=lambda dim: dim[0])),
        internal=tuple((name, bind_type(type_, values)) for name, type_ in kernel.internal),
    )
    return renamed, {name: Sym(old) for old, name in zip(own, new, strict=True)}


def _mentioned(kernel: CanonicalKernel) -> Iterator[str]:
    for _, type_ in (*kernel.types, *kernel.internal):
        for extent in type_.shape:
            yield from sorted(symbols(extent))
    for stage in kernel.stages:
        for axis in (*stage.axes, *stage.reduce):
            yield from sorted(symbols(axis.extent))
        for index in stage.write:
            yield from sorted(symbols(index))
        yield from sorted(index_symbols(stage.body))
    for _, bounds in kernel.dims:
        for end in (bounds.lo, bounds.hi):
            yield from sorted(symbols(end)) if end is not None else ()


def _name(name: str, values: Mapping[str, Sym]) -> str:
    return values[name].name if name in values else name


def _range(bounds: Range, values: Mapping[str, Index]) -> Range:
    lo, hi = (None if end is None else substitute(end, values) for end in (bounds.lo, bounds.hi))
    return Range(lo, hi)
