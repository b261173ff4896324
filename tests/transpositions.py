"""Kernels that turn the last two dimensions of an operand, and schedules of them by tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from kernel_runs import Executor, run_scheduled

from modelcc.ir.program import Program
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.types import BF16, BOOL, F16, F32, F64, I64, Array, DType
from modelcc.schedule.group_schedule import GroupTranspose
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.schedule import schedule_groups


@dataclass(frozen=True)
class Turned:
    """``y = x`` with its last two dimensions turned, and what is added to that."""

    dtype: DType = F32
    shape: str = "n, 40, 72"
    added: bool = False

    @property
    def program(self) -> TensorProgram:
        """Axes are batches, rows and columns of the operand."""
        b, r, c = (part.strip() for part in self.shape.split(","))
        t, dims = self.dtype.name, "".join(f"{d} in 0:" for d in (b, r, c) if d.isalpha())
        more = f", %z: {t}[{b}, {c}, {r}]" if self.added else ""
        plus = " + %z[i, k, j]" if self.added else ""
        return parse_tensor_program(
            f"""program @p(%x: {t}[{b}, {r}, {c}]{more}) -> (%y) dims({dims}) {{
  kernel @Transpose(%x: {t}[{b}, {r}, {c}]{more}) -> (%y: {t}[{b}, {c}, {r}]) {{
    %y: {t}[{b}, {c}, {r}] = [i < {b}, k < {c}, j < {r}] %x[i, j, k]{plus} }} }}""",
            {},
        )

    def feeds(self, sizes: dict[str, int]) -> tuple[dict[str, Array], Array]:
        """Operands, and the result."""
        parts = map(str.strip, self.shape.split(","))
        shape = [sizes[p] if p in sizes else int(p) for p in parts]
        rng, numpy = np.random.default_rng(0), self.dtype.numpy
        x = rng.integers(0, 2 if self.dtype == BOOL else 100, shape).astype(numpy)
        y = x.transpose(0, 2, 1)
        if not self.added:
            return {"x": x}, y
        z = rng.integers(0, 9, y.shape).astype(numpy)
        return {"x": x, "z": z}, (y + z).astype(numpy)


SQUARE = GroupTranspose(32, 256)
CASES: dict[str, tuple[GroupTranspose, Turned]] = {
    "whole tiles": (SQUARE, Turned(shape="n, 64, 96")),
    "edges": (SQUARE, Turned()),
    "vectors": (replace(SQUARE, read=4, lanes=4), Turned()),
    "whole vectors": (replace(SQUARE, read=4, lanes=4), Turned(shape="1, 64, 96")),
    "few threads": (GroupTranspose(32, 96, 4, 2), Turned()),
    "f16": (GroupTranspose(64, 256, 8, 8), Turned(F16, "n, 64, 128")),
    "f16, edges": (GroupTranspose(64, 256, 8, 8), Turned(F16)),
    "bf16": (GroupTranspose(64, 128, 8, 4), Turned(BF16)),
    "f64": (GroupTranspose(32, 256, 2, 2), Turned(F64)),
    "i64, and more": (GroupTranspose(16, 64, 2, 2), Turned(I64, added=True)),
    "bool": (GroupTranspose(64, 256, 8, 8), Turned(BOOL)),
    "added": (replace(SQUARE, read=4, lanes=4), Turned(added=True)),
    "odd": (SQUARE, Turned(shape="n, 33, 31")),
    "named rows": (replace(SQUARE, read=4), Turned(shape="2, n, 72")),
    "named columns": (replace(SQUARE, lanes=4), Turned(shape="2, 40, n")),
}

ON_DEVICES = ("few threads", "f16", "added", "odd", "named columns")
"""Of them those that any device runs."""


def check_turned(
    name: str,
    executor: Callable[[Program], Executor],
    machine: GpuModel,
    size: int = 3,
    **more: int,
) -> None:
    """What ``executor`` makes of a case, whose named extent is ``size``, is what NumPy does;
    schedules have what is given ``more``."""
    schedule, turned = CASES[name]
    program = schedule_groups(turned.program, replace(schedule, **more), machine)
    feeds, wanted = turned.feeds({"n": size})
    found = run_scheduled(program, executor(program), feeds, {"n": size})
    np.testing.assert_array_equal(found["y"], wanted)
