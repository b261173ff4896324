"""Reductions across images in two: less rounding, and the same meaning."""

from __future__ import annotations

import numpy as np
import pytest
from machines import chosen_options

import modelcc
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.tensor import item_outputs
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import F32, TensorType
from modelcc.ops.moments import Moments
from modelcc.targets.cpu.passes.split_sums import SplitSums

PROGRAM = """program @main(%x: f32[n, 3, 6, 7], %w: f32[3]) -> (%y) dims(n in 1:) {{
  kernel @Reduce(%x: f32[n, 3, 6, 7], %w: f32[3]) -> (%y: f32[3]) {{
    %y: f32[3] = [c < 3] {0}[b < n, h < 6, v < 7] %x[b, c, h, v] * %w[c]
  }}
}}"""

WHOLE = (
    "[i < 9, j < 4] sum[b < 5, k < 64] %a[b, i, k] * %c[b, j, k]",
    "[i < 9, j < 4] sum[b < 5, k < 64] %a[b, i, k] * %c[b, j, 0]",
    "[i < 9] sum[b < 5, k < 64] %a[b, i, k] * %a[b, i, 63 - k]",
    "[k < 64] sum[b < 5, i < 9] %a[b, i, k]",
    "[b < 5] sum[i < 9, k < 64] %a[b, i, k]",
)


@pytest.mark.parametrize("combine", ["sum", "max"])
def test_it_means_the_same(combine: str) -> None:
    program = parse_tensor_program(PROGRAM.format(combine), {})
    split = SplitSums(16)(program)
    verify_tensor_program(split)
    assert [item_outputs(item) for item in split.items] == [("y.runs",), ("y",)]
    rng = np.random.default_rng(1)
    given = {"x": rng.standard_normal((4, 3, 6, 7)), "w": rng.standard_normal(3)}
    inputs = {name: value.astype(np.float32) for name, value in given.items()}
    product = given["x"] * given["w"][:, None, None]
    wanted = getattr(product, combine)((0, 2, 3))
    np.testing.assert_allclose(run_program(split, inputs, {"n": 4})["y"], wanted, rtol=1e-5)


@pytest.mark.parametrize("body", WHOLE)
def test_what_has_no_runs_of_its_own_stays_whole(body: str) -> None:
    shape = ", ".join(part.split(" < ")[1] for part in body[1 : body.index("]")].split(", "))
    program = parse_tensor_program(
        f"""program @main(%a: f32[5, 9, 64], %c: f32[5, 4, 64]) -> (%y) dims() {{
  kernel @Reduce(%a: f32[5, 9, 64], %c: f32[5, 4, 64]) -> (%y: f32[{shape}]) {{
    %y: f32[{shape}] = {body}
  }}
}}""",
        {},
    )
    assert SplitSums(16)(program).items == program.items


def test_runs_shorter_than_a_vector_stay_whole() -> None:
    program = parse_tensor_program(PROGRAM.format("sum"), {})
    assert SplitSums(64)(program).items == program.items


@pytest.mark.parametrize("mean", [0, 10, 100, 1000])
def test_moments_round_like_pairwise_sums(mean: int) -> None:
    """NumPy adds pairs; terms one by one had 4e-7 of the mean, and 3e-6 of the variance."""
    build = GraphBuilder("moments")
    x = build.input("x", TensorType((8, 16, 28, 28), F32))
    graph = build.build(build.add(Moments((0, 2, 3)), x))
    net = modelcc.compile(graph, options=chosen_options(threads=1), cache=None)
    values = np.random.default_rng(3).standard_normal((8, 16, 28, 28)) + mean
    given = values.astype(np.float32)
    found = [result.ravel() for result in net(given)]
    wide = given.astype(np.float64)
    np.testing.assert_allclose(found[0], wide.mean((0, 2, 3)), rtol=1.5e-7, atol=1e-7)
    np.testing.assert_allclose(found[1], wide.var((0, 2, 3)), rtol=5e-7)
