"""Products of one operand that a kernel combines become part of it: which do, and which stay."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.targets.cuda.chips import find_chip
from modelcc.targets.gpu.passes.fuse_gated_products import FuseGatedProducts

GPU = find_chip("sm_90a").gpu

GATE = "%a: f32[64, 48] = [i < 64, j < 48] max(%p[i, j], 0.0)"
PRODUCT = "%q: f32[64, 48] = [m < 64, n < 48] sum[r < 32] %x[m, r] * %u[r, n]"
BOTH = "%y: f32[64, 48] = [m < 64, n < 48] %q[m, n] * %a[m, n]"


def program(
    first: str = "sum[k < 32] %x[i, k] * %g[k, j]",
    gate: str = GATE,
    product: str = PRODUCT,
    both: str = BOTH,
    outputs: str = "%y",
    more: str = "",
    handed: str = "%a",
) -> TensorProgram:
    """Two products of x, each with its kernel; the second one reads what the first one makes."""
    inputs = "%x: f32[64, 32], %z: f32[64, 32], %g: f32[32, 48], %u: f32[32, 48], %w: f32[48, 48]"
    return parse_tensor_program(
        f"""program @p({inputs}) -> ({outputs}) dims() {{
          kernel @G(%x: f32[64, 32], %z: f32[64, 32], %g: f32[32, 48]) -> (%a: f32[64, 48]) {{
            %p: f32[64, 48] = [i < 64, j < 48] {first}
            {gate}
          }}
          {more}
          kernel @U(%x: f32[64, 32], %u: f32[32, 48], %w: f32[48, 48], {handed}: f32[64, 48])
            -> (%y: f32[64, 48]) {{
            {product}
            {both}
          }} }}""",
        {},
    )


JOINED: Mapping[str, TensorProgram] = {
    "as they are": program(),
    "factors in another order": program("sum[k < 32] %g[k, j] * %x[i, k]"),
    "twice": program(both=BOTH.replace("%a[m, n]", "(%a[m, n] + exp(%a[m, n] * 0.01))")),
}

APART: Mapping[str, TensorProgram] = {
    "a result is wanted": program(outputs="%y, %a"),
    "another operand": program("sum[k < 32] %z[i, k] * %g[k, j]"),
    "another reduction": program("max[k < 32] %x[i, k] * %g[k, j]"),
    "a transposed result": program(
        product="%q: f32[64, 48] = [m < 64, n < 48] sum[r < 32] %x[m, r] * %u[r, n]",
        both="%y: f32[64, 48] = [m < 64, n < 48] %q[m, n] * %a[(m + 1) mod 64, n]",
    ),
    "a product of the result": program(
        product="%q: f32[64, 48] = [m < 64, n < 48] sum[r < 48] %a[m, r] * %w[r, n]",
        both="%y: f32[64, 48] = [m < 64, n < 48] %q[m, n] * %a[m, n]",
    ),
    "another reader": program(
        outputs="%y, %s",
        more="""kernel @S(%a: f32[64, 48]) -> (%s: f32[64]) {
          %s: f32[64] = [i < 64] sum[j < 48] %a[i, j] }""",
    ),
}


def kernels(found: TensorProgram) -> list[Kernel]:
    return [item for item in found.items if isinstance(item, Kernel)]


@pytest.mark.parametrize("name", JOINED)
def test_joined_products_mean_the_same(name: str) -> None:
    before = JOINED[name]
    after = FuseGatedProducts(GPU)(before)
    verify_tensor_program(after)
    (kernel,) = kernels(after)
    assert [bool(stage.reduce) for stage in kernel.stages] == [True, True, False, False]
    rng = np.random.default_rng(0)
    feeds = {n: rng.integers(-4, 5, before.types[n].static_shape()) for n in before.inputs}
    given = {n: value.astype(np.float32) for n, value in feeds.items()}
    wanted, found = run_program(before, given, {}), run_program(after, given, {})
    np.testing.assert_array_equal(found["y"], wanted["y"])


@pytest.mark.parametrize("name", APART)
def test_others_stay(name: str) -> None:
    before = APART[name]
    assert FuseGatedProducts(GPU)(before) == before


def test_three_products_are_two_kernels() -> None:
    """Of a chain the first two are one, and nothing is computed twice."""
    third = """kernel @V(%x: f32[64, 32], %g: f32[32, 48], %a: f32[64, 48])
      -> (%b: f32[64, 48]) {
      %v: f32[64, 48] = [i < 64, j < 48] sum[k < 32] %x[i, k] * %g[k, j]
      %b: f32[64, 48] = [i < 64, j < 48] %v[i, j] - %a[i, j] }"""
    before = program(both=BOTH.replace("%a", "%b"), more=third, handed="%b")
    first, second = kernels(FuseGatedProducts(GPU)(before))
    assert (first.outputs, second.outputs) == (("b",), ("y",))
    assert sum(bool(stage.reduce) for stage in first.stages) == 2


def halves(read: str, weight: int = 96, outputs: str = "%y") -> TensorProgram:
    """A product of which results have two columns each, as ``read`` says."""
    inputs = f"%x: f32[64, 32], %w: f32[32, {weight}], %b: f32[{weight}]"
    whole = f"%a: f32[64, {weight}]"
    return parse_tensor_program(
        f"""program @p({inputs}) -> ({outputs}) dims() {{
          kernel @G({inputs}) -> ({whole}) {{
            %p: f32[64, {weight}] = [i < 64, j < {weight}] sum[k < 32] %x[i, k] * %w[k, j]
            {whole} = [i < 64, j < {weight}] %p[i, j] + %b[j]
          }}
          kernel @U({whole}) -> (%y: f32[64, 48]) {{
            %y: f32[64, 48] = [m < 64, n < 48] {read}
          }} }}""",
        {},
    )


@pytest.mark.parametrize("weight", [96, 104])
@pytest.mark.parametrize(("first", "second"), [("n", "n + 48"), ("n + 48", "n"), ("n + 8", "n")])
def test_halves_of_a_product_are_twins(first: str, second: str, weight: int) -> None:
    before = halves(f"max(%a[m, {first}], 0.0) * %a[m, {second}]", weight)
    after = FuseGatedProducts(GPU)(before)
    verify_tensor_program(after)
    (kernel,) = kernels(after)
    assert [bool(stage.reduce) for stage in kernel.stages] == [True, True, False, False, False]
    rng = np.random.default_rng(0)
    feeds = {n: rng.integers(-4, 5, before.types[n].static_shape()) for n in before.inputs}
    given = {n: value.astype(np.float32) for n, value in feeds.items()}
    wanted, found = run_program(before, given, {}), run_program(after, given, {})
    np.testing.assert_array_equal(found["y"], wanted["y"])


WHOLE: Mapping[str, TensorProgram] = {
    "one column": halves("%a[m, n + 8] * 2.0"),
    "three": halves("%a[m, n + 8] * %a[m, n] + %a[m, n + 48]"),
    "every second one": halves("%a[m, 2*n] * %a[m, 2*n + 1]"),
    "another row": halves("%a[m, n] * %a[(m + 1) mod 64, n + 48]"),
    "wanted": halves("%a[m, n] * %a[m, n + 48]", outputs="%y, %a"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_others_stay_whole(name: str) -> None:
    before = WHOLE[name]
    assert FuseGatedProducts(GPU)(before) == before


def test_weights_that_lie_in_two_ways_stay_apart() -> None:
    """Tiles have both or none, and threads that share terms would take longer."""
    text = """program @p(%x: f16[40, 64], %g: f16[64, 96], %u: f16[96, 64]) -> (%y) dims() {
      kernel @G(%x: f16[40, 64], %g: f16[64, 96]) -> (%a: f32[40, 96]) {
        %p: f32[40, 96] = [i < 40, j < 96] sum[k < 64] f32(%x[i, k]) * f32(%g[k, j])
        %a: f32[40, 96] = [i < 40, j < 96] max(%p[i, j], 0.0)
      }
      kernel @U(%x: f16[40, 64], %u: f16[96, 64], %a: f32[40, 96]) -> (%y: f32[40, 96]) {
        %q: f32[40, 96] = [i < 40, j < 96] sum[k < 64] f32(%x[i, k]) * f32(%u[j, k])
        %y: f32[40, 96] = [i < 40, j < 96] %q[i, j] * %a[i, j]
      } }"""
    before = parse_tensor_program(text, {})
    assert FuseGatedProducts(GPU)(before) == before
