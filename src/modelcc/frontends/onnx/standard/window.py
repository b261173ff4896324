"""Geometry of convolutions and poolings: kernel, strides, dilations and pads of a node."""

from __future__ import annotations

from dataclasses import dataclass, replace

from modelcc.frontends.onnx.call import Call
from modelcc.ir.index import Index, ceildiv, compare, floordiv, maximum, minimum, mod, simplify

Numbers = tuple[int, ...]
Extents = tuple[Index, ...]


@dataclass(frozen=True)
class Geometry:
    """A sliding window, one entry per spatial axis, with automatic pads resolved."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    before: tuple[Index, ...]
    after: tuple[Index, ...]
    dilations: tuple[int, ...]
    ceil_mode: bool = False

    @property
    def steps(self) -> tuple[Numbers, Extents, Extents, Numbers]:
        """All but the kernel, in the order of the ops' attributes."""
        return self.strides, self.before, self.after, self.dilations


def spatial(call: Call) -> tuple[Index, ...]:
    """Spatial extents of operand 0; :class:`ModelError` if it has none."""
    if call.rank() < 3:
        call.fail(f"expected batch, channels and spatial axes, not {call.type()}")
    return call.shape()[2:]


def geometry(call: Call, kernel: tuple[int, ...], crops: bool = False) -> Geometry:
    """The window of a convolution or pooling with this kernel.

    Automatic pads for strides larger than the window are negative if ``crops``, else 0.
    """
    sizes = spatial(call)
    rank = len(sizes)
    if len(kernel) != rank:
        call.fail(f"a kernel of {len(kernel)} axes for {rank} spatial axes")
    strides = per_axis(call, "strides", rank)
    dilations = per_axis(call, "dilations", rank)
    before, after = _pads(call, sizes, kernel, strides, dilations, crops)
    return Geometry(kernel, strides, before, after, dilations)


def pooled(call: Call, inside: bool = False) -> Geometry:
    """The window of a pooling.

    As in onnxruntime, one larger than its padded input has one position, unless it exceeds it by
    its stride or more: numbers of steps are rounded towards zero.  Its excess over the input is
    padding, or if ``inside`` is not counted, as for a partial window.
    """
    window = geometry(call, call.attrs.integers("kernel_shape"), crops=True)
    for name, pads in (("before", window.before), ("after", window.after)):
        if any(compare(p, ">=", k, {}) for p, k in zip(pads, window.kernel, strict=True)):
            call.fail(f"pads {name} of {list(pads)} leave windows {list(window.kernel)} of nothing")
    if call.attrs.flag("ceil_mode"):
        return replace(window, ceil_mode=True)
    sides = zip(spatial(call), window.before, window.after, strict=True)
    reaches = ((k - 1) * d + 1 for k, d in zip(window.kernel, window.dilations, strict=True))
    rooms = [size + b + a - reach for (size, b, a), reach in zip(sides, reaches, strict=True)]
    axes = list(zip(rooms, window.after, window.strides, strict=True))
    if all(_rounds_alike(call, room, stride) for room, _, stride in axes):
        return window
    fit = _flush if inside else _reaching
    return replace(window, after=tuple(fit(call, *axis) for axis in axes), ceil_mode=inside)


def _rounds_alike(call: Call, room: Index, stride: int) -> bool:
    """Whether rounding towards zero or down gives the same number of steps."""
    return stride == 1 or bool(compare(room, ">=", 0, call.bounds))


def _reaching(call: Call, room: Index, after: Index, stride: int) -> Index:
    """Padding up to the end of a single oversized window."""
    if _rounds_alike(call, room, stride):
        return after
    return simplify(after + minimum(maximum(-room, 0), stride - 1), call.bounds)


def _flush(call: Call, room: Index, after: Index, stride: int) -> Index:
    """Padding without elements that no window reads, with which ``ceil_mode`` adds only a single
    oversized one."""
    return simplify(after - mod(maximum(room, 0), stride), call.bounds)


def per_axis(call: Call, name: str, rank: int) -> tuple[int, ...]:
    """An attribute with a positive number per spatial axis; 1 if absent."""
    values = call.attrs.integers(name, (1,) * rank)
    if len(values) != rank:
        call.fail(f"{name} {list(values)} has not {rank} entries, one for each spatial axis")
    if any(v < 1 for v in values):
        call.fail(f"{name} {list(values)} must be positive")
    return values


Pads = tuple[tuple[Index, ...], tuple[Index, ...]]


def explicit_pads(call: Call, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The attribute ``pads``: all starts, then all ends."""
    pads = call.attrs.integers("pads", (0,) * 2 * rank)
    if len(pads) != 2 * rank:
        call.fail(f"pads {list(pads)} has not {2 * rank} entries, two for each spatial axis")
    return pads[:rank], pads[rank:]


def _pads(
    call: Call,
    sizes: tuple[Index, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    crops: bool,
) -> Pads:
    mode = call.attrs.text("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        return explicit_pads(call, len(sizes))
    if mode == "VALID":
        return (0,) * len(sizes), (0,) * len(sizes)
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        call.fail(f"unknown auto_pad {mode!r}")
    totals = tuple(
        _same_total(call, size, (k - 1) * d + 1, s, crops)
        for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True)
    )
    return halves(totals, mode == "SAME_UPPER") if not crops else _cropped(call, totals, mode)


def halves(totals: tuple[Index, ...], upper: bool) -> Pads:
    """Pads split evenly; the odd element goes to the end if ``upper``."""
    smaller = tuple(floordiv(t, 2) for t in totals)
    larger = tuple(t - s for t, s in zip(totals, smaller, strict=True))
    return (smaller, larger) if upper else (larger, smaller)


def _cropped(call: Call, totals: tuple[Index, ...], mode: str) -> Pads:
    """Pads with the smaller side rounded towards zero if negative, as in onnxruntime."""
    odd = 0 if mode == "SAME_UPPER" else 1
    before = tuple(
        simplify(floordiv(maximum(t + odd, 0), 2) - floordiv(maximum(-t - odd, 0), 2), call.bounds)
        for t in totals
    )
    return before, tuple(t - b for t, b in zip(totals, before, strict=True))


def _same_total(call: Call, size: Index, reach: int, stride: int, crops: bool) -> Index:
    """Padding for an output of ``ceil(size / stride)``; negative if it ``crops``."""
    if stride == 1:
        return reach - 1
    needed = (ceildiv(size, stride) - 1) * stride + reach - size
    return needed if crops or reach >= stride else simplify(maximum(needed, 0), call.bounds)
