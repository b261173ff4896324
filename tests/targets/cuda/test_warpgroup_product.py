"""Products on sm_90a as machine code, without a GPU: HGMMA from what UTMALDG brings, no spills, as
many groups at once as planned, little else in the loop."""

from __future__ import annotations

import pytest
from cuda_products import code_as_planned, kernel_of, product
from machine_code import loops_of, matrix_part

from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.schedule.group_schedule import TensorProduct
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.cuda.tools import assemble, disassemble, find_tool
from modelcc.targets.gpu.lower import candidates, default_schedule, lower_groups

CHIP = find_chip("sm_90a")


@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm")
def test_tensor_cores_have_what_is_planned() -> None:
    schedule, code = code_as_planned(product(4096, 4096, 4096, "bf16"), CHIP)
    assert "HGMMA.64x256x16.F32.BF16 " in code
    assert "UTMALDG" in code
    loop = max(loops_of(code), key=lambda counts: counts["HGMMA"] / counts.total())
    assert loop["HGMMA"] == 4 * schedule.buffers == 4 * loop["BAR"]
    assert matrix_part(loop, schedule.columns) >= 0.9


@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm")
@pytest.mark.parametrize(("rows", "turned"), [(8, False), (16, True), (32, False)])
def test_few_rows_are_the_other_side_of_the_units(rows: int, turned: bool) -> None:
    """The columns of weights, which lie either way, are that of 64."""
    schedule, code = code_as_planned(product(rows, 8192, 4096, "bf16", turned), CHIP)
    assert f"HGMMA.64x{rows}x16.F32.BF16 " in code
    assert "UTMALDG" in code
    weights = (schedule.buffers - 1) * schedule.columns * schedule.terms * 2
    assert weights >= 32 << 10, "bytes of weights on their way to a group"
    loops = [(loop["HGMMA"], loop["BAR"]) for loop in loops_of(code)]
    assert (4 * schedule.buffers, schedule.buffers) in loops


def convolution(side: int, channels: int, window: int, step: int, guard: str) -> TensorProgram:
    """Of 32 images, a bias behind."""
    results, size = side // step, f"{window}, {window}, {channels}, 256"
    y, loops = (
        f"32, {results}, {results}, 256",
        f"n < 32, h < {results}, w < {results}, j < 256",
    )
    inputs = f"%x: bf16[32, {side}, {side}, {channels}], %w: bf16[{size}], %r: f32[256]"
    return parse_tensor_program(
        f"""program @p({inputs}) -> (%y) {{
          kernel @k({inputs}) -> (%y: bf16[{y}]) {{
            %p: f32[{y}] = [{loops}] sum[c < {channels}, a < {window}, b < {window}]
              f32({guard}) * f32(%w[a, b, c, j])
            %y: bf16[{y}] = [{loops}] bf16(max(%p[n, h, w, j] + %r[j], 0.0)) }} }}""",
        {},
    )


CONVOLUTIONS = {
    "padded": convolution(14, 256, 3, 1, """(%x[n, h + a - 1, w + b - 1, c]
      if [h + a >= 1, h + a < 15, w + b >= 1, w + b < 15] else 0.0:bf16)"""),
    "padded, other channels": convolution(14, 96, 3, 1, """(%x[n, h + a - 1, w + b - 1, c]
      if [h + a >= 1, h + a < 15, w + b >= 1, w + b < 15] else 0.0:bf16)"""),
    "padded in steps": convolution(28, 256, 3, 2, """(%x[n, 2*h + a - 1, 2*w + b - 1, c]
      if [2*h + a >= 1, 2*h + a < 29, 2*w + b >= 1, 2*w + b < 29] else 0.0:bf16)"""),
    "in steps": convolution(28, 512, 1, 2, "%x[n, 2*h + a, 2*w + b, c]"),
    "patches": convolution(28, 192, 2, 2, "%x[n, 2*h + a, 2*w + b, c]"),
}  # fmt: skip


@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm")
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_windows_of_images_are_boxes(name: str) -> None:
    schedule, code = code_as_planned(CONVOLUTIONS[name], CHIP)
    assert f"HGMMA.64x{schedule.columns}x16.F32.BF16 " in code
    assert "UTMALDG.4D" in code or "UTMALDG.3D" in code or "UTMALDG.5D" in code
    loop = max(loops_of(code), key=lambda counts: counts["HGMMA"] / counts.total())
    assert loop["HGMMA"] == 4 * schedule.buffers


@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm")
@pytest.mark.share(2, "dtype")
@pytest.mark.parametrize("dtype", ["f8e4m3fn", "f8e5m2"])
def test_floats_of_8_bits_are_multiplied_as_they_are(dtype: str) -> None:
    """And added up in f32: two blocks of products in turns, not one wait for each."""
    schedule, code = code_as_planned(product(4096, 4096, 4096, dtype, turned=True), CHIP)
    kind = dtype.removesuffix("fn")[2:].upper()
    assert f"QGMMA.64x128x32.F32.{kind}.{kind} " in code
    loop = max(loops_of(code), key=lambda counts: counts["QGMMA"] / counts.total())
    assert loop["QGMMA"] == 4 * schedule.buffers
    assert loop["FADD"] == schedule.buffers * schedule.columns // 2
    assert loop["WARPGROUP"] == 2 * schedule.buffers + 1  # each begins, and is waited for


