"""Chains of kernels by rows: rows of each image per iteration, and their delay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from modelcc.ir.tensor import Kernel, TensorProgram, item_inputs
from modelcc.ir.types import TensorType
from modelcc.passes.tensor.row_windows import NoRowsError, RowKernel, RowSum, row_kernel, row_sum


@dataclass(frozen=True)
class RowImage:
    """Rows of an image in an iteration: ``rows`` new ones, of which the last is number
    ``rows*(turn + 1) - lag - 1``, after ``kept`` older ones; ``pad`` is beyond its ends."""

    dim: int
    extent: int
    rows: int
    lag: int
    kept: int
    pad: float | int | bool


@dataclass(frozen=True)
class RowStream:
    """Kernels in a loop of ``trips`` iterations, and a sum of the last one's rows, if any."""

    kernels: tuple[RowKernel, ...]
    total: RowSum | None
    images: Mapping[str, RowImage]
    trips: int

    @property
    def exact(self) -> bool:
        """Whether the iterations compute exactly the rows of the last image."""
        last = self.images[self.kernels[-1].output]
        return self.total is not None or last.extent % last.rows == 0


def row_stream(program: TensorProgram, first: int, last: int, rows: int) -> RowStream:
    """Items ``first`` to ``last`` by ``rows`` of the last image per iteration; :class:`NoRowsError`
    if they are not computed by rows, or others need intermediates."""
    items = program.items[first : last + 1]
    kernels = [item for item in items if isinstance(item, Kernel)]
    if len(kernels) < max(2, len(items)) or rows < 1:
        raise NoRowsError
    for total, found in _by_rows(kernels, program.types):
        with suppress(NoRowsError):
            return _checked(program, first, last, rows, total, found)
    raise NoRowsError


def _checked(
    program: TensorProgram,
    first: int,
    last: int,
    rows: int,
    total: RowSum | None,
    found: tuple[RowKernel, ...],
) -> RowStream:
    """The stream of kernels by rows."""
    if any(w.tensor in program.constants for k in found for w in k.windows):
        raise NoRowsError
    _check_apart(program, first, last, [k.output for k in found[: None if total else -1]])
    images = _images(found, rows, whole=total is None)
    name = found[-1].output
    end = images[name]
    stream = RowStream(found, total, images, -(-(end.extent + end.lag) // end.rows))
    readers = [item for item in program.items[last + 1 :] if name in item_inputs(item)]
    others = name in program.outputs or not all(isinstance(item, Kernel) for item in readers)
    if others and not stream.exact:
        raise NoRowsError
    return stream


def _by_rows(
    kernels: Sequence[Kernel], types: Mapping[str, TensorType]
) -> Iterator[tuple[RowSum | None, tuple[RowKernel, ...]]]:
    """Kernels by rows: without the last one if that is a sum of rows, and for every dimension of
    the last image."""
    with suppress(NoRowsError):
        total = row_sum(kernels[-1], types)
        window = total.window
        if kernels[-2].outputs[0] == window.tensor:
            yield total, _row_kernels(kernels[:-1], {window.tensor: window.dim}, types)
    name = kernels[-1].outputs[0]
    for dim in (n for n, extent in enumerate(types[name].shape) if extent != 1):
        with suppress(NoRowsError):
            yield None, _row_kernels(kernels, {name: dim}, types)


def _row_kernels(
    kernels: Sequence[Kernel], dims: dict[str, int], types: Mapping[str, TensorType]
) -> tuple[RowKernel, ...]:
    """Kernels by the rows that their readers need."""
    found: list[RowKernel] = []
    made = {k.outputs[0] for k in kernels}
    for kernel in reversed(kernels):
        if kernel.outputs[0] not in dims:
            raise NoRowsError
        one = row_kernel(kernel, dims[kernel.outputs[0]], types)
        windows = {w.tensor: w for w in one.windows}
        for name in kernel.inputs:
            if name in made and name not in windows:
                raise NoRowsError
            if name in made and dims.setdefault(name, windows[name].dim) != windows[name].dim:
                raise NoRowsError
        found.insert(0, one)
    return tuple(found)


def _check_apart(program: TensorProgram, first: int, last: int, inside: Sequence[str]) -> None:
    """Raises :class:`NoRowsError` if other items need intermediates of a chain."""
    others = (*program.items[:first], *program.items[last + 1 :])
    needed = {*program.outputs, *(n for item in others for n in item_inputs(item))}
    if not needed.isdisjoint(inside):
        raise NoRowsError


def _images(kernels: Sequence[RowKernel], last: int, whole: bool) -> dict[str, RowImage]:
    """Images of kernels, of which the last one has ``last`` rows; if it is made ``whole``, the
    first iterations compute none of its rows or all of them."""
    made = {k.output: k for k in kernels}
    rows = {kernels[-1].output: last}
    for kernel in reversed(kernels):
        for w in kernel.windows:
            own = w.scale * rows[kernel.output]
            if w.tensor in made and rows.setdefault(w.tensor, own) != own:
                raise NoRowsError
    lags: dict[str, int] = {}
    kept = dict.fromkeys(made, 0)
    pads: dict[str, float | int | bool] = {}
    for kernel in kernels:
        within = [w for w in kernel.windows if w.tensor in made]
        late = (-(-(lags[w.tensor] + w.last + 1 - w.scale) // w.scale) for w in within)
        lag = max(0, *late, 0)
        if whole and kernel is kernels[-1]:
            lag = -(-lag // last) * last
        lags[kernel.output] = lag
        for w in within:
            kept[w.tensor] = max(kept[w.tensor], w.scale * lag - w.first - lags[w.tensor])
            if w.pad is not None and pads.setdefault(w.tensor, w.pad) != w.pad:
                raise NoRowsError
    return {
        n: RowImage(k.dim, k.extent, rows[n], lags[n], kept[n], pads.get(n, 0))
        for n, k in made.items()
    }
