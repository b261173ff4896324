"""Scatters of random numbers at random places, as programs, and what NumPy makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
from kernel_runs import Executor, run_scheduled
from op_kernels import assert_close

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.index import DIM, Sym
from modelcc.ir.program import Program
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.types import DTYPES, Array, TensorType
from modelcc.ops.gather_elements import ScatterElements
from modelcc.ops.gather_nd import ScatterND
from modelcc.ops.runtime_index import Combination
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.schedule.group_schedule import ListedScatter
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.schedule import schedule_groups

COMBINED = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@dataclass(frozen=True)
class Updates:
    """A tensor of ``shape`` of which elements along ``axis`` are changed (``places`` of this shape,
    ScatterElements), or without an axis whole slices (ScatterND).  ``named`` sizes are those of
    updates and of columns."""

    shape: tuple[int, ...]
    places: tuple[int, ...]
    axis: int | None = None
    reduction: Combination = "add"
    dtype: str = "f32"
    index: str = "i64"
    named: bool = False

    @property
    def slices(self) -> tuple[int, ...]:
        """The shape of updates."""
        if self.axis is not None:
            return self.places
        return (*self.places[:-1], *self.shape[self.places[-1] :])

    @property
    def sizes(self) -> dict[str, int]:
        """Of named dimensions."""
        return {"m": self.places[0], "c": self.slices[-1]} if self.named else {}

    def program(self) -> TensorProgram:
        """One op; with named sizes updates are rows."""
        shapes: list[tuple[int | Sym, ...]] = [self.shape, self.places, self.slices]
        if self.named:
            rows, depth = self.shape[0], self.places[-1]
            shapes = [(rows, Sym("c")), (Sym("m"), depth), (Sym("m"), Sym("c"))]
        build = GraphBuilder(dims=dict.fromkeys(self.sizes, DIM))
        types = (self.dtype, self.index, self.dtype)
        names = [
            build.input(f"x{n}", TensorType(shape, DTYPES[name]))
            for n, (shape, name) in enumerate(zip(shapes, types, strict=True))
        ]
        slices = ScatterND(reduction=self.reduction)
        op = slices if self.axis is None else ScatterElements(self.axis, self.reduction)
        return FuseKernels()(lower_graph(build.build(build.add(op, *names))))

    def feeds(self, seed: int, spread: float = 1.0) -> dict[str, Array]:
        """Random numbers, and places of which so much may be met, some from the end."""
        draw, dtype = np.random.default_rng(seed), DTYPES[self.dtype]
        numbers = [draw.uniform(-2, 2, shape) for shape in (self.shape, self.slices)]
        if not dtype.is_float:
            numbers = [np.round(n * 2) for n in numbers]
        extents = np.array(
            [self.shape[self.axis]] if self.axis is not None else self.shape[: self.places[-1]]
        )
        most = np.maximum(1, np.ceil(extents * spread)).astype(np.int64)
        places = draw.integers(0, most, self.places)
        places = np.where(draw.uniform(size=self.places) < 0.3, places - extents, places)
        initial, updates = (n.astype(dtype.numpy) for n in numbers)
        return {"x0": initial, "x1": places.astype(DTYPES[self.index].numpy), "x2": updates}

    def wanted(self, feeds: Mapping[str, Array]) -> Array:
        """Update by update, floats in 64 bits."""
        dtype = DTYPES[self.dtype]
        wide = np.float64 if dtype.is_float else dtype.numpy
        result, updates = feeds["x0"].astype(wide), feeds["x2"].astype(wide)
        points = np.ndindex(self.places if self.axis is not None else self.places[:-1])
        for point in points:
            at = feeds["x1"][point]
            if self.axis is None:
                where = tuple(int(n) for n in at)
            else:
                where = (*point[: self.axis], int(at), *point[self.axis + 1 :])
            if self.reduction == "none":
                result[where] = updates[point]
            else:
                result[where] = COMBINED[self.reduction](result[where], updates[point])
        return result.astype(dtype.numpy)

    def run(self, program: Program, execute: Executor, feeds: Mapping[str, Array]) -> Array:
        """The result of the ``program`` scheduled."""
        (name,) = program.outputs
        return run_scheduled(program, execute, feeds, self.sizes)[name]


ON_DEVICES: Mapping[str, tuple[Updates, ListedScatter]] = {
    "places": (Updates((40,), (300,), 0), ListedScatter(64, 4, each=2)),
    "lists": (Updates((3, 7), (3, 150), 1, "max", index="i32"), ListedScatter(64, 2, each=1)),
    "rows": (Updates((9, 12), (200, 1), dtype="i32"), ListedScatter(64, 2, 4, each=2)),
    "blocks": (Updates((5, 2, 16), (70, 1), reduction="mul"), ListedScatter(128, 1, 32, each=2)),
    "the last": (Updates((4, 5), (200, 2), reduction="none"), ListedScatter(64, 3, each=4)),
    "named rows": (Updates((9, 11), (150, 1), named=True), ListedScatter(64, 2, 8, each=2)),
    "few named rows": (Updates((9, 11), (5, 1), named=True), ListedScatter(64, 2, 8, each=2)),
}
"""Updates by lists: several blocks of updates, whole and not, by groups of two warps or more."""


def check_on_device(
    name: str, executor: Callable[[Program], Executor], machine: GpuModel, **more: int
) -> None:
    """What a device makes of a case is what NumPy makes of it, and an index out of range is
    found; schedules have what is given ``more``."""
    updates, schedule = ON_DEVICES[name]
    program = schedule_groups(updates.program(), replace(schedule, **more), machine)
    run, feeds = executor(program), updates.feeds(5)
    assert_close(updates.run(program, run, feeds), updates.wanted(feeds))
    feeds["x1"].reshape(-1)[-3] = 1000
    with pytest.raises((IndexError, AssertionError)):
        updates.run(program, run, feeds)