@pytest.mark.parametrize(
    ("program", "instruction"),
    [(product(512, 512, 512, "i8"), "mma"), (product(4096, 4096, 4100, "f16"), "mma")],
    ids=["integers", "rows on no boundaries"],
)
def test_other_products_are_those_of_warps(program: TensorProgram, instruction: str) -> None:
    schedule = default_schedule(kernel_of(program).kernel, CHIP.gpu)
    assert isinstance(schedule, TensorProduct)
    assert schedule.instruction == instruction


@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm")
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_results_are_finished_while_the_next_tile_is_multiplied(dtype: str) -> None:
    """Between the products of a block and the next wait for some; ptxas keeps all in flight."""
    schedule, code = code_as_planned(product(4096, 3072, 768, dtype), CHIP)
    assert schedule.groups
    blocks = [loop for loop in loops_of(code) if loop["HGMMA"] == 4 and loop["UTMALDG"]]
    inner = min(blocks, key=lambda counts: counts.total())
    assert inner["WARPGROUP"] == 2  # it begins, and all but it are waited for
    assert inner["BAR"] == 1
    assert inner["LDS"] and inner["STG"] and not inner["STS"]


def residual(m: int, n: int, k: int, dtype: str) -> TensorProgram:
    """A product with a bias, and with a residual from memory."""
    inputs = (
        f"%a: {dtype}[{m}, {k}], %b: {dtype}[{k}, {n}], %c: {dtype}[{n}], %r: {dtype}[{m}, {n}]"
    )
    return parse_tensor_program(
        f"""program @p({inputs}) -> (%y) {{
          kernel @k({inputs}) -> (%y: {dtype}[{m}, {n}]) {{
            %p: f32[{m}, {n}] = [i < {m}, j < {n}] sum[l < {k}] f32(%a[i, l]) * f32(%b[l, j])
            %y: {dtype}[{m}, {n}] = [i < {m}, j < {n}]
              {dtype}(%p[i, j] + f32(%c[j]) + f32(%r[i, j])) }} }}""",
        {},
    )


@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm")
@pytest.mark.parametrize(
    ("rows", "dtype", "before"),
    [(4096, "f16", 15), (4096, "bf16", 15), (4000, "f16", 13)],
    ids=["f16", "bf16", "no whole tiles"],
)
def test_operands_are_asked_for_before_the_last_products(
    rows: int, dtype: str, before: int
) -> None:
    """Three vectors of the bias and twelve of the residual, or what registers allow; none behind
    the last barrier."""
    schedule, code = code_as_planned(residual(rows, 768, 768, dtype), CHIP)
    assert (schedule.rows, schedule.columns, schedule.groups) == (128, 192, 0)
    lines = code.splitlines()
    asked = [n for n, line in enumerate(lines) if "LDG.E" in line]
    products = [n for n, line in enumerate(lines) if "HGMMA" in line]
    met = max(n for n, line in enumerate(lines) if "BAR.SYNC" in line)
    early = [n for n in asked if n < products[-4 * (schedule.buffers - 1)]]
    assert len(asked) == 15
    assert len(early) == before
    assert max(asked) < met


@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="there is no nvdisasm")
def test_residuals_of_the_tile_before_come_while_the_units_multiply() -> None:
    """They are asked for before the products of a block, and what waits for them is behind."""
    program = parse_tensor_program(
        """program @p(%a: bf16[6304, 1024], %b: bf16[1024, 768], %r: bf16[6304, 768]) -> (%y) {
          kernel @k(%a: bf16[6304, 1024], %b: bf16[1024, 768], %r: bf16[6304, 768])
            -> (%y: bf16[6304, 768]) {
            %p: f32[6304, 768] = [i < 6304, j < 768] sum[l < 1024] f32(%a[i, l]) * f32(%b[l, j])
            %y: bf16[6304, 768] = [i < 6304, j < 768] bf16(%p[i, j]) + %r[i, j] } }""",
        {},
    )
    kernel = kernel_of(program)
    schedule = next(
        s for s in candidates(kernel.kernel, CHIP.gpu) if isinstance(s, TensorProduct) and s.groups
    )
    function = lower_groups(kernel, schedule)
    made = assemble(ptx_text(llvm_text([function], CHIP), CHIP), CHIP)
    assert made.uses["k"].spilled == 0
    words = [w for w in disassemble(made.code).split() if w in MET or w.startswith("LDG.E.128")]
    first = words.index("WARPGROUP.ARRIVE")
    assert words[first - 1].startswith("LDG"), "the last before products begin"
    behind = words[first : words.index("WARPGROUP.DEPBAR.LE", first)]
    assert not any(word.startswith("LDG") for word in behind)


MET = ("WARPGROUP.ARRIVE", "WARPGROUP.DEPBAR.LE", "BAR.SYNC.DEFER_BLOCKING")
