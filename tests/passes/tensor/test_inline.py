"""What is computed where it is read, and what is stored first."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.scalar_tree import depth, size
from modelcc.ir.tensor import Kernel
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.passes.tensor.inline import DEPTH, SIZE, InlineStages

GATED = """program @main(%x: f32[1, 8, 5, 5], %s: f32[1, 8]) -> (%y) {{
  kernel @Gate(%s: f32[1, 8]) -> (%g: f32[1, 8]) {{
    %g: f32[1, 8] = [n < 1, c < 8] {gate}
  }}
  kernel @Mul(%x: f32[1, 8, 5, 5], %g: f32[1, 8]) -> (%y: f32[1, 8, 5, 5]) {{
    %y: f32[1, 8, 5, 5] = [n < 1, c < 8, h < 5, w < 5] %x[n, c, h, w] * %g[n, c]
  }}
}}"""


@pytest.mark.parametrize(
    ("gate", "kernels"),
    [("sigmoid(%s[n, c])", 2), ("%s[n, c] + 1.0", 1)],
    ids=["dear, once per channel", "cheap"],
)
def test_dear_values_are_not_computed_for_every_pixel(gate: str, kernels: int) -> None:
    program = parse_tensor_program(GATED.format(gate=gate), {})
    assert len(InlineStages()(program).items) == kernels


def test_dear_values_are_not_computed_for_every_channel_of_a_group() -> None:
    text = """program @main(%x: f32[5, 8], %s: f32[5, 2]) -> (%y) {
      kernel @Gate(%s: f32[5, 2]) -> (%g: f32[5, 2]) {
        %g: f32[5, 2] = [n < 5, c < 2] sigmoid(%s[n, c])
      }
      kernel @Mul(%x: f32[5, 8], %g: f32[5, 2]) -> (%y: f32[5, 8]) {
        %y: f32[5, 8] = [n < 5, c < 8] %x[n, c] * %g[n, c floordiv 4]
      }
    }"""
    assert len(InlineStages()(parse_tensor_program(text, {})).items) == 2


def test_dear_values_are_computed_where_each_is_read_once() -> None:
    text = """program @main(%x: f32[4, 5]) -> (%y) {
      kernel @Tanh(%x: f32[4, 5]) -> (%t: f32[4, 5]) {
        %t: f32[4, 5] = [i < 4, j < 5] tanh(%x[i, j])
      }
      kernel @Add(%t: f32[4, 5]) -> (%y: f32[4, 5]) {
        %y: f32[4, 5] = [a < 4, b < 5] %t[a, b] + 1.0
      }
    }"""
    assert len(InlineStages()(parse_tensor_program(text, {})).items) == 1


@pytest.mark.parametrize(
    ("rows", "kernels"), [(5, 1), (100, 2)], ids=["some rows", "each row several times"]
)
def test_what_is_found_by_rows_is_moved_to_where_these_are_if_that_pays(
    rows: int, kernels: int
) -> None:
    text = f"""program @main(%x: f32[32, 50], %k: i64[{rows}]) -> (%y) {{
      kernel @Transpose(%x: f32[32, 50]) -> (%t: f32[50, 32]) {{
        %t: f32[50, 32] = [i < 50, j < 32] %x[j, i]
      }}
      kernel @Gather(%t: f32[50, 32], %k: i64[{rows}]) -> (%y: f32[{rows}, 32]) {{
        %y: f32[{rows}, 32] = [a < {rows}, b < 32] (let g = %k[a] in %t[g, b])
      }}
    }}"""
    assert len(InlineStages()(parse_tensor_program(text, {})).items) == kernels


def test_expressions_stay_small_however_long_a_chain_is() -> None:
    shape = "f32[4]"
    kernels = "\n".join(
        f"kernel @Add(%x{n}: {shape}) -> (%x{n + 1}: {shape}) {{"
        f" %x{n + 1}: {shape} = [i < 4] %x{n}[i] + 1.0 }}"
        for n in range(200)
    )
    text = f"program @main(%x0: {shape}) -> (%x200) {{\n{kernels}\n}}"
    items = InlineStages()(parse_tensor_program(text, {})).items
    bodies = [item.stages[0].body for item in items if isinstance(item, Kernel)]
    assert 1 < len(bodies) < 20
    assert all(depth(body) <= DEPTH for body in bodies)


def test_values_that_are_read_twice_do_not_double_an_expression_each_time() -> None:
    shape = "f32[4]"
    kernels = "\n".join(
        f"kernel @Where(%c: bool[4], %x{n}: {shape}) -> (%x{n + 1}: {shape}) {{"
        f" %x{n + 1}: {shape} = [i < 4] select(%c[i], %x{n}[i], %x{n}[3 - i]) }}"
        for n in range(40)
    )
    text = f"program @main(%c: bool[4], %x0: {shape}) -> (%x40) {{\n{kernels}\n}}"
    items = InlineStages()(parse_tensor_program(text, {})).items
    bodies = [item.stages[0].body for item in items if isinstance(item, Kernel)]
    assert all(size(body) <= SIZE for body in bodies)


@pytest.mark.parametrize(
    ("place", "kernels"), [("(i*m) floordiv k", 2), ("i floordiv 2", 1)], ids=["late", "known"]
)
def test_quotients_by_sizes_are_not_computed_for_every_element(place: str, kernels: int) -> None:
    text = f"""program @main(%x: f32[4, n], %s: f32[m], %t: f32[k]) -> (%y)
        dims(n in 1:, m in 1:, k in 1:) {{
      kernel @Places() -> (%p: i64[9]) {{
        %p: i64[9] = [i < 9] index(min({place}, n - 1)):i64
      }}
      kernel @Rows(%x: f32[4, n], %p: i64[9]) -> (%y: f32[4, 9]) {{
        %y: f32[4, 9] = [i < 4, j < 9] (let g = %p[j] in %x[i, g])
      }}
    }}"""
    assert len(InlineStages()(parse_tensor_program(text, {})).items) == kernels


@pytest.mark.parametrize(("body", "kernels"), [("f32(bf16(%w[k, j]))", 2), ("%w[k, j]", 1)])
def test_numbers_of_a_sum_are_rounded_once(body: str, kernels: int) -> None:
    text = f"""program @main(%a: f32[64, 32], %w: f32[32, 16]) -> (%y) {{
      kernel @Cast(%w: f32[32, 16]) -> (%v: f32[32, 16]) {{
        %v: f32[32, 16] = [k < 32, j < 16] {body}
      }}
      kernel @Gemm(%a: f32[64, 32], %v: f32[32, 16]) -> (%y: f32[64, 16]) {{
        %y: f32[64, 16] = [i < 64, j < 16] sum[k < 32] %a[i, k] * %v[k, j]
      }}
    }}"""
    assert len(InlineStages()(parse_tensor_program(text, {})).items) == kernels


@pytest.mark.parametrize(
    ("value", "kernels"),
    [
        ("-f32(%x[i, j + 4])", 1),
        ("max(f32(%x[i, j + 4]), 0.0)", 1),
        ("exp(f32(%x[i, j + 4]))", 2),
        ("-%w[i, j + 4]", 2),
        ("max(f32(%x[i, j + 4]), 0.1)", 2),
    ],
    ids=["sign", "bound", "function", "number of 32 bits", "bound that is rounded"],
)
def test_what_rounds_nothing_is_computed_where_it_is_read(value: str, kernels: int) -> None:
    """Half of a rotary embedding, in f16 between conversions."""
    text = f"""program @main(%x: f16[3, 8], %w: f32[3, 8]) -> (%y) {{
      kernel @Half(%x: f16[3, 8], %w: f32[3, 8]) -> (%n: f32[3, 4]) {{
        %n: f32[3, 4] = [i < 3, j < 4] {value}
      }}
      kernel @Cast(%n: f32[3, 4]) -> (%h: f16[3, 4]) {{
        %h: f16[3, 4] = [i < 3, j < 4] f16(%n[i, j])
      }}
      kernel @Turn(%h: f16[3, 4], %x: f16[3, 8]) -> (%y: f16[3, 8]) {{
        %y: f16[3, 8] = [i < 3, j < 8] (%h[i, j] if [j < 4] else %x[i, j - 4])
      }}
    }}"""
    assert len(InlineStages()(parse_tensor_program(text, {})).items) == kernels


def test_a_result_is_stored_by_what_goes_on_with_it() -> None:
    """A cache that grows is a result, and is converted: the conversion reads it, not what it is
    put together from, so that both become a kernel."""
    text = """program @main(%c: f32[4, 3], %k: f32[1, 3]) -> (%p, %h) {
      kernel @Concat(%c: f32[4, 3], %k: f32[1, 3]) -> (%p: f32[5, 3]) {
        %p: f32[5, 3] = [i < 5, j < 3] (%c[i, j] if [i < 4] else %k[0, j])
      }
      kernel @Cast(%p: f32[5, 3]) -> (%h: f16[1, 5, 3]) {
        %h: f16[1, 5, 3] = [n < 1, i < 5, j < 3] f16(%p[i, j])
      }
    }"""
    *_, cast = InlineStages()(parse_tensor_program(text, {})).items
    assert isinstance(cast, Kernel) and cast.inputs == ("p",)


ROUNDED = """program @main(%x: f16[4, 8], %c: f32[4, 8], %p: f32[4, 3, 8]) -> ({results}) {{
  kernel @Turn(%x: f16[4, 8], %c: f32[4, 8]) -> (%t: f16[4, 8]) {{
    %t: f16[4, 8] = [i < 4, j < 8] f16(f32(%x[i, j]) * %c[i, j] + f32(%x[i, 7 - j]))
  }}
  kernel @Cast(%t: f16[4, 8]) -> (%w: f32[4, 1, 8]) {{
    %w: f32[4, 1, 8] = [i < 4, n < 1, j < 8] f32(%t[i, j])
  }}
  {rest}
}}"""

GROWN = """kernel @Concat(%p: f32[4, 3, 8], %w: f32[4, 1, 8]) -> (%y: f32[4, 4, 8]) {
  %y: f32[4, 4, 8] = [i < 4, n < 4, j < 8]
    (%p[i, n, j] if [n < 3] else (%w[i, n - 3, j] if [n >= 3] else 0.0))
}"""
EACH = """kernel @Add(%p: f32[4, 3, 8], %w: f32[4, 1, 8]) -> (%y: f32[4, 3, 8]) {
  %y: f32[4, 3, 8] = [i < 4, n < 3, j < 8] %p[i, n, j] + %w[i, 0, j]
}"""
SAME = """kernel @Exp(%w: f32[4, 1, 8]) -> (%y: f32[4, 1, 8]) {
  %y: f32[4, 1, 8] = [i < 4, n < 1, j < 8] exp(%w[i, n, j])
}"""
SUMMED = """kernel @Sum(%w: f32[4, 1, 8]) -> (%y: f32[4]) {
  %y: f32[4] = [i < 4] sum[j < 8] %w[i, 0, j]
}"""


@pytest.mark.parametrize(
    ("rest", "results", "kernels"),
    [
        (GROWN, "%y", 1),
        (GROWN, "%y, %t", 2),
        (GROWN, "%y, %w", 3),
        (EACH, "%y", 2),
        (SAME, "%y", 2),
        (SUMMED, "%y", 2),
    ],
    ids=["a cache that grows", "a result", "a wide result", "over again", "fused", "summed"],
)
def test_floats_are_rounded_where_another_kernel_reads_them_once(
    rest: str, results: str, kernels: int
) -> None:
    """A rotary embedding in f16, and the cache that it goes to: the same bits."""
    program = parse_tensor_program(ROUNDED.format(rest=rest, results=results), {})
    after = InlineStages(roundings=True)(program)
    assert len(after.items) == kernels
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal((4, 8)).astype(np.float16),
        "c": rng.standard_normal((4, 8)).astype(np.float32),
        "p": rng.standard_normal((4, 3, 8)).astype(np.float32),
    }
    turned = feeds["x"].astype(np.float32) * feeds["c"] + feeds["x"][:, ::-1].astype(np.float32)
    found = run_program(after, feeds, {})
    if rest == GROWN:
        np.testing.assert_array_equal(found["y"][:, :3], feeds["p"])
        np.testing.assert_array_equal(found["y"][:, 3], turned.astype(np.float16))
    wanted = run_program(program, feeds, {})
    np.testing.assert_array_equal(found["y"], wanted["y"])
    assert len(InlineStages()(program).items) > 1


def test_what_follows_a_sum_is_rounded_with_it() -> None:
    """A product of f16 writes f16, whatever moves that."""
    text = """program @main(%a: f16[4, 16], %b: f16[16, 8], %p: f16[3, 8]) -> (%y) {
      kernel @MatMul(%a: f16[4, 16], %b: f16[16, 8]) -> (%s: f32[4, 8]) {
        %s: f32[4, 8] = [i < 4, j < 8] sum[k < 16] f32(%a[i, k]) * f32(%b[k, j])
      }
      kernel @Cast(%s: f32[4, 8]) -> (%h: f16[4, 8]) {
        %h: f16[4, 8] = [i < 4, j < 8] f16(%s[i, j])
      }
      kernel @Concat(%p: f16[3, 8], %h: f16[4, 8]) -> (%y: f16[7, 8]) {
        %y: f16[7, 8] = [i < 7, j < 8] (%p[i, j] if [i < 3] else %h[i - 3, j])
      }
    }"""
    program = parse_tensor_program(text, {})
    assert len(InlineStages(roundings=True)(program).items) == 3


def test_a_norm_is_rounded_with_its_sums() -> None:
    text = """program @main(%x: f32[4, 16], %p: f16[3, 16]) -> (%y) {
      kernel @Sum(%x: f32[4, 16]) -> (%s: f32[4]) {
        %s: f32[4] = [i < 4] sum[k < 16] %x[i, k] * %x[i, k]
      }
      kernel @Root(%s: f32[4]) -> (%r: f32[4]) {
        %r: f32[4] = [i < 4] rsqrt(%s[i] + 1.0)
      }
      kernel @Cast(%x: f32[4, 16], %r: f32[4]) -> (%h: f16[4, 16]) {
        %h: f16[4, 16] = [i < 4, j < 16] f16(%x[i, j] * %r[i])
      }
      kernel @Concat(%p: f16[3, 16], %h: f16[4, 16]) -> (%y: f16[7, 16]) {
        %y: f16[7, 16] = [i < 7, j < 16] (%p[i, j] if [i < 3] else %h[i - 3, j])
      }
    }"""
    items = InlineStages(roundings=True)(parse_tensor_program(text, {})).items
    assert [item.name for item in items if isinstance(item, Kernel)][-2:] == ["Cast", "Concat"]


def test_updates_at_places_are_rounded_where_they_are_made() -> None:
    text = """program @main(%x: f32[2, 8], %k: i64[2], %p: f16[9, 8]) -> (%y) {
      kernel @Turn(%x: f32[2, 8]) -> (%t: f16[2, 8]) {
        %t: f16[2, 8] = [i < 2, j < 8] f16(%x[i, j] * %x[i, 7 - j])
      }
      scatter %p (%p: f16[9, 8], %k: i64[2], %t: f16[2, 8]) {
        %y[g, j]: f16[9, 8] = [i < 2, j < 8] (let g = %k[i] below [9] in %t[i, j])
      }
    }"""
    program = parse_tensor_program(text, {})
    after = InlineStages(roundings=True)(program)
    assert len(after.items) == 1
    rng = np.random.default_rng(0)
    x, p = rng.standard_normal((2, 8)).astype(np.float32), np.zeros((9, 8), np.float16)
    found = run_program(after, {"x": x, "k": np.array([7, 2]), "p": p}, {})["y"]
    np.testing.assert_array_equal(found[[7, 2]], (x * x[:, ::-1]).astype(np.float16))
