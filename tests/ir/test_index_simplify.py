"""What becomes of index expressions under bounds, and what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from modelcc.ir.index import (
    DIM,
    Index,
    Range,
    Sym,
    bounds_of,
    compare,
    divides,
    loop_range,
    parse_index,
    product,
    simplify,
    substitute,
)

n, m = Sym("n"), Sym("m")

BOUNDS = {
    "batch": DIM,
    "seq": DIM,
    "h": DIM,
    "w": DIM,
    "b": loop_range(Sym("batch")),
    "s": loop_range(Sym("seq")),
    "t": loop_range(Sym("seq")),
    "y": loop_range(Sym("h")),
    "x": loop_range(Sym("w")),
    "ow": loop_range((Sym("w") - 3) // 2 + 1),
    "k": Range(0, 767),
    "head": Range(0, 11),
    "d": Range(0, 63),
    "co": Range(0, 3),
    "ci": Range(0, 15),
    "c": Range(0, 63),
    "oh": Range(0, 111),
    "kh": Range(0, 2),
    "kw": Range(0, 2),
    "r": Range(0, 0),
    "p": Range(0, 1),
    "q": Range(0, 1),
    "i": Range(0, 7),
    "rows": Range(0, None),
    "e": Range(0, None),
}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # blocked layouts
        ("(co*16 + ci) floordiv 16", "co"),
        ("(co*16 + ci) mod 16", "ci"),
        ("(c floordiv 16)*16 + c mod 16", "c"),
        ("((c floordiv 16)*16 + c mod 16) floordiv 16", "c floordiv 16"),
        ("c floordiv 64", "0"),
        ("c mod 64", "c"),
        ("(15 - ci) mod 16", "15 - ci"),
        ("(12*p + co) mod 16", "co + 12*p"),
        # reshape and transpose
        ("((b*seq + s)*768 + k) floordiv 768 mod seq", "s"),
        ("((b*seq + s)*768 + k) floordiv (768*seq)", "b"),
        ("((b*seq + s)*768 + k) mod 768", "k"),
        ("((b*seq + s)*768 + k) mod (768*seq)", "768*s + k"),
        ("(((b*seq + s)*12 + head)*64 + d) floordiv 64 mod 12", "head"),
        ("(((b*seq + s)*12 + head)*64 + d) floordiv (768*seq) mod batch", "b"),
        ("(((b*12 + head)*seq + s)*seq + t) floordiv (seq*seq) mod 12", "head"),
        ("(((b*12 + head)*seq + s)*seq + t) floordiv (12*seq*seq)", "b"),
        ("(((b*12 + head)*seq + s)*seq + t) floordiv seq mod seq", "s"),
        ("(((b*12 + head)*seq + s)*seq + t) mod seq", "t"),
        ("(((b*12 + head)*seq + s)*seq + t) mod (seq*seq)", "s*seq + t"),
        ("(h*64*seq + s) floordiv (64*seq)", "h"),
        ("(64*n + d) floordiv seq floordiv 64", "n floordiv seq"),
        ("k floordiv 64 * 64 + k mod 64", "k"),
        ("(k floordiv 64 mod 4)*64 + k mod 64", "k mod 256"),
        ("h*(y*w + x) floordiv h", "w*y + x"),
        ("(y*w + x) floordiv w * w + (y*w + x) mod w", "w*y + x"),
        ("n floordiv w mod h * w + n mod w", "n mod (h*w)"),
        # extents that may be 0, of which nothing is then read
        ("16*(e floordiv 16 mod rows) + e mod 16 + 16*rows*(e floordiv (16*rows))", "e"),
        ("e floordiv rows floordiv rows", "e floordiv (rows*rows)"),
        # pixel shuffle: (c, p, q, y, x) -> (c, y, p, x, q) and back
        ("((c*2 + p)*h*2 + (2*y + p) - 2*p*h) mod (2*h) floordiv 2", "y"),
        ("(2*y + p) mod 2", "p"),
        ("(2*x + q) floordiv 2", "x"),
        ("((2*y + p)*2*w + 2*x + q) floordiv (2*w) mod 2", "p"),
        ("((2*y + p)*2*w + 2*x + q) floordiv 2 mod w", "x"),
        ("((2*y + p)*2*w + 2*x + q) floordiv (4*w)", "y"),
        # convolution windows
        ("((oh*2 + kh)*226 + i*2 + kw) floordiv 226", "2*oh + kh"),
        ("((oh*2 + kh)*226 + i*2 + kw) mod 226", "2*i + kw"),
        ("((2*oh + kh)*w + 2*ow + kw) floordiv w", "2*oh + kh"),
        ("((2*oh + kh)*w + 2*ow + kw) mod w", "2*ow + kw"),
        # loops of extent one, tiles
        ("r*seq + (s + r) floordiv 1", "s"),
        ("min(16, 64 - 16*co)", "16"),
        ("min(seq, s)", "s"),
        ("max(s, 0, seq - 1, seq)", "seq"),
        ("min(seq - s, seq)", "seq - s"),
        ("max(0, min(c, 63))", "c"),
        ("(4*s + p + 1) floordiv 4", "s"),
        ("((4*s + p) mod (4*seq)) floordiv 4", "s"),
        ("seq - 4*(seq floordiv 4)", "seq mod 4"),
        ("(4*seq + co) floordiv (8*w)", "seq floordiv (2*w)"),
        ("(4*seq + co) mod (8*w)", "4*(seq mod (2*w)) + co"),
        ("-c floordiv 64", "-((c + 63) floordiv 64)"),
    ],
)
def test_must_simplify(before: str, after: str) -> None:
    simple = simplify(parse_index(before), BOUNDS)
    assert simple == parse_index(after), str(simple)
    assert simplify(simple, BOUNDS) == simple


@pytest.mark.parametrize("shape", [(2, 3, 4), ("batch", "seq", 768), (5, "h", "w", 2), ("h", 1)])
def test_delinearise_undoes_linearise(shape: tuple[int | str, ...]) -> None:
    extents = [Sym(s) if isinstance(s, str) else s for s in shape]
    axes = [Sym(f"axis{position}") for position in range(len(shape))]
    bounds = {"batch": DIM, "seq": DIM, "h": DIM, "w": DIM}
    bounds |= {axis.name: loop_range(e) for axis, e in zip(axes, extents, strict=True)}
    linear = 0
    for axis, extent in zip(axes, extents, strict=True):
        linear = linear * extent + axis
    for position, axis in enumerate(axes):
        found = linear // product(extents[position + 1 :]) % extents[position]
        assert simplify(found, bounds) == (0 if extents[position] == 1 else axis)


def reshaped(
    position: Sequence[Index], source: Sequence[Index], target: Sequence[Index]
) -> list[Index]:
    """Where the element at ``position`` of a ``target``-shaped view lies in ``source``."""
    linear = 0
    for index_, extent in zip(position, target, strict=True):
        linear = linear * extent + index_
    return [linear // product(source[d + 1 :]) % source[d] for d in range(len(source))]


@pytest.mark.parametrize(
    ("image", "split", "order"),
    [
        # pixel shuffle: (B, C*2*2, H, W) -> (B, C, H, 2, W, 2)
        (("batch", 16, "h", "w"), ("batch", 4, 2, 2, "h", "w"), (0, 1, 4, 2, 5, 3)),
        ((1, 48, 17, 19), (1, 3, 4, 4, 17, 19), (0, 1, 4, 2, 5, 3)),
        # window partition: (B, H, W, C) -> (B, H/7, W/7, 7, 7, C)
        (("batch", 56, 56, 96), ("batch", 8, 7, 8, 7, 96), (0, 1, 3, 2, 4, 5)),
        (("batch", "7*h", "7*w", 96), ("batch", "h", 7, "w", 7, 96), (0, 1, 3, 2, 4, 5)),
        # attention heads: (B, S, 768) -> (B, 12, S, 64)
        (("batch", "seq", 768), ("batch", "seq", 12, 64), (0, 2, 1, 3)),
        # channel shuffle, blocked channels
        (("batch", 24, "h*w"), ("batch", 3, 8, "h*w"), (0, 2, 1, 3)),
        (("batch", 64, "h", "w"), ("batch", 4, 16, "h", "w"), (0, 1, 3, 4, 2)),
    ],
)
def test_reshape_and_transpose_leave_no_quotient(
    image: Sequence[int | str], split: Sequence[int | str], order: Sequence[int]
) -> None:
    whole, parts = ([parse_index(str(extent)) for extent in shape] for shape in (image, split))
    axes = [Sym(f"axis{d}") for d in range(len(parts))]
    bounds = {"batch": DIM, "seq": DIM, "h": DIM, "w": DIM}
    bounds |= {f"axis{d}": loop_range(extent) for d, extent in enumerate(parts)}
    into_image = [simplify(e, bounds) for e in reshaped(axes, whole, parts)]
    assert not [e for e in into_image if "floordiv" in str(e) or "mod" in str(e)]
    # Reading the transposed tensor where the element of `image` went gives the same element.
    there = [simplify(e, bounds) for e in reshaped(into_image, parts, whole)]
    fixed = {f"axis{d}": 0 for d, extent in enumerate(parts) if extent == 1}
    assert there == [substitute(axis, fixed) for axis in axes]
    permuted = [parts[d] for d in order]
    linear = reshaped([axes[d] for d in order], [product(permuted)], permuted)[0]
    assert compare(linear, "<", product(whole), bounds)


@pytest.mark.parametrize(
    ("left", "op", "right", "answer"),
    [
        ("s", "<", "seq", True),
        ("s", "<=", "seq - 1", True),
        ("s", ">=", "seq", False),
        ("s", "<", "seq - 1", None),
        ("b*seq + s", "<", "batch*seq", True),
        ("(b*seq + s)*768 + k", "<", "batch*seq*768", True),
        ("(b*seq + s)*768 + k", ">=", "0", True),
        ("2*ow + 2", "<", "w", True),
        ("2*ow + 3", "<", "w", None),
        ("4*((n + 3) floordiv 4)", ">=", "n", True),
        ("4*((n + 3) floordiv 4)", "<", "n + 4", True),
        ("(seq + 15) floordiv 16", ">=", "1", True),
        ("h*w", ">=", "h + w - 1", True),
        ("h*w*4", "!=", "0", True),
        ("2*n", "==", "2*m + 1", False),
        ("4*(n floordiv 4) + n mod 4", "==", "n", True),
        ("n", "==", "m", None),
        ("n", "!=", "n", False),
        ("n mod seq", "<", "seq", True),
        ("s mod 7", "<=", "s", True),
        ("min(n, m)", "<=", "n", True),
        ("max(n, m)", ">=", "m", True),
        ("min(seq, 8)", ">=", "1", True),
        ("min(n, m) + max(n, m)", ">", "n + m", False),
        ("16*co + min(16, 50 - 16*co)", "<=", "50", True),
    ],
)
def test_must_compare(left: str, op: Any, right: str, answer: bool | None) -> None:
    assert compare(parse_index(left), op, parse_index(right), BOUNDS) is answer


@pytest.mark.parametrize(
    ("d", "e", "answer"),
    [
        (4, "8*n + 4", True),
        (4, "8*n + 2", False),
        (8, "8*(n floordiv 3) + 16*m", True),
        (2, "(6*n) mod 8", True),
        (16, "min(32*n, 16)", True),
        (4, "n - n mod 4", True),
        (3, "n", False),
        (-4, "4*n", True),
    ],
)
def test_divides(d: int, e: str, answer: bool | None) -> None:
    assert divides(d, parse_index(e), {}) is answer


def test_bounds_of_uses_correlation() -> None:
    bounds = BOUNDS | {"seq": Range(1, 512)}
    assert bounds_of(Sym("s"), bounds) == Range(0, 511)
    assert bounds_of(Sym("seq") - Sym("s"), bounds) == Range(1, 512)
    assert bounds_of(Sym("unknown"), bounds) == Range(None, None)
    assert bounds_of(7, bounds) == Range(7, 7)


def test_circular_facts_end() -> None:
    circular = {"n": Range(0, m), "m": Range(0, n)}
    assert compare(n, "<", 5, circular) is None
    assert bounds_of(n * m - n, circular).hi is None
    assert simplify(n // m, circular) == n // m
