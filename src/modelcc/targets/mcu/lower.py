"""Canonical kernels as loop functions for microcontrollers.

Products of bytes are computed by the routines of :mod:`modelcc.targets.isa`; everything else by
generic scalar code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from modelcc.ir.index import Index, substitute
from modelcc.ir.loop import Function, Stmt
from modelcc.ir.types import Layout, TensorType
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.schedule import Schedule
from modelcc.targets.cpu.lower import schedule_kernel as schedule_plain
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.scheduled_kernel import ScheduledKernel, buffer_parameter
from modelcc.targets.mcu import convolution, dense, depthwise, helium, helium_depthwise
from modelcc.targets.mcu.convolution import ByColumns
from modelcc.targets.mcu.dense import Dense
from modelcc.targets.mcu.depthwise import Depthwise
from modelcc.targets.mcu.helium import ByVectors
from modelcc.targets.mcu.helium_depthwise import DepthwiseByVectors
from modelcc.targets.mcu.products import Product, find_product
from modelcc.targets.mcu.some_rows import SomeRows, some_rows


class ProductSchedule(Protocol):
    """A processor-specific schedule of a product."""

    def statements(self) -> list[Stmt]:
        """All statements."""
        ...

    def layouts(self, types: Mapping[str, TensorType]) -> dict[str, Layout]:
        """The layouts of its constants."""
        ...


class _Way(NamedTuple):
    """An alternative for computing a product."""

    fits: Callable[[Product], bool]
    make: Callable[[Product, FreshNames, SomeRows | None], ProductSchedule]


_WAYS = (
    _Way(convolution.fits, ByColumns),
    _Way(dense.fits, Dense),
    _Way(depthwise.fits, Depthwise),
)

_HELIUM = (_Way(helium.fits, ByVectors), _Way(helium_depthwise.fits, DepthwiseByVectors))


def schedule_kernel(
    kernel: CanonicalKernel,
    name: str,
    machine: CpuModel,
    source: tuple[str, ...] = (),
    wanted: Schedule | None = None,
    states: frozenset[tuple[str, str]] = frozenset(),
    mve: bool = False,
) -> ScheduledKernel:
    """The function ``name`` of a kernel: see :func:`modelcc.targets.cpu.lower.schedule_kernel`.

    ``mve`` if the processor has Helium.
    """
    some = some_rows(kernel) if wanted is None else None
    product = find_product(kernel if some is None else some.kernel) if wanted is None else None
    if product is not None:
        for way in (*(_HELIUM if mve else ()), *_WAYS):
            if way.fits(product):
                names = FreshNames()
                own = way.make(product, names, some)
                body = (*own.statements(), *_filled(product, some, names))
                return _scheduled(kernel, name, source, own, body, some)
    return schedule_plain(kernel, name, machine, source, wanted, states)


def _filled(product: Product, some: SomeRows | None, names: FreshNames) -> tuple[Stmt, ...]:
    """Fills rows outside of the image."""
    if some is None:
        return ()
    nest = next(n for n in product.nests if n.output in product.stored)
    start = substitute(nest.store, {v.name: 0 for v in nest.variables})
    return some.filled(nest.output, start, product.points * product.rows, names)


def _scheduled(
    kernel: CanonicalKernel,
    name: str,
    source: tuple[str, ...],
    own: ProductSchedule,
    body: tuple[Stmt, ...],
    some: SomeRows | None,
) -> ScheduledKernel:
    types = dict(kernel.types)
    layouts = own.layouts(types)
    types |= {n: types[n].with_layout(layout) for n, layout in layouts.items()}
    nothing = frozenset[str]()
    parameters = [buffer_parameter(n, types[n], False, nothing) for n in kernel.inputs]
    parameters += [buffer_parameter(n, types[n], True, nothing) for n in kernel.outputs]
    sizes = dict[str, Index]() if some is None else some.sizes
    function = Function(name, tuple(parameters), tuple(sizes), body, source)
    return ScheduledKernel(function, layouts, (), sizes=sizes)
