"""Kernels of gradients of attention: sums of rows of tiles that products make."""

from __future__ import annotations

from attention_programs import unconverted
from group_products import program_of

from modelcc.ir.tensor import TensorProgram

CAUSAL = "select(ge(index(i - j + {offset}):i64, 0), {value}, 0.0)"


def gradients(
    of: str,
    heads: int,
    rows: int,
    keys: int,
    depth: int,
    width: int,
    dtype: str,
    offset: int | None = None,
    mask: bool = False,
    groups: int = 1,
) -> TensorProgram:
    """``of`` queries, or of keys and values; with an ``offset`` causal.  ``groups`` of heads of
    queries share those of keys."""
    h, k = "%q[h, i, d]", "%k[h, j, d]" if groups == 1 else f"%k[h floordiv {groups}, j, d]"
    v = "%v[h, j, e]" if groups == 1 else f"%v[h floordiv {groups}, j, e]"
    tile, at = f"[{heads}, {rows}, {keys}]", f"h < {heads}, i < {rows}, j < {keys}"
    power = f"exp(%p[h, i, j] * 0.5{' + %b[i, j]' if mask else ''} - %l[h, i])"
    power = power if offset is None else CAUSAL.format(offset=offset, value=power)
    rounds = dtype != "f32"
    slope, back = (f"{dtype}(", ")") if rounds else ("", "")
    ends = {
        "queries": (
            f"%x: {dtype}[{heads}, {rows}, {depth}]",
            f"""%c: f32[{heads}, {rows}, {depth}] = [h < {heads}, i < {rows}, d < {depth}]
              sum[j < {keys}] f32(%z[h, i, j]) * f32({k})
            %x: {dtype}[{heads}, {rows}, {depth}] = [h < {heads}, i < {rows}, d < {depth}]
              {slope}%c[h, i, d] * 0.5{back}""",
        ),
        "keys": (
            f"%x: {dtype}[{heads}, {keys}, {depth}], %y: {dtype}[{heads}, {keys}, {width}]",
            f"""%c: f32[{heads}, {keys}, {depth}] = [h < {heads}, j < {keys}, d < {depth}]
              sum[i < {rows}] f32(%z[h, i, j]) * f32({h})
            %x: {dtype}[{heads}, {keys}, {depth}] = [h < {heads}, j < {keys}, d < {depth}]
              {slope}%c[h, j, d] * 0.5{back}
            %u: f32[{heads}, {keys}, {width}] = [h < {heads}, j < {keys}, e < {width}]
              sum[i < {rows}] {"f32(" + dtype + "(%w[h, i, j]))" if rounds else "%w[h, i, j]"}
                * f32(%g[h, i, e])
            %y: {dtype}[{heads}, {keys}, {width}] = [h < {heads}, j < {keys}, e < {width}]
              {slope}%u[h, j, e]{back or " * 1.0"}""",
        ),
    }
    outputs, stages = ends[of]
    few = heads // groups
    added = f", %b: f32[{rows}, {keys}]" if mask else ""
    text = f"""%g: {dtype}[{heads}, {rows}, {width}], %q: {dtype}[{heads}, {rows}, {depth}],
      %k: {dtype}[{few}, {keys}, {depth}], %v: {dtype}[{few}, {keys}, {width}],
      %l: f32[{heads}, {rows}], %r: f32[{heads}, {rows}]{added})
      -> ({outputs}) {{
      %p: f32{tile} = [{at}] sum[d < {depth}] f32({h}) * f32({k})
      %w: f32{tile} = [{at}] {power}
      %t: f32{tile} = [{at}] sum[e < {width}] f32(%g[h, i, e]) * f32({v})
      %z: {dtype}{tile} = [{at}] {slope}%w[h, i, j] * (%t[h, i, j] - %r[h, i]){back}
      {stages} }}"""
    return program_of(text if rounds else unconverted(text), {})
