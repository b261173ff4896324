"""Loops over named extents of 0 touch nothing: the interpreters end where one leaves its buffer."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from modelcc.driver import pipeline, target_of
from modelcc.ir.types import Array
from modelcc.levels.interpretation import INTERPRETED, interpret_level
from modelcc.pipeline import StageRun, run_stages
from modelcc.targets.base import BuildConfig
from tests.machines import chosen_options

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
PRODUCTS = {
    "rows by rows": ("float[m, 8] x, float[n, 8] y", "t = Transpose(y)\n z = MatMul(x, t)"),
    "batches": (
        "float[2, m, 8] x, float[2, n, 8] y",
        "t = Transpose<perm=[0, 2, 1]>(y)\n z = MatMul(x, t)",
    ),
    "rows by columns": ("float[m, 8] x, float[8, n] y", "z = MatMul(x, y)"),
    "transposed": ("float[m, 8] x, float[n, 8] y", "z = Gemm<transB=1>(x, y)"),
}


@pytest.mark.parametrize("case", PRODUCTS)
@pytest.mark.parametrize("sizes", [(5, 0), (0, 5), (0, 0), (5, 1), (13, 17)], ids=str)
def test_products(case: str, sizes: tuple[int, int]) -> None:
    inputs, body = PRODUCTS[case]
    model = parser.parse_model(f"{HEAD} g ({inputs}) => (float z) {{ {body} }}")
    named = dict(zip("mn", sizes, strict=True))
    shapes = [tuple(_extent(d, named) for d in _dims(i)) for i in model.graph.input]
    x, y = (np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in shapes)
    wanted = x @ (y if case == "rows by columns" else np.swapaxes(y, -1, -2))
    options = chosen_options(threads=1)
    last = ("emit", "build", "package")
    stages = [
        s for s in pipeline(target_of(options), options, BuildConfig()) if s.block not in last
    ]

    def check(run: StageRun) -> None:
        if isinstance(run.after, INTERPRETED):
            (found,) = interpret_level(run.after, {"x": x, "y": y}, named)
            assert_close(found, wanted, run.stage.label)

    run_stages(stages, model, check)


def assert_close(found: Array, wanted: Array, where: str) -> None:
    assert found.shape == wanted.shape, where
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=where)


def _dims(value: object) -> list[object]:
    return list(value.type.tensor_type.shape.dim)  # type: ignore[attr-defined]


def _extent(dim: object, sizes: dict[str, int]) -> int:
    return sizes.get(dim.dim_param) or dim.dim_value  # type: ignore[attr-defined]
