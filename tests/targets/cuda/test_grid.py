"""Grids of more groups than NVIDIA's GPUs have in their second and third dimension."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_emulator.kernels import run_ptx

from modelcc.driver import compile_model
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.types import F32, TensorType
from modelcc.ops.matmul import MatMul
from modelcc.options import Options
from modelcc.runtime.devices.device_parts import STEPS
from modelcc.runtime.devices.device_steps import from_json, kernel_calls
from modelcc.targets.cuda.chips import CHIPS
from modelcc.targets.cuda.text import llvm_text, ptx_text

pytest.importorskip("modelcc.runtime.streams.cuda_device")

MANY = 65536


@pytest.mark.parametrize(
    ("extents", "name"),
    [
        (("65537", "2", "1"), "sm_80"),
        (("2", "65536", "3"), "sm_90a"),
        (("n", "2", "n"), "sm_90a"),
        (("2", "n", "2"), "sm_80"),
    ],
)
def test_groups_in_rows_know_where_they_are(extents: tuple[str, str, str], name: str) -> None:
    a, b, c = extents
    place = f"{b}*{c}*i + {c}*j + k"
    function = parse_function(
        f"""func @k(%x: i64[{a}*{b}*{c}], %y: mut i64[{a}*{b}*{c}]; n) {{
          grid i in 0 .. {a} {{ grid j in 0 .. {b} {{ grid k in 0 .. {c} {{
            thread t in 0 .. 1 {{
              let %v = load %x[{place}]
              store %y[{place}] = add(%v, index[i64](3*j - 5*k - i))
            }} }} }} }} }}"""
    )
    n = 7
    i, j, k = np.ogrid[tuple(slice(n if e == "n" else int(e)) for e in extents)]
    steps = (3 * j - 5 * k - i).astype(np.int64)
    x = np.random.default_rng(5).integers(-9, 9, steps.shape)
    y, chip = np.zeros_like(x), CHIPS[name]
    ptx = ptx_text(llvm_text([function], chip), chip)
    run_ptx(ptx, function, [x, y], {"n": n}, early=False)
    np.testing.assert_array_equal(y, x + steps)


@pytest.mark.parametrize(("batch", "grid"), [(100, (1, 1, 100)), (MANY, (1, MANY // 2, 2))])
def test_many_products_are_launched_in_rows(batch: int, grid: tuple[int, int, int]) -> None:
    build = GraphBuilder("products")
    given = (build.input(name, TensorType((batch, 8, 8), F32)) for name in "ab")
    graph = build.build([build.emit(MatMul(), *given, name="y")])
    artifact = compile_model(graph, Options(target="cuda:sm_80")).artifact
    (call,) = kernel_calls(from_json(artifact.objects[STEPS].decode()).steps)
    assert call.grid == grid
