"""Sums that the last group finishes: machine code, and a model on what stands for the driver."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cuda_products import code_as_planned, product
from machine_code import instructions_of

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.types import F16, TensorType
from modelcc.ops.matmul import MatMul
from modelcc.runtime.errors import RunError
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.cuda.tools import find_tool
from tests.targets.cuda.test_program import Prepared, on_driver, prepared

pytest.importorskip("modelcc.runtime.streams.cuda_device")

CHIPS = {"sm_80": ("HMMA.16816.F32", "LDGSTS.E.BYPASS.128"), "sm_90a": ("HGMMA", "UTMALDG")}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm")
@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
def test_groups_count_each_other_between_fences(chip: str) -> None:
    """Products are as ever, nothing spills, and parts are read in vectors."""
    schedule, code = code_as_planned(product(128, 768, 3072, "f16"), find_chip(chip))
    assert schedule.parts == 4
    names = instructions_of(code)
    assert all(any(name.startswith(word) for name in names) for word in CHIPS[chip])
    found = [line.split("*/")[1].split()[0] for line in code.splitlines() if "*/" in line[:40]]
    words = ("BAR.SYNC", "MEMBAR.ALL.GPU", "CCTL.IVALL", "ATOMG", "BAR.RED.OR", "LDG.E.128")
    kept = [next(w for w in words if one.startswith(w)) for one in found if one.startswith(words)]
    fence = ["MEMBAR.ALL.GPU", "CCTL.IVALL"]
    at = kept.index("ATOMG") - 2
    assert kept[at : at + 6] == [*fence, "ATOMG", *fence, "BAR.RED.OR"]
    assert kept[at - 1] == "BAR.SYNC"
    assert kept[at + 6 :].count("LDG.E.128") >= schedule.parts
    assert names["ATOMG.E.INC.STRONG.GPU"] == 1


def chain(rows: int, terms: int, columns: int) -> Graph:
    """Two products one after the other, the first one of long sums."""
    build = GraphBuilder()
    shapes = (rows, terms), (terms, columns), (columns, rows)
    x, a, b = (build.input(n, TensorType(s, F16)) for n, s in zip("xab", shapes, strict=True))
    return build.build([build.emit(MatMul(), build.emit(MatMul(), x, a), b)])


def spoiling(model: Prepared, spoils: list[bool]) -> Prepared:
    """``model`` whose first kernel leaves counters as one that was broken off, where it ``spoils``
    them."""
    artifact, kernels = model
    run, buffers, sizes = kernels["k0_MatMul"]

    def broken(grid: tuple[int, ...], threads: tuple[int, ...], *given: int) -> None:
        run(grid, threads, *given)
        counters = (ctypes.c_int32 * 1).from_address(given[buffers - 1])
        assert counters[0] == 0
        counters[0] = int(spoils.pop())

    return artifact, {**kernels, "k0_MatMul": (broken, buffers, sizes)}


def test_counters_are_cleared_once_and_after_calls_that_fail() -> None:
    """One kernel for each product, and none besides."""
    spoils = [False] * 3 + [True] + [False] * 2
    artifact, kernels = spoiling(prepared(chain(16, 2048, 32)), spoils)
    assert sorted(kernels) == ["k0_MatMul", "k1_MatMul"]
    net, driver = on_driver((artifact, kernels))
    rng = np.random.default_rng(0)
    x, a, b = (
        rng.integers(-2, 3, shape).astype(np.float16)
        for shape in ((16, 2048), (2048, 32), (32, 16))
    )
    between = (x.astype(np.float32) @ a.astype(np.float32)).astype(np.float16)
    wanted = (between.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    for _ in range(2):
        np.testing.assert_array_equal(net(x, a, b), wanted)
    assert driver.calls.count("cuMemcpyHtoDAsync") == 2 * 3 + 1
    assert driver.calls.count("cuLaunchKernel") == len(kernels)
    driver.failing["cuMemcpyDtoHAsync"] = 2
    with pytest.raises(RunError, match="did not take this call"):
        net(x, a, b)
    driver.failing.clear()
    for _ in range(3):
        np.testing.assert_array_equal(net(x, a, b), wanted)
    assert not spoils
