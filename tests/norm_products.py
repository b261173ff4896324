"""Products of a norm or softmax of few rows, as tensor programs, and what NumPy makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.types import BF16, F16, F32, Array, DType

ROWS: Mapping[str, str] = {
    "rms": """%s: f32[{m}] = [i < {m}] sum[c < {k}] %x[i, c] * %x[i, c]
      %q: f32[{m}] = [i < {m}] rsqrt(%s[i] / {k}.0 + 1.0e-05)
      %h: {t}[{m}, {k}] = [i < {m}, c < {k}] {t}(%x[i, c] * %q[i] * %g[c])""",
    "layer": """%a: f32[{m}] = [i < {m}] sum[c < {k}] %x[i, c]
      %d: f32[{m}] = [i < {m}] %a[i] / {k}.0
      %s: f32[{m}] = [i < {m}] sum[c < {k}] (%x[i, c] - %d[i]) * (%x[i, c] - %d[i])
      %q: f32[{m}] = [i < {m}] rsqrt(%s[i] / {k}.0 + 1.0e-05)
      %h: {t}[{m}, {k}] = [i < {m}, c < {k}] {t}((%x[i, c] - %d[i]) * %q[i] * %g[c] + 0.5)""",
    "softmax": """%a: f32[{m}] = [i < {m}] max[c < {k}] %x[i, c]
      %e: f32[{m}, {k}] = [i < {m}, c < {k}] exp(%x[i, c] - %a[i])
      %s: f32[{m}] = [i < {m}] sum[c < {k}] %e[i, c]
      %h: {t}[{m}, {k}] = [i < {m}, c < {k}] {t}(%e[i, c] / %s[i] * %g[c])""",
}
TYPES: Mapping[str, DType] = {"f16": F16, "bf16": BF16, "f32": F32}
PRODUCT = "%{to}: f32[{m}, {n}] = [i < {m}, o < {n}] sum[c < {k}] f32({read}) * f32(%{w}[c, o])"
"""Of what the rows come to and a constant."""


@dataclass(frozen=True)
class NormProduct:
    """``y = h w + r``, or ``max(h w, 0) * h z + r`` of ``twins``, where ``h`` is what ``rows`` make
    of ``m`` rows of ``k`` elements; ``h`` and constants of ``n`` columns are of type ``dtype``."""

    rows: str
    m: int
    k: int
    n: int
    dtype: str = "f16"
    twins: bool = False

    def program(self, apart: bool = False, between: str = "", others: str = "") -> TensorProgram:
        """One kernel, or two that are ``apart``, maybe with an item ``between`` them, or ``others``
        behind, that give results, too."""
        w, v = (Constant(constant) for constant in self.constants)
        sizes = {"m": self.m, "k": self.k, "n": self.n, "t": self.dtype}
        first = ROWS[self.rows].format(**sizes)
        read = "%v[0, i, c]" if "%v:" in between else "%h[i, c]"
        made = [PRODUCT.format(to="p", w="w", read=read, **sizes)]
        if self.twins:
            made.append(PRODUCT.format(to="t", w="z", read=read, **sizes))
        value = "max(%p[i, o], 0.0) * %t[i, o]" if self.twins else "%p[i, o]"
        made.append(
            f"%y: f32[{self.m}, {self.n}] = [i < {self.m}, o < {self.n}] {value} + %r[i, o]"
        )
        second = "\n      ".join(made)
        given = f"%x: f32[{self.m}, {self.k}], %g: f32[{self.k}]"
        weight = f"{self.dtype}[{self.k}, {self.n}]"
        weights = f"%w: {weight}" + (f", %z: {weight}" if self.twins else "")
        added = f"%r: f32[{self.m}, {self.n}]"
        row = f"{self.dtype}[{self.m}, {self.k}]"
        handed = "%v: " + between.split(":")[1].split("=")[0].strip() if between else f"%h: {row}"
        result = f"-> (%y: f32[{self.m}, {self.n}])"
        if apart:
            body = f"""kernel @Norm({given}) -> (%h: {row}) {{ {first} }}
              {between}
              kernel @MatMul({handed}, {weights}, {added}) {result} {{ {second} }}"""
        else:
            body = f"kernel @k({given}, {weights}, {added}) {result} {{ {first} {second} }}"
        more = ", %e" if others else ""
        text = f"""program @p({given}, {added}) -> (%y{more}) dims() {{
          constant %w: {weight} = "{w.digest}"
          {f'constant %z: {weight} = "{v.digest}"' if self.twins else ""}
          {body} {others} }}"""
        if self.dtype == "f32":
            for one in (read, "%w[c, o]", "%z[c, o]"):
                text = text.replace(f"f32({one})", one)
            text = text.replace("f32(%x", "(%x").replace("f32((", "((").replace("f32(%e", "(%e")
        return parse_tensor_program(text, {w.digest: w, v.digest: v})

    @property
    def constants(self) -> tuple[Array, Array]:
        """What rows are multiplied by."""
        rng, kind = np.random.default_rng(0), TYPES[self.dtype].numpy
        w, v = (rng.standard_normal((self.k, self.n)).astype(kind) for _ in range(2))
        return w, v

    @property
    def feeds(self) -> dict[str, Array]:
        """Normally distributed."""
        rng = np.random.default_rng(1)
        shapes = {"x": (self.m, self.k), "g": (self.k,), "r": (self.m, self.n)}
        return {name: rng.standard_normal(s).astype(np.float32) for name, s in shapes.items()}

    def wanted(self, feeds: Mapping[str, Array]) -> Array:
        """In f64, but for the rows, which are rounded to their type."""
        x, g, r = (feeds[name].astype(np.float64) for name in "xgr")
        if self.rows == "softmax":
            e = np.exp(x - x.max(-1, keepdims=True))
            h = e / e.sum(-1, keepdims=True) * g
        else:
            x = x - x.mean(-1, keepdims=True) if self.rows == "layer" else x
            h = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g
            h += 0.5 if self.rows == "layer" else 0.0
        h = h.astype(TYPES[self.dtype].numpy).astype(np.float64)
        w, v = (constant.astype(np.float64) for constant in self.constants)
        p = h @ w
        return (np.maximum(p, 0) * (h @ v) if self.twins else p) + r
