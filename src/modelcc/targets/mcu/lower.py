"""Canonical kernels as loop functions for microcontrollers.

Products of bytes are computed by the routines of :mod:`modelcc.targets.isa`; everything else as on
any processor, one element at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from modelcc.ir.loop import Function, Stmt
from modelcc.ir.types import Layout
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.schedule import Schedule
from modelcc.targets.cpu.lower import schedule_kernel as schedule_plain
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.scheduled_kernel import ScheduledKernel, buffer_parameter
from modelcc.targets.mcu import convolution, dense, depthwise
from modelcc.targets.mcu.convolution import ByColumns
from modelcc.targets.mcu.dense import Dense
from modelcc.targets.mcu.depthwise import Depthwise
from modelcc.targets.mcu.products import Product, find_product


class _Way(NamedTuple):
    """How a product may be computed, and the layout that its weights have then."""

    fits: Callable[[Product], bool]
    make: Callable[[Product, FreshNames], ByColumns | Dense | Depthwise]
    layout: Layout


_WAYS = (
    _Way(convolution.fits, ByColumns, convolution.PAIRS),
    _Way(dense.fits, Dense, dense.FOURS),
    _Way(depthwise.fits, Depthwise, depthwise.BY_FOURS),
)


def schedule_kernel(
    kernel: CanonicalKernel,
    name: str,
    machine: CpuModel,
    source: tuple[str, ...] = (),
    wanted: Schedule | None = None,
    states: frozenset[tuple[str, str]] = frozenset(),
) -> ScheduledKernel:
    """The function ``name`` of a kernel: see :func:`modelcc.targets.cpu.lower.schedule_kernel`."""
    product = find_product(kernel) if wanted is None else None
    if product is not None:
        for way in _WAYS:
            if way.fits(product):
                body = way.make(product, FreshNames()).statements()
                return _scheduled(kernel, name, source, body, product, way.layout)
    return schedule_plain(kernel, name, machine, source, wanted, states)


def _scheduled(
    kernel: CanonicalKernel,
    name: str,
    source: tuple[str, ...],
    body: Sequence[Stmt],
    product: Product,
    layout: Layout,
) -> ScheduledKernel:
    types = dict(kernel.types)
    types[product.weights] = types[product.weights].with_layout(layout)
    nothing = frozenset[str]()
    parameters = [buffer_parameter(n, types[n], False, nothing) for n in kernel.inputs]
    parameters += [buffer_parameter(n, types[n], True, nothing) for n in kernel.outputs]
    function = Function(name, tuple(parameters), (), tuple(body), source)
    return ScheduledKernel(function, {product.weights: layout}, ())
