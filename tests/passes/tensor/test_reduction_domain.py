"""Which stages share an iteration space, and which walk the same rows."""

from __future__ import annotations

import pytest

from modelcc.ir.index import Sym
from modelcc.ir.tensor import Stage
from modelcc.ir.tensor_parser import parse_kernel
from modelcc.passes.tensor.reduction_domain import reduction_domain
from modelcc.passes.tensor.shared_axes import shared_axes

X = "%x: f32[4, 8]"
MATMUL = "%c: f32[4, 8] = [i < 4, j < 8] sum[k < 8] %x[i, k] * %x[0, j]"
SUM = "%s: f32[4] = [i < 4] sum[k < 8] %x[i, k]"


def stages(*lines: str) -> tuple[Stage, ...]:
    last = lines[-1].split(" = ")[0]
    kernel, _ = parse_kernel(f"kernel @k({X}) -> ({last}) {{\n" + "\n".join(lines) + "\n}")
    return kernel.stages


SHARED = {
    "one stage": [MATMUL],
    "epilogue": [MATMUL, "%d: f32[4, 8] = [a < 4, b < 8] max(%c[a, b], 0.0)"],
    "transposed epilogue": [MATMUL, "%d: f32[8, 4] = [a < 8, b < 4] %c[b, a]"],
    "with another operand": [MATMUL, "%d: f32[4, 8] = [a < 4, b < 8] %c[a, b] + %x[a, b]"],
    "an axis of one element": [SUM, "%d: f32[4, 1] = [a < 4, b < 1] %s[a]"],
    "a result read twice": [MATMUL, "%d: f32[4, 8] = [a < 4, b < 8] %c[a, b] * %c[a, b]"],
}
APART = {
    "shifted": [MATMUL, "%d: f32[4, 7] = [a < 4, b < 7] %c[a, b + 1]"],
    "part of it": [MATMUL, "%d: f32[4, 7] = [a < 4, b < 7] %c[a, b]"],
    "broadcast": [SUM, "%d: f32[4, 8] = [a < 4, b < 8] %s[a]"],
    "diagonal": ["%c: f32[8, 8] = [i < 8, j < 8] %x[0, i]", "%d: f32[8] = [a < 8] %c[a, a]"],
    "two reductions": [MATMUL, "%d: f32[4] = [a < 4] sum[b < 8] %c[a, b]"],
    "another part of a concatenation": [
        "%c[i, j + 1]: f32[4, 2] = [i < 4, j < 1] %x[i, j]",
        "%d: f32[4] = [a < 4] %c[a, 0]",
    ],
    "two places": [
        "%c: f32[8, 8] = [i < 8, j < 8] %x[0, i]",
        "%d: f32[8, 8] = [a < 8, b < 8] %c[a, b] + %c[b, a]",
    ],
}


@pytest.mark.parametrize("name", SHARED)
def test_shared_axes_are_renamed_to_the_first_stage(name: str) -> None:
    given = stages(*SHARED[name])
    shared = shared_axes(given)
    assert shared is not None
    assert all(s.axes == given[0].axes for s in shared)
    assert [s.output for s in shared] == [s.output for s in given]


@pytest.mark.parametrize("name", APART)
def test_other_stages_do_not_share_axes(name: str) -> None:
    assert shared_axes(stages(*APART[name])) is None


CENTRED = "%d: f32[4, 8] = [a < 4, b < 8] %x[a, b] - %s[a]"
ROWS = {
    "centred": [SUM, CENTRED],
    "softmax": [
        "%m: f32[4] = [i < 4] max[k < 8] %x[i, k]",
        "%e: f32[4, 8] = [p < 4, q < 8] exp(%x[p, q] - %m[p])",
        "%t: f32[4] = [u < 4] sum[v < 8] %e[u, v]",
        "%y: f32[4, 8] = [g < 4, h < 8] %e[g, h] / %t[g]",
    ],
    "produced first": [
        "%e: f32[4, 8] = [p < 4, q < 8] exp(%x[p, q])",
        "%t: f32[4] = [u < 4] sum[v < 8] %e[u, v]",
    ],
    "a scalar of the row": [SUM, "%r: f32[4] = [a < 4] sqrt(%s[a])"],
}
NO_ROWS = {
    "no reduction": ["%d: f32[4, 8] = [a < 4, b < 8] max(%x[a, b], 0.0)"],
    "another row": [SUM, "%d: f32[4, 8] = [a < 4, b < 8] %x[a, b] - %s[3 - a]"],
    "another length": [SUM, "%d: f32[4, 7] = [a < 4, b < 7] %x[a, b] - %s[a]"],
    "all pairs of rows": [
        SUM,
        "%e: f32[4, 8] = [p < 4, q < 8] %x[p, q] - %s[p]",
        "%g: f32[4, 4] = [u < 4, v < 4] sum[w < 8] %e[u, w] * %e[v, w]",
    ],
    "unrelated": [SUM, "%d: f32[4, 8] = [a < 4, b < 8] max(%x[a, b], 0.0)"],
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_walked_together(name: str) -> None:
    domain = reduction_domain(stages(*ROWS[name]))
    assert domain is not None
    assert [a.extent for a in domain.outer] == [4] and [a.extent for a in domain.row] == [8]
    for stage in domain.stages:
        place = (Sym(domain.outer[0].name), Sym(domain.row[0].name))
        assert stage.write == (place if domain.walks_rows(stage) else place[:1])


@pytest.mark.parametrize("name", NO_ROWS)
def test_other_stages_walk_no_rows(name: str) -> None:
    assert reduction_domain(stages(*NO_ROWS[name])) is None
