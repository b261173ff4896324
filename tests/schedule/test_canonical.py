"""Equal kernels have equal keys, whatever their tensors and axes are called."""

from __future__ import annotations

from dataclasses import replace

from modelcc.ir.index import DIM
from modelcc.ir.tensor_parser import parse_kernel
from modelcc.schedule.canonical import CanonicalKernel, canonical

FIRST = """kernel @MatMul(%a: f32[n, 8], %w: f32[8, 4]) -> (%y: f32[n, 4]) {
  %t: f32[n, 4] = [i < n, j < 4] sum[k < 8] %a[i, k] * %w[k, j]
  %y: f32[n, 4] = [p < n, q < 4] max(%t[p, q], 0.0)
}"""
SECOND = """kernel @Other(%b: f32[n, 8], %v: f32[8, 4]) -> (%z: f32[n, 4]) {
  %u: f32[n, 4] = [c < n, d < 4] sum[e < 8] %b[c, e] * %v[e, d]
  %z: f32[n, 4] = [i < n, j < 4] max(%u[i, j], 0.0)
}"""
GATHER = """kernel @Gather(%x: f32[5, 4], %i: i64[3]) -> (%y: f32[3, 4]) {
  %y: f32[3, 4] = [a < 3, b < 4] (let g = %i[a] in %x[g, b])
}"""


def key(text: str, constants: frozenset[str] = frozenset()) -> CanonicalKernel:
    kernel, types = parse_kernel(text)
    return canonical(kernel, types, constants, {"n": DIM, "other": DIM})[0]


def test_names_do_not_matter() -> None:
    assert key(FIRST) == key(SECOND)
    assert key(GATHER) == key(GATHER.replace("g", "h").replace("%x", "%table"))


def test_what_is_computed_matters() -> None:
    different = [
        FIRST.replace("max(%t[p, q], 0.0)", "max(%t[p, q], 1.0)"),
        FIRST.replace("f32", "f16").replace("0.0", "0.0:f16"),
        FIRST.replace("k < 8", "k < 7"),
    ]
    assert len({key(text) for text in (FIRST, *different)}) == 4
    assert key(FIRST) != key(FIRST, frozenset({"w"}))


def test_own_names_are_told() -> None:
    kernel, types = parse_kernel(FIRST)
    made, own = canonical(kernel, types, frozenset(), {"n": DIM, "other": DIM})
    assert own == {"x0": "a", "x1": "w", "y0": "y"}
    assert made.dims == (("n", DIM),)


def test_a_canonical_kernel_is_its_own() -> None:
    kernel, types = parse_kernel(FIRST)
    made, _ = canonical(kernel, types, frozenset(), {"n": DIM})
    again = replace(kernel, stages=made.stages, inputs=made.inputs, outputs=made.outputs)
    assert canonical(again, dict(made.types), frozenset(), {"n": DIM})[0] == made
