"""Every tensor pass does what the example in its docstring shows, and keeps its meaning."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import textwrap
from typing import Any

import numpy as np
import pytest

from modelcc.ir.constant import Constant
from modelcc.ir.index import evaluate
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_text import print_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import TensorType
from modelcc.passes import tensor as neutral
from modelcc.targets.cpu import passes as cpu
from modelcc.targets.gpu import passes as gpu
from modelcc.targets.gpu.machine import H100, PROCESSOR
from modelcc.targets.mcu import passes as mcu


def passes() -> list[type[Any]]:
    modules = [
        importlib.import_module(f"{package.__name__}.{info.name}")
        for package in (neutral, cpu, gpu, mcu)
        for info in pkgutil.iter_modules(package.__path__)
    ]
    return [
        c
        for module in modules
        for c in vars(module).values()
        if isinstance(c, type) and c.__module__ == module.__name__ and "__call__" in vars(c)
    ]


TOO_LONG = {
    "Winograd": "test_winograd.py",
    "GroupWinograd": "test_winograd.py",
    "Strassen": "test_strassen.py",
    "RowParameters": "test_row_parameters.py",
    "InRegions": "test_regions.py",
    "WideOperands": "test_wide_operands.py",
}
"""Passes that cannot be shown in a docstring, and the tests they have instead."""

NEEDED: dict[str, dict[str, Any]] = {
    "FuseContractions": {"block": 8, "cache_bytes": 512 << 10},
    "FuseGatedProducts": {"machine": PROCESSOR},
    "SplitReductions": {"units": 16},
    "SplitScatters": {"machine": H100},
    "SplitKeys": {"units": 16},
    "SplitSums": {"shortest": 16},
}
"""What a target says of its machine, which passes have no defaults for."""

PASSES = [step for step in passes() if step.__name__ not in TOO_LONG]


def parse(text: str) -> TensorProgram:
    def resolve(handle: str, type_: TensorType) -> Constant:
        count = int(np.prod(type_.static_shape()))
        data = np.linspace(-1, 1, count, dtype=np.float32).reshape(type_.static_shape())
        return Constant(data.astype(type_.dtype.numpy))

    program = parse_tensor_program(text, resolve)
    verify_tensor_program(program)
    return program


def example_of(step: type[Any]) -> tuple[TensorProgram, TensorProgram]:
    """The programs under ``before::`` and ``after::`` in a pass's docstring."""
    doc = inspect.getdoc(step) or ""
    blocks = dict(re.findall(r"^(before|after)::\n\n((?:    .*\n?|\n)+)", doc, re.MULTILINE))
    return parse(textwrap.dedent(blocks["before"])), parse(textwrap.dedent(blocks["after"]))


@pytest.mark.parametrize("step", PASSES, ids=lambda c: c.__name__)
def test_example(step: type[Any]) -> None:
    before, after = example_of(step)
    result = step(**NEEDED.get(step.__name__, {}))(before)
    assert print_tensor_program(result) == print_tensor_program(after)
    assert print_tensor_program(before) != print_tensor_program(after)


@pytest.mark.parametrize("step", PASSES, ids=lambda c: c.__name__)
def test_example_keeps_its_meaning(step: type[Any]) -> None:
    before, after = example_of(step)
    env, rng = {"n": 3}, np.random.default_rng(0)
    feeds = {}
    for name in before.inputs:
        shape = [evaluate(e, env) for e in before.types[name].shape]
        scale = 20 if before.types[name].dtype.is_integer else 1
        values = scale * rng.standard_normal(shape)
        feeds[name] = values.astype(before.types[name].dtype.numpy)
    wanted, got = run_program(before, feeds, env), run_program(after, feeds, env)
    for name, array in wanted.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-5)


def test_there_are_passes() -> None:
    assert TOO_LONG.keys() <= {c.__name__ for c in passes()}
    assert {c.__name__ for c in PASSES} >= {"AssignLayouts", "InlineStages", "FuseKernels"}
