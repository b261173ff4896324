"""Fused kernels, as tensor programs: what groups of threads have schedules for."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from modelcc.ir.index import evaluate
from modelcc.ir.program import Program
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import Array

KERNELS: Mapping[str, str] = {
    "product": """%a: f32[m, k], %b: f32[k, n], %c: f32[n], %r: f32[m, n]) -> (%y: f32[m, n]) {
      %p: f32[m, n] = [i < m, j < n] sum[l < k] %a[i, l] * %b[l, j]
      %q: f32[m, n] = [i < m, j < n] %p[i, j] + %c[j]
      %y: f32[m, n] = [i < m, j < n] max(%q[i, j], 0.0) + %r[i, j] }""",
    "product of rows": """%a: f32[12, 8], %b: f32[16, 8], %c: f32[16]) -> (%y: f32[12, 16]) {
      %p: f32[12, 16] = [i < 12, j < 16] sum[l < 8] exp(%a[i, l]) * %b[j, l]
      %y: f32[12, 16] = [i < 12, j < 16] max(%p[i, j], %c[j]) }""",
    "halves": """%a: f16[2, 12, 8], %b: f16[2, 8, 16]) -> (%y: f32[2, 12, 16]) {
      %y: f32[2, 12, 16] = [h < 2, i < 12, j < 16] sum[l < 8]
        f32(%a[h, i, l]) * f32(%b[h, l, j]) }""",
    "convolution": """%x: f32[2, 6, 5, 4], %w: f32[3, 3, 4, 8], %c: f32[8])
      -> (%y: f32[2, 6, 5, 8]) {
      %p: f32[2, 6, 5, 8] = [n < 2, i < 6, j < 5, o < 8] sum[u < 3, v < 3, c < 4]
        (%x[n, i + u - 1, j + v - 1, c] if [i + u >= 1, i + u < 7, j + v >= 1, j + v < 6] else 0.0)
          * %w[u, v, c, o]
      %y: f32[2, 6, 5, 8] = [n < 2, i < 6, j < 5, o < 8] max(%p[n, i, j, o] + %c[o], 0.0) }""",
    "channels first": """%x: f32[2, 4, 6, 5], %w: f32[8, 4, 2, 2]) -> (%y: f32[2, 8, 5, 4]) {
      %y: f32[2, 8, 5, 4] = [n < 2, o < 8, i < 5, j < 4] sum[c < 4, u < 2, v < 2]
        %x[n, c, i + u, j + v] * %w[o, c, u, v] }""",
    "softmax": """%x: f32[m, n]) -> (%y: f32[m, n]) {
      %t: f32[m] = [i < m] max[j < n] %x[i, j]
      %e: f32[m, n] = [i < m, j < n] exp(%x[i, j] - %t[i])
      %s: f32[m] = [i < m] sum[j < n] %e[i, j]
      %y: f32[m, n] = [i < m, j < n] %e[i, j] / %s[i] }""",
    "norm": """%x: f32[3, 2, 5], %z: f32[3, 2, 5], %g: f32[2, 5])
      -> (%v: f32[3, 2, 5], %h: f32[3], %y: f32[3, 2, 5]) {
      %v: f32[3, 2, 5] = [i < 3, j < 2, k < 5] %x[i, j, k] + %z[i, j, k]
      %a: f32[3] = [i < 3] sum[j < 2, k < 5] %v[i, j, k]
      %h: f32[3] = [i < 3] %a[i] * 0.1
      %b: f32[3] = [i < 3] sum[j < 2, k < 5]
        (%v[i, j, k] - %h[i]) * (%v[i, j, k] - %h[i])
      %y: f32[3, 2, 5] = [i < 3, j < 2, k < 5] (%v[i, j, k] - %h[i]) / sqrt(%b[i]) * %g[j, k] }""",
    "rows": """%x: f32[m, 24], %c: f16[24]) -> (%t: f32[m], %y: f32[m, 24]) {
      %t: f32[m] = [i < m] max[j < 24] %x[i, j] + f32(%c[j])
      %e: f32[m, 24] = [i < m, j < 24] exp(%x[i, j] + f32(%c[j]) - %t[i])
      %s: f32[m] = [i < m] sum[j < 24] %e[i, j]
      %y: f32[m, 24] = [i < m, j < 24] %e[i, j] / %s[i] }""",
    "gathered rows": """%p: i64[m], %t: f16[9, 24], %c: f16[m, 24], %g: f32[24])
      -> (%y: f32[m, 24]) {
      %v: f32[m, 24] = [i < m, j < 24]
        f32((let at = select(lt(%p[i], 0), %p[i] + 9, %p[i]) below [9] in %t[at, j]) + %c[i, j])
      %a: f32[m] = [i < m] sum[j < 24] %v[i, j]
      %b: f32[m] = [i < m] sum[j < 24] (%v[i, j] - %a[i]) * (%v[i, j] - %a[i])
      %y: f32[m, 24] = [i < m, j < 24] (%v[i, j] - %a[i]) / sqrt(%b[i]) * %g[j] }""",
    "norm and product": """%x: f32[1, 40], %g: f32[40], %w: f16[9, 40], %r: f32[1, 9])
      -> (%y: f32[1, 9]) {
      %s: f32[1] = [i < 1] sum[j < 40] %x[i, j] * %x[i, j]
      %q: f32[1] = [i < 1] rsqrt(%s[i] / 40.0 + 1.0e-05)
      %h: f16[1, 40] = [i < 1, j < 40] f16(%x[0, j] * %q[0] * %g[j])
      %p: f32[1, 9] = [i < 1, o < 9] sum[j < 40] f32(%h[i, j]) * f32(%w[o, j])
      %y: f32[1, 9] = [i < 1, o < 9] %p[i, o] + %r[i, o] }""",
    "norm and twins": """%x: f32[3, 72], %g: f32[72], %b: f32[72], %u: f32[20, 72], %v: f32[20, 72])
      -> (%y: f32[3, 20]) {
      %a: f32[3] = [i < 3] sum[j < 72] %x[i, j]
      %m: f32[3] = [i < 3] %a[i] / 72.0
      %s: f32[3] = [i < 3] sum[j < 72] (%x[i, j] - %m[i]) * (%x[i, j] - %m[i])
      %h: f32[3, 72] = [i < 3, j < 72] (%x[i, j] - %m[i]) * rsqrt(%s[i] / 72.0) * %g[j] + %b[j]
      %p: f32[3, 20] = [i < 3, o < 20] sum[j < 72] %h[i, j] * %u[o, j]
      %q: f32[3, 20] = [i < 3, o < 20] sum[j < 72] %h[i, j] * %v[o, j]
      %y: f32[3, 20] = [i < 3, o < 20] max(%p[i, o], 0.0) * %q[i, o] }""",
    "softmax and product": """%x: f32[4, 33], %w: f32[33, 16]) -> (%y: f32[4, 16]) {
      %t: f32[4] = [i < 4] max[j < 33] %x[i, j]
      %e: f32[4, 33] = [i < 4, j < 33] exp(%x[i, j] - %t[i])
      %s: f32[4] = [i < 4] sum[j < 33] %e[i, j]
      %h: f32[4, 33] = [i < 4, j < 33] %e[i, j] / %s[i]
      %y: f32[4, 16] = [i < 4, o < 16] sum[j < 33] %h[i, j] * %w[j, o] }""",
    "terms": """%x: f32[m, 3, 8], %z: f32[m, 24]) -> (%y: f32[m]) {
      %s: f32[m] = [i < m] sum[l < 3, j < 8] %x[i, l, j] * %z[i, 8 * l + j]
      %y: f32[m] = [i < m] sqrt(abs(%s[i])) }""",
    "sum": """%x: f32[m, k, n]) -> (%y: f32[m, n]) {
      %s: f32[m, n] = [i < m, j < n] sum[l < k] %x[i, l, j] * 2.0
      %y: f32[m, n] = [i < m, j < n] sqrt(%s[i, j]) }""",
    "points": """%x: f32[m, 8], %c: f32[8]) -> (%y: f32[m, 8], %z: f32[8, m]) {
      %y: f32[m, 8] = [i < m, j < 8] %x[i, j] + %c[j]
      %z[j, i]: f32[8, m] = [i < m, j < 8] exp(%y[i, j]) }""",
    "attention": """%q: f32[2, m, 6], %k: f32[2, n, 6], %v: f32[2, n, 5], %b: f32[m, n])
      -> (%y: f32[2, m, 5]) {
      %p: f32[2, m, n] = [h < 2, i < m, j < n] sum[d < 6] %q[h, i, d] * %k[h, j, d]
      %z: f32[2, m, n] = [h < 2, i < m, j < n] %p[h, i, j] * 0.5 + %b[i, j]
      %t: f32[2, m] = [h < 2, i < m] max[j < n] %z[h, i, j]
      %e: f32[2, m, n] = [h < 2, i < m, j < n] exp(%z[h, i, j] - %t[h, i])
      %s: f32[2, m] = [h < 2, i < m] sum[j < n] %e[h, i, j]
      %w: f32[2, m, n] = [h < 2, i < m, j < n] %e[h, i, j] / %s[h, i]
      %y: f32[2, m, 5] = [h < 2, i < m, c < 5] sum[j < n] %w[h, i, j] * %v[h, j, c] }""",
    "grouped queries": """%q: f16[2, 3, 5, 16], %k: f16[2, 11, 16], %v: f16[2, 11, 8])
      -> (%y: f16[2, 5, 3, 8]) {
      %p: f32[2, 3, 5, 11] = [h < 2, g < 3, i < 5, j < 11] sum[d < 16]
        f32(%q[h, g, i, d]) * f32(%k[h, j, d])
      %z: f32[2, 3, 5, 11] = [h < 2, g < 3, i < 5, j < 11]
        select(ge(index(i - j + 6):i64, 0), %p[h, g, i, j] * 0.25, -inf)
      %t: f32[2, 3, 5] = [h < 2, g < 3, i < 5] max[j < 11] %z[h, g, i, j]
      %e: f32[2, 3, 5, 11] = [h < 2, g < 3, i < 5, j < 11] exp(%z[h, g, i, j] - %t[h, g, i])
      %s: f32[2, 3, 5] = [h < 2, g < 3, i < 5] sum[j < 11] %e[h, g, i, j]
      %w: f32[2, 3, 5, 11] = [h < 2, g < 3, i < 5, j < 11] %e[h, g, i, j] / %s[h, g, i]
      %u: f32[2, 3, 5, 8] = [h < 2, g < 3, i < 5, c < 8] sum[j < 11]
        %w[h, g, i, j] * f32(%v[h, j, c])
      %y[h, i, g, c]: f16[2, 5, 3, 8] = [h < 2, g < 3, i < 5, c < 8] f16(%u[h, g, i, c]) }""",
    "causal": """%q: f32[7, 4], %k: f32[4, 7], %v: f32[7, 3]) -> (%y: f32[7, 3]) {
      %p: f32[7, 7] = [i < 7, j < 7] sum[d < 4] %q[i, d] * %k[d, j]
      %z: f32[7, 7] = [i < 7, j < 7] select(ge(index(i - j):i64, 0), %p[i, j], -inf)
      %t: f32[7] = [i < 7] max[j < 7] %z[i, j]
      %e: f32[7, 7] = [i < 7, j < 7] exp(%z[i, j] - %t[i])
      %s: f32[7] = [i < 7] sum[j < 7] %e[i, j]
      %w: f32[7, 7] = [i < 7, j < 7] %e[i, j] / %s[i]
      %u: f32[7, 3] = [i < 7, c < 3] sum[j < 7] %w[i, j] * %v[j, c]
      %y: f32[7, 3] = [i < 7, c < 3] max(%u[i, c], 0.0) }""",
    "positive weights": """%q: f32[m, 4], %k: f32[n, 4], %v: f32[n, 9]) -> (%y: f32[m, 9]) {
      %p: f32[m, n] = [i < m, j < n] sum[d < 4] %q[i, d] * %k[j, d]
      %w: f32[m, n] = [i < m, j < n] max(%p[i, j], 0.0)
      %y: f32[m, 9] = [i < m, c < 9] sum[j < n] %w[i, j] * %v[j, c] }""",
}
SIZES = {"m": 7, "n": 10, "k": 5}


def program_of(name: str) -> TensorProgram:
    kernel = KERNELS[name]
    inputs, outputs = kernel.split("->")[0], kernel.split("->")[1].split("{")[0]
    names = [part.split(":")[0].strip(" (") for part in outputs.split("%")[1:]]
    used = set(re.findall(r"\b[mnk]\b", inputs + outputs))
    dims = ", ".join(f"{s} in 1:" for s in SIZES if s in used)
    found = ", ".join(f"%{n}" for n in names)
    program = parse_tensor_program(
        f"""program @p({inputs.strip()} -> ({found}) {f"dims({dims})" if dims else ""} {{
          kernel @k({kernel} }}""",
        {},
    )
    verify_tensor_program(program)
    return program


def feeds_of(program: TensorProgram) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    types = {name: program.types[name] for name in program.inputs}
    shapes = {n: [evaluate(e, SIZES) for e in t.shape] for n, t in types.items()}
    return {n: rng.standard_normal(shapes[n]).astype(t.dtype.numpy) for n, t in types.items()}


def sizes_of(program: TensorProgram | Program) -> dict[str, int]:
    return {name: SIZES[name] for name in program.dims}
