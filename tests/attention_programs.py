"""Kernels of attention: masks, grouped queries, any sizes."""

from __future__ import annotations

import re

import numpy as np
from group_products import program_of

from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import Array


def attention(
    heads: int,
    groups: int,
    rows: int,
    keys: int,
    depth: int,
    width: int,
    dtype: str,
    score: str,
    result: str = "f32",
    sums: bool = False,
) -> TensorProgram:
    """Groups of queries have keys and values together; results are in the order of rows.  With
    ``sums`` their logarithms are results, too."""
    at, all_ = f"h < {heads}, g < {groups}, i < {rows}", f"{heads}, {groups}, {rows}"
    mask = f", %b: f32[{rows}, {keys}]" if "%b" in score else ""
    last = "%u[h, g, i, c] * 2.0" if result == "f32" else f"{result}(%u[h, g, i, c] * 2.0)"
    logarithms = f", %l: f32[{all_}]" if sums else ""
    whole = f"%l: f32[{all_}] = [{at}] %t[h, g, i] + log(%s[h, g, i])" if sums else ""
    text = f"""%q: {dtype}[{all_}, {depth}], %k: {dtype}[{heads}, {keys}, {depth}],
      %v: {dtype}[{heads}, {keys}, {width}]{mask})
      -> (%y: {result}[{heads}, {rows}, {groups}, {width}]{logarithms}) {{
      %p: f32[{all_}, {keys}] = [{at}, j < {keys}] sum[d < {depth}]
        f32(%q[h, g, i, d]) * f32(%k[h, j, d])
      %z: f32[{all_}, {keys}] = [{at}, j < {keys}] {score.format("%p[h, g, i, j]")}
      %t: f32[{all_}] = [{at}] max[j < {keys}] %z[h, g, i, j]
      %e: f32[{all_}, {keys}] = [{at}, j < {keys}] exp(%z[h, g, i, j] - %t[h, g, i])
      %s: f32[{all_}] = [{at}] sum[j < {keys}] %e[h, g, i, j]
      {whole}
      %w: f32[{all_}, {keys}] = [{at}, j < {keys}] %e[h, g, i, j] / %s[h, g, i]
      %u: f32[{all_}, {width}] = [{at}, c < {width}] sum[j < {keys}]
        %w[h, g, i, j] * f32(%v[h, j, c])
      %y[h, i, g, c]: {result}[{heads}, {rows}, {groups}, {width}] = [{at}, c < {width}]
        {last} }}"""
    return program_of(text if dtype != "f32" else unconverted(text), {})


def unconverted(text: str) -> str:
    """Reads of f32 as they are."""
    return re.sub(r"f32\((%\w+\[[\w, ]+\])\)", r"\1", text)


def named_attention(depth: int, dtype: str, score: str) -> TensorProgram:
    """Two heads of ``r`` queries and ``n`` keys, of which there may be none."""
    at, mask = "h < 2, i < r", ", %b: f32[r, n]" if "%b" in score else ""
    keys = f"{dtype}[2, n, {depth}]"
    given = f"%q: {dtype}[2, r, {depth}], %k: {keys}, %v: {keys}{mask}"
    text = f"""program @p({given}) -> (%y) dims(n in 0:, r in 1:) {{
      kernel @k({given}) -> (%y: {dtype}[2, r, {depth}]) {{
      %p: f32[2, r, n] = [{at}, j < n] sum[d < {depth}] f32(%q[h, i, d]) * f32(%k[h, j, d])
      %z: f32[2, r, n] = [{at}, j < n] {score.format("%p[h, i, j]")}
      %t: f32[2, r] = [{at}] max[j < n] %z[h, i, j]
      %e: f32[2, r, n] = [{at}, j < n] exp(%z[h, i, j] - %t[h, i])
      %s: f32[2, r] = [{at}] sum[j < n] %e[h, i, j]
      %w: f32[2, r, n] = [{at}, j < n] %e[h, i, j] / %s[h, i]
      %u: f32[2, r, {depth}] = [{at}, c < {depth}] sum[j < n] %w[h, i, j] * f32(%v[h, j, c])
      %y: {dtype}[2, r, {depth}] = [{at}, c < {depth}] {dtype}(%u[h, i, c]) }} }}"""
    found = parse_tensor_program(text, {})
    verify_tensor_program(found)
    return found


CAUSAL = "select(ge(index(i - j + 18):i64, 0), {} * 0.25, -inf)"


def feeds_of(program: TensorProgram) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    types = {name: program.types[name] for name in program.inputs}
    return {
        n: rng.standard_normal(t.static_shape()).astype(t.dtype.numpy) for n, t in types.items()
    }


def few_rows(
    heads: int,
    rows: int,
    keys: int | str,
    depth: int,
    width: int,
    kind: str = "f32",
    score: str = "{}",
) -> TensorProgram:
    """Rows of a head share its keys and values, of which a named number may be 0."""
    at, t, n = f"h < {heads}, i < {rows}", kind, keys
    mask = f", %b: f32[{n}]" if "%b" in score else ""
    program = f"""%q: {t}[{heads}, {rows}, {depth}], %k: {t}[{heads}, {n}, {depth}],
      %v: {t}[{heads}, {n}, {width}]{mask}) -> (%y: {t}[{heads}, {rows}, {width}]) {{
      %p: f32[{heads}, {rows}, {n}] = [{at}, j < {n}] sum[d < {depth}]
        f32(%q[h, i, d]) * f32(%k[h, j, d])
      %z: f32[{heads}, {rows}, {n}] = [{at}, j < {n}] {score.format("%p[h, i, j]")}
      %t: f32[{heads}, {rows}] = [{at}] max[j < {n}] %z[h, i, j]
      %e: f32[{heads}, {rows}, {n}] = [{at}, j < {n}] exp(%z[h, i, j] - %t[h, i])
      %s: f32[{heads}, {rows}] = [{at}] sum[j < {n}] %e[h, i, j]
      %w: f32[{heads}, {rows}, {n}] = [{at}, j < {n}] %e[h, i, j] / %s[h, i]
      %u: f32[{heads}, {rows}, {width}] = [{at}, c < {width}] sum[j < {n}]
        %w[h, i, j] * f32(%v[h, j, c])
      %y: {t}[{heads}, {rows}, {width}] = [{at}, c < {width}] {t}(%u[h, i, c]) }}"""
    program = program if t != "f32" else re.sub(r"f32\((%\w+\[[\w, ]+\])\)", r"\1", program)
    dims = "dims(n in 0:) " if n == "n" else ""
    inputs = program.split("->")[0].strip()
    text = f"program @p({inputs} -> (%y) {dims}{{ kernel @k({program} }}"
    found = parse_tensor_program(text, {})
    verify_tensor_program(found)
    return found
