"""Handlers of poolings with windows at random positions.

Source: Graham, "Fractional max-pooling", 2014.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from modelcc.frontends.kit.errors import number_of
from modelcc.frontends.torch.aten import Aten, Handler, table
from modelcc.frontends.torch.pooling import place_of_greatest
from modelcc.frontends.torch.views import concatenated
from modelcc.ir.index import product
from modelcc.ir.types import I64
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Expand
from modelcc.ops.gather import GatherElements
from modelcc.ops.generate import Full, Iota
from modelcc.ops.views import cast, part, reshaped


def fractional_max_pool(rank: int, order: Sequence[int]) -> Handler:
    """The maximum of each window and its index in the image; the random numbers of the axes are in
    ``order``."""

    def handler(
        call: Aten, x: Value, kernel: Sequence[int], output: Sequence[int], samples: Value
    ) -> tuple[Value, Value]:
        extents = [number_of(e, "extent") for e in x.type.shape[-rank:]]
        lead = x.type.shape[: x.type.rank - rank]
        rows = reshaped(samples, product(samples.type.shape[:-1]), rank)
        planes = rows.type.shape[0]
        places = call.literal(0, I64)
        for axis, extent in enumerate(extents):
            column = part(rows, 1, order[axis], 1)
            starts = _starts(call, column, extent, output[axis], kernel[axis])
            within = _placed(call, starts, kernel[axis], axis, rank)
            places = places * extent + within
        shape = (planes, prod(output), prod(kernel))
        windows = reshaped(places, planes, *output, *kernel)
        flat = reshaped(of(Expand((planes, *output, *kernel)), windows), planes, prod(shape[1:]))
        image = reshaped(x, planes, prod(extents))
        seen = reshaped(of(GatherElements(1), image, flat), *shape)
        best = reshaped(place_of_greatest(call, seen), *shape[:2], 1)
        found = (
            reshaped(of(GatherElements(2), v, best), *lead, *output)
            for v in (seen, reshaped(flat, *shape))
        )
        values, where = found
        return values, where

    return handler


def _starts(call: Aten, sample: Value, extent: int, count: int, kernel: int) -> Value:
    """Start positions of the windows of each plane [planes, 1]; the last window ends with the
    axis."""
    planes = sample.type.shape[0]
    last = call.made(Full((planes, 1), extent - kernel, I64))
    if count == 1:
        return last
    ratio = np.float32(extent - kernel) / np.float32(count - 1)
    line = call.made(Iota((1, count - 1), 1, 0, 1, sample.type.dtype))
    shifted = ((line + sample) * float(ratio), sample * float(ratio))
    ahead, own = (cast(v, I64) for v in shifted)
    return concatenated(call, 1, ahead - own, last)


def _placed(call: Aten, starts: Value, kernel: int, axis: int, rank: int) -> Value:
    """[planes, outputs…, kernel…], the extents of other axes 1."""
    planes, count = starts.type.shape
    line = call.made(Iota((kernel,), 0))
    ones = [1] * rank
    out, inner = (list(ones) for _ in range(2))
    out[axis], inner[axis] = number_of(count, "extent"), kernel
    return reshaped(starts, planes, *out, *ones) + reshaped(line, *ones, *inner)


FRACTIONAL_POOLING = table(
    fractional_max_pool2d=fractional_max_pool(2, (1, 0)),
    fractional_max_pool3d=fractional_max_pool(3, (0, 1, 2)),
)
