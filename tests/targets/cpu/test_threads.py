"""Kernels are divided between threads, and weights fetched ahead, where that is worth it."""

from __future__ import annotations

import re

import pytest

from modelcc.ir.library import meaning_of
from modelcc.ir.loop_text import print_function
from modelcc.ir.tensor_parser import parse_kernel
from modelcc.schedule.canonical import canonical
from modelcc.targets.cpu.lower import schedule_kernel
from modelcc.targets.cpu.machine import CpuModel

ZEN5 = CpuModel()


def product(rows: int, depth: int, columns: int, machine: CpuModel = ZEN5) -> str:
    """The scheduled product of (rows, depth) and constant weights (depth, columns)."""
    x, w, y = f"f32[{rows}, {depth}]", f"f32[{depth}, {columns}]", f"f32[{rows}, {columns}]"
    body = f"%y: {y} = [m < {rows}, n < {columns}] sum[k < {depth}](%x[m, k] * %w[k, n])"
    text = f"kernel @product(%x: {x}, %w: {w}) -> (%y: {y}) {{ {body} }}"
    kernel, types = parse_kernel(text)
    key, _ = canonical(kernel, types, frozenset(["w"]), {})
    return print_function(meaning_of(schedule_kernel(key, "product", machine).function))


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "divided"),
    [
        (1, 64, 128, False),  # 8,192 multiply-adds: the threads would start for nothing
        (1, 4096, 128, True),
        (1, 1024, 512, True),
        (64, 256, 256, True),
    ],
)
def test_work_is_divided(rows: int, depth: int, columns: int, divided: bool) -> None:
    found = re.search(r"parallel \w+ in 0 .. (\d+)", product(rows, depth, columns))
    assert (found is not None) == divided
    assert found is None or int(found[1]) >= 2


def test_weights_that_are_used_once_are_fetched_ahead_of_each_step() -> None:
    text = product(1, 1024, 512)
    loads = re.findall(r"load %x1\[(.*)\] x16", text)
    fetched = re.findall(r"prefetch %x1\[(.*)\]", text)
    assert len(fetched) == len(loads) > 0
    assert "prefetch" not in product(1, 16, 64)


def test_nothing_is_fetched_ahead_on_machines_that_are_slower_for_it() -> None:
    assert "prefetch %x1" not in product(1, 1024, 512, CpuModel(ahead_bytes=0))
