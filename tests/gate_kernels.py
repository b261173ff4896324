"""Kernels of two products of one operand, as text."""

from __future__ import annotations


def gate(dtype: str, rows: str, inner: int, columns: int, turned: bool = False) -> str:
    """A gate with a bias, by what is multiplied with it."""
    weight = f"[{columns}, {inner}]" if turned else f"[{inner}, {columns}]"
    at = "[j, l]" if turned else "[l, j]"
    names = "abc"[: rows.count(",") + 1]
    axes = ", ".join(f"{a} < {e.strip()}" for a, e in zip(names, rows.split(","), strict=True))
    here = ", ".join(names)
    narrow = dtype if dtype != "f32" else ""
    wide = "f32" if dtype != "f32" else ""
    return f"""%x: {dtype}[{rows}, {inner}], %g: {dtype}{weight}, %u: {dtype}{weight},
        %bias: f32[{columns}]) -> (%y: {dtype}[{rows}, {columns}]) {{
      %p: f32[{rows}, {columns}] = [{axes}, j < {columns}] sum[l < {inner}]
        {wide}(%x[{here}, l]) * {wide}(%g{at})
      %q: f32[{rows}, {columns}] = [{axes}, j < {columns}] sum[l < {inner}]
        {wide}(%x[{here}, l]) * {wide}(%u{at})
      %s: f32[{rows}, {columns}] = [{axes}, j < {columns}] max(%p[{here}, j] + %bias[j], 0.0)
      %y: {dtype}[{rows}, {columns}] = [{axes}, j < {columns}]
        {narrow}(%s[{here}, j] * %q[{here}, j]) }}"""


def rounded(kernel: str, dtype: str) -> str:
    """The same with sums that are rounded first, as models of ``dtype`` have them."""
    for sums in ("%p[a, j]", "%q[a, j]"):
        kernel = kernel.replace(sums, f"f32({dtype}({sums}))")
    return kernel
