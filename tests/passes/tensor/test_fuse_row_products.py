"""Which products take the stages that make their rows: none that others read, or that are summed
otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from norm_products import NormProduct

from modelcc.ir.tensor import Kernel, TensorProgram, View
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.passes.tensor.fuse_row_products import FuseRowProducts
from modelcc.passes.tensor.row_product import match_row_product

CASE = NormProduct("rms", 2, 24, 16)
READER = """kernel @Other(%h: f16[2, 24]) -> (%e: f32[2, 24]) {
  %e: f32[2, 24] = [i < 2, c < 24] f32(%h[i, c]) + 1.0 }"""


def kernels_of(program: TensorProgram) -> list[str]:
    """What is left, verified."""
    fused = FuseRowProducts()(program)
    verify_tensor_program(fused)
    return [item.name for item in fused.items if isinstance(item, Kernel)]


@pytest.mark.parametrize("rows", ["rms", "layer", "softmax"])
@pytest.mark.parametrize("twins", [False, True])
def test_rows_of_one_reader_are_part_of_it(rows: str, twins: bool) -> None:
    program = NormProduct(rows, 2, 24, 16, twins=twins).program(apart=True)
    assert kernels_of(program) == ["Norm_MatMul"]


def test_views_of_one_element_more_are_read_through() -> None:
    program = CASE.program(apart=True, between="view %v: f16[1, 2, 24] = %h")
    assert kernels_of(program) == ["Norm_MatMul"]
    assert not any(isinstance(item, View) for item in FuseRowProducts()(program).items)


def test_views_of_other_axes_stay() -> None:
    text = """program @p(%x: f32[2, 24], %w: f32[12, 16]) -> (%y) dims() {
      kernel @Norm(%x: f32[2, 24]) -> (%h: f32[2, 24]) {
        %s: f32[2] = [i < 2] sum[c < 24] %x[i, c] * %x[i, c]
        %h: f32[2, 24] = [i < 2, c < 24] %x[i, c] / %s[i] }
      view %v: f32[4, 12] = %h
      kernel @MatMul(%v: f32[4, 12], %w: f32[12, 16]) -> (%y: f32[4, 16]) {
        %y: f32[4, 16] = [i < 4, o < 16] sum[c < 12] %v[i, c] * %w[c, o] } }"""
    assert kernels_of(parse_tensor_program(text, {})) == ["Norm", "MatMul"]


def test_rows_that_are_read_twice_stay() -> None:
    assert kernels_of(CASE.program(apart=True, others=READER)) == ["Norm", "MatMul", "Other"]


def test_a_product_that_makes_rows_itself_is_taken_once() -> None:
    """It takes the rows that it sums, and the product of its own rows stays."""
    inputs = "%x: f32[1, 24], %g: f32[24], %z: f32[1, 24], %w: f32[24, 16]"
    text = (
        f"program @p({inputs}) -> (%y) dims() {{"
        + """
      kernel @Norm(%x: f32[1, 24]) -> (%h: f32[1, 24]) {
        %s: f32[1] = [i < 1] sum[c < 24] %x[i, c] * %x[i, c]
        %h: f32[1, 24] = [i < 1, c < 24] %x[i, c] / %s[i] }
      kernel @Gate(%h: f32[1, 24], %g: f32[24], %z: f32[1, 24]) -> (%q: f32[1, 24]) {
        %t: f32[1] = [i < 1] sum[c < 24] %h[i, c] * %g[c]
        %q: f32[1, 24] = [i < 1, c < 24] %z[i, c] * %t[i] }
      kernel @MatMul(%q: f32[1, 24], %w: f32[24, 16]) -> (%y: f32[1, 16]) {
        %y: f32[1, 16] = [i < 1, o < 16] sum[c < 24] %q[i, c] * %w[c, o] } }"""
    )
    program = parse_tensor_program(text, {})
    assert kernels_of(program) == ["Norm_Gate", "MatMul"]
    shapes = {"x": (1, 24), "g": (24,), "z": (1, 24), "w": (24, 16)}
    rng = np.random.default_rng(3)
    feeds = {name: rng.uniform(0.5, 1, n).astype(np.float32) for name, n in shapes.items()}
    found = run_program(FuseRowProducts()(program), feeds, {})
    x, g, z, w = (feeds[name].astype(np.float64) for name in "xgzw")
    np.testing.assert_allclose(found["y"], z * (x / (x * x).sum() @ g) @ w, rtol=1e-5)


def test_rows_that_are_a_result_stay() -> None:
    text = """program @p(%x: f32[1, 24], %w: f32[24, 16]) -> (%y, %h) dims() {
      kernel @Norm(%x: f32[1, 24]) -> (%h: f32[1, 24]) {
        %s: f32[1] = [i < 1] sum[c < 24] %x[i, c] * %x[i, c]
        %h: f32[1, 24] = [i < 1, c < 24] %x[i, c] / %s[i] }
      kernel @MatMul(%h: f32[1, 24], %w: f32[24, 16]) -> (%y: f32[1, 16]) {
        %y: f32[1, 16] = [i < 1, o < 16] sum[c < 24] %h[i, c] * %w[c, o] } }"""
    assert kernels_of(parse_tensor_program(text, {})) == ["Norm", "MatMul"]
    alone = text.replace("(%y, %h)", "(%y)")
    assert kernels_of(parse_tensor_program(alone, {})) == ["Norm_MatMul"]


SUMS = """program @p(%x: f32[24, 24], %w: f32[24, 24]) -> (%y) dims() {{
  kernel @Rows(%x: f32[24, 24]) -> (%h: f32[24, 24]) {{ {rows} }}
  kernel @Sums(%h: f32[24, 24], %w: f32[24, 24]) -> (%y: f32[24, 24]) {{
    %y: f32[24, 24] = [i < 24, o < 24] {sums} }} }}"""
NORM = """%s: f32[24] = [i < 24] sum[c < 24] %x[i, c] * %x[i, c]
  %h: f32[24, 24] = [i < 24, c < 24] %x[i, c] / %s[i]"""
POINTS = "%h: f32[24, 24] = [i < 24, c < 24] exp(%x[i, c])"


@pytest.mark.parametrize(
    ("rows", "sums", "fused"),
    [
        (NORM, "sum[c < 24] %h[i, c] * %w[c, o]", True),
        (NORM, "sum[c < 24] %w[o, c] * %h[i, c]", True),
        (POINTS, "sum[c < 24] %h[i, c] * %w[c, o]", False),
        (NORM, "sum[c < 24] %h[i, c] + %w[c, o]", False),
        (NORM, "max[c < 24] %h[i, c] * %w[c, o]", False),
        (NORM, "sum[c < 24] %h[i, c] * %h[c, o]", False),
        (NORM, "sum[c < 24] %h[i, o] * %w[c, o]", False),
    ],
)
def test_only_products_of_rows_take_them(rows: str, sums: str, fused: bool) -> None:
    program = SUMS.format(rows=rows, sums=sums)
    if "%w" not in sums:
        program = program.replace("(%h: f32[24, 24], %w: f32[24, 24])", "(%h: f32[24, 24])")
    names = ["Rows_Sums"] if fused else ["Rows", "Sums"]
    assert kernels_of(parse_tensor_program(program, {})) == names


def test_what_does_not_fit_stays() -> None:
    program = CASE.program(apart=True)
    assert FuseRowProducts(lambda kernel, program: False)(program) is program


def test_a_norm_alone_is_no_product() -> None:
    """The variance multiplies what the mean was taken from, point by point."""
    (norm, _) = NormProduct("layer", 2, 24, 16).program(apart=True).items
    assert isinstance(norm, Kernel)
    assert match_row_product(norm.stages) is None
