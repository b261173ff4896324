"""Code for 64-bit Arm, by its text: it needs no such machine, and no emulator."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

from modelcc.driver import pipeline
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.types import F32, TensorType
from modelcc.ops.matmul import MatMul
from modelcc.options import Options
from modelcc.pipeline import before_block, run_stages
from modelcc.targets.base import BuildConfig, TargetOptions
from modelcc.targets.native.host import cpu_model
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.target import CodegenOptions, NativeTarget

MACHINE = Machine("aarch64-unknown-linux-gnu", "generic", ("+neon",), 128)
REGISTERS = 32
IDEAL = min(
    (rows * vectors + rows + vectors) / (rows * vectors)
    for rows, vectors in product(range(1, REGISTERS), repeat=2)
    if rows * vectors + vectors + 1 <= REGISTERS
)
"""Instructions of a multiply-add of vectors in the best tile whose sums stay in registers: each
row's element and each vector of columns is loaded once in a step, and there is nothing else."""


def product_assembly(rows: int, depth: int, columns: int) -> str:
    """Assembly text of one matrix product with constant weights."""
    build = GraphBuilder("product")
    x = build.input("x", TensorType((rows, depth), F32))
    weights = np.ones((depth, columns), np.float32)
    graph = build.build([build.emit(MatMul(), x, build.constant(weights), name="y")])
    wanted = TargetOptions(cpu=MACHINE.cpu, strassen=False)
    target = NativeTarget(MACHINE, cpu_model(MACHINE, 1), wanted, CodegenOptions())
    options = Options(cpu=MACHINE.cpu, strassen=False)
    stages = before_block(pipeline(target, options, BuildConfig()), "build")
    modules = run_stages(stages, graph).modules
    return target.render(modules, "asm", BuildConfig()).decode()


def inner_loops(text: str) -> list[list[str]]:
    """Instructions between a label and a branch back to it, where no other loop lies between."""
    lines = [line.partition("//")[0].strip() for line in text.splitlines()]
    labels: dict[str, int] = {}
    ranges: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        if label := re.match(r"(\.\w+):", line):
            labels[label[1]] = number
        branch = re.match(r"(?:b|b\.\w+|cbn?z|tbn?z)\s.*?(\.\w+)$", line)
        if branch and branch[1] in labels:
            ranges.append((labels[branch[1]], number))
    inner = [r for r in ranges if not any(o != r and r[0] <= o[0] and o[1] <= r[1] for o in ranges)]
    return [[one for one in lines[i + 1 : j + 1] if one and one[0] != "."] for i, j in inner]


@pytest.mark.parametrize("shape", [(128, 768, 768), (512, 512, 512), (1568, 512, 512)])
def test_products_spend_few_instructions_on_a_multiply_add(shape: tuple[int, int, int]) -> None:
    loops = inner_loops(product_assembly(*shape))
    loop = max(loops, key=multiply_adds)
    assert multiply_adds(loop) >= 16
    assert not [one for one in loop if re.match(r"(str|stp|stur)\s", one)], "sums leave registers"
    assert not [one for one in loop if re.match(r"(fmul|fadd|bl)\s", one)]
    assert len(loop) / multiply_adds(loop) <= 1.15 * IDEAL


def multiply_adds(loop: list[str]) -> int:
    """How many of vectors there are."""
    return sum(one.startswith("fmla") for one in loop)
