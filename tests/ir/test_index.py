"""The index algebra against Python's own integers, and the simplifications others rely on."""

import doctest
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from modelcc.ir import index
from modelcc.ir.index import (
    DIM,
    Expr,
    FloorDiv,
    FloorMod,
    Index,
    IndexMax,
    IndexMin,
    Range,
    Sym,
    bounds_of,
    ceildiv,
    coefficient,
    compare,
    compile_index,
    compile_shapes,
    divides,
    evaluate,
    floordiv,
    loop_range,
    maximum,
    minimum,
    mod,
    parse_index,
    product,
    simplify,
    split_affine,
    substitute,
    symbols,
    total,
)

NAMES = ("a", "b", "n", "m")
Tree = int | str | tuple[Any, ...]
"""A number, a name, or an operation's name and its operands."""
Facts = tuple[dict[str, Range], list[dict[str, int]]]
"""Bounds of names, and points inside them."""


# --- random expressions: trees of Python functions, evaluated twice ---------------------------


def trees(leaves: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    def grow(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        op = st.sampled_from(["+", "-", "*", "//", "%", "min", "max"])
        neg = st.tuples(st.just("neg"), inner)
        small = st.integers(-9, 17)
        scaled = st.tuples(st.sampled_from(["*", "//", "%"]), inner, small)
        return st.one_of(st.tuples(op, inner, inner), scaled, scaled, neg)

    return st.recursive(leaves, grow, max_leaves=8)


LEAVES = st.one_of(st.integers(-20, 20), st.sampled_from(NAMES), st.sampled_from(NAMES))
TREES = trees(LEAVES)

Unary = tuple[Callable[[int], int], Callable[[Index], Index]]
Binary = tuple[Callable[[int, int], int], Callable[[Index, Index], Index]]
OPERATIONS: dict[str, Binary] = {
    "+": (lambda x, y: x + y, lambda x, y: x + y),
    "-": (lambda x, y: x - y, lambda x, y: x - y),
    "*": (lambda x, y: x * y, lambda x, y: x * y),
    "//": (lambda x, y: x // y, floordiv),
    "%": (lambda x, y: x % y, mod),
    "min": (min, minimum),
    "max": (max, maximum),
}
NEGATION: Unary = (lambda x: -x, lambda x: -x)


def value_of(tree: Tree, values: Mapping[str, int]) -> int:
    """The value of a tree by Python's integers alone; ZeroDivisionError where undefined."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return values[tree]
    operation, *operands = tree
    if operation == "neg":
        return NEGATION[0](value_of(operands[0], values))
    return OPERATIONS[operation][0](*(value_of(t, values) for t in operands))


def index_of(tree: Tree) -> Index:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return Sym(tree)
    operation, *operands = tree
    if operation == "neg":
        return NEGATION[1](index_of(operands[0]))
    return OPERATIONS[operation][1](*(index_of(t) for t in operands))


def index_or_reject(tree: Tree) -> Index:
    try:
        return index_of(tree)
    except ZeroDivisionError:
        assume(False)


def value_or_none(tree: Tree, values: Mapping[str, int]) -> int | None:
    try:
        return value_of(tree, values)
    except ZeroDivisionError:
        return None


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    """Bounds that may be symbolic, and points inside them."""
    lo_n, lo_m = draw(st.integers(1, 4)), draw(st.integers(-3, 2))
    hi_n = draw(st.one_of(st.none(), st.integers(lo_n, lo_n + 20)))
    hi_m = draw(st.one_of(st.none(), st.integers(lo_m, lo_m + 9)))
    n = Sym("n")
    a_range = draw(
        st.sampled_from(
            [Range(0, n - 1), Range(0, 2 * n), Range(0, 7), Range(-4, 4), Range(), Range(5, 5)]
        )
    )
    b_range = draw(
        st.sampled_from([Range(0, Sym("a")), Range(1 - n, n), Range(0, (n + 1) // 2), Range(3, 9)])
    )
    bounds = {"n": Range(lo_n, hi_n), "m": Range(lo_m, hi_m), "a": a_range, "b": b_range}
    points: list[dict[str, int]] = []
    for _ in range(draw(st.integers(4, 10))):
        point: dict[str, int] = {}
        for name in ("n", "m", "a", "b"):
            lo, hi = bounds[name].lo, bounds[name].hi
            lo = -12 if lo is None else evaluate(lo, point)
            hi = max(lo, 12) + 12 if hi is None else evaluate(hi, point)
            if lo > hi:
                break
            point[name] = draw(st.integers(lo, hi))
        else:
            points.append(point)
    return bounds, points


POINTS = st.fixed_dictionaries({name: st.integers(-12, 30) for name in NAMES})


def test_sums_longer_than_the_stack_have_a_value() -> None:
    names = [f"n{i}" for i in range(20_000)]
    e = total([2 * Sym(name) for name in names]) + 1
    assert compile_index(e)(dict.fromkeys(names, 3)) == 6 * len(names) + 1


@settings(max_examples=400)
@given(TREES, POINTS)
def test_canonical_form_keeps_the_value(tree: Tree, point: dict[str, int]) -> None:
    e = index_or_reject(tree)
    expected = value_or_none(tree, point)
    assume(expected is not None)
    assert evaluate(e, point) == expected
    assert compile_index(e)(point) == expected
    assert compile_shapes([[e, 2], []], NAMES)([point[n] for n in NAMES]) == ((expected, 2), ())
    assert substitute(e, point) == expected


@settings(max_examples=400)
@given(TREES)
def test_text_parses_back_to_the_same(tree: Tree) -> None:
    e = index_or_reject(tree)
    again = parse_index(str(e))
    assert again == e
    assert str(again) == str(e)
    assert hash(again) == hash(e)
    assert symbols(again) == symbols(e)


@settings(max_examples=600)
@given(TREES, facts())
def test_simplify_keeps_the_value_within_bounds(tree: Tree, known: Facts) -> None:
    bounds, points = known
    e = index_or_reject(tree)
    simple = simplify(e, bounds)
    for point in points:
        expected = value_or_none(tree, point)
        if expected is not None:
            assert evaluate(simple, point) == expected


@settings(max_examples=600)
@given(TREES, facts())
def test_bounds_hold(tree: Tree, known: Facts) -> None:
    bounds, points = known
    e = index_or_reject(tree)
    found = bounds_of(e, bounds)
    for point in points:
        value = value_or_none(tree, point)
        if value is not None:
            assert found.lo is None or found.lo <= value
            assert found.hi is None or value <= found.hi


@settings(max_examples=400)
@given(TREES, TREES, facts(), st.sampled_from(["<", "<=", "==", "!=", ">", ">="]))
def test_compare_is_never_wrong(left: Tree, right: Tree, known: Facts, op: Any) -> None:
    bounds, points = known
    answer = compare(index_or_reject(left), op, index_or_reject(right), bounds)
    for point in points if answer is not None else ():
        x, y = value_or_none(left, point), value_or_none(right, point)
        if x is not None and y is not None:
            truth = {
                "<": x < y, "<=": x <= y, "==": x == y, "!=": x != y, ">": x > y, ">=": x >= y,
            }[op]  # fmt: skip
            assert answer is truth


@settings(max_examples=300)
@given(TREES, facts(), st.integers(1, 12))
def test_divides_is_never_wrong(tree: Tree, known: Facts, d: int) -> None:
    bounds, points = known
    if divides(d, index_or_reject(tree), bounds):
        for point in points:
            assert (value_or_none(tree, point) or 0) % d == 0


@settings(max_examples=300)
@given(TREES, st.dictionaries(st.sampled_from(NAMES), trees(LEAVES), max_size=3), POINTS)
def test_substitution_is_simultaneous(
    tree: Tree, replacements: dict[str, Tree], point: dict[str, int]
) -> None:
    values = {name: index_or_reject(t) for name, t in replacements.items()}
    inner = {name: value_or_none(t, point) for name, t in replacements.items()}
    known = {name: value for name, value in inner.items() if value is not None}
    assume(len(known) == len(inner))
    expected = value_or_none(tree, point | known)
    assume(expected is not None)
    e = index_or_reject(tree)
    try:
        result = substitute(e, values)
    except ZeroDivisionError:
        assume(False)
    assert evaluate(result, point) == expected


@settings(max_examples=300)
@given(TREES)
def test_coefficients_rebuild_the_expression(tree: Tree) -> None:
    e = index_or_reject(tree)
    split = split_affine(e, ("a", "n"))
    if split is not None:
        by_name, rest = split
        assert by_name["a"] * Sym("a") + by_name["n"] * Sym("n") + rest == e
        free = symbols(by_name["a"]) | symbols(by_name["n"]) | symbols(rest)
        assert free.isdisjoint({"a", "n"})
        assert coefficient(e, "a") == by_name["a"]


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(NAMES), st.integers(-9, 9), min_size=1), facts())
def test_affine_bounds_are_attained_at_a_corner(coefficients: dict[str, int], known: Facts) -> None:
    bounds = {name: Range(r.lo, r.hi) for name, r in known[0].items()}
    box = {
        n: (r.lo, r.hi)
        for n, r in bounds.items()
        if isinstance(r.lo, int) and isinstance(r.hi, int)
    }
    e = sum((c * Sym(n) for n, c in coefficients.items() if n in box), start=3)
    low = 3 + sum(min(c * v for v in box[n]) for n, c in coefficients.items() if n in box)
    assert bounds_of(e, bounds).lo == low


# --- canonical form ----------------------------------------------------------------------------

a, b, n, m, x, y = (Sym(name) for name in "abnmxy")


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (n + 1 - n, "1"),
        (n * 0, "0"),
        ((n + 1) * (n - 1), "n*n - 1"),
        (4 * n + m * n - 1, "4*n + m*n - 1"),
        (-n - 2 * m, "-2*m - n"),
        (ceildiv(n, 4), "(n + 3) floordiv 4"),
        (-(-n // 4), "(n + 3) floordiv 4"),
        ((n - 1) // 2 + 1, "(n + 1) floordiv 2"),
        ((8 * n + 3 * m + 5) // 4, "(3*m + 1) floordiv 4 + 2*n + 1"),
        ((4 * n) // 8, "n floordiv 2"),
        ((4 * n + 3) // 8, "n floordiv 2"),
        ((4 * n) % 8, "4*(n mod 2)"),
        ((4 * n + 7) % 8, "4*((n + 1) mod 2) + 3"),
        ((16 * n + m) % 16, "m mod 16"),
        ((5 * n) % 4, "n mod 4"),
        (n // 4 // 8, "n floordiv 32"),
        ((n // 4 + 1) // 2, "(n + 4) floordiv 8"),
        (n % 12 % 4, "n mod 4"),
        ((m + 3 * (n % 8)) % 4, "(m + 3*n) mod 4"),
        ((n % 12) // 4, "n floordiv 4 mod 3"),
        ((n * m * 64) // (m * 16), "4*n"),
        (n // n, "1"),
        (n % n, "0"),
        ((n * m + n) // (m + 1), "n"),
        ((x * (n + 2) + y) // (n + 2), "x + y floordiv (n + 2)"),
        ((x * (n + 2) + y) % (n + 2), "y mod (n + 2)"),
        ((a * n + b) % n, "b mod n"),
        (n // -3, "-((n + 2) floordiv 3)"),
        (7 // n, "7 floordiv n"),
        (minimum(n, 8, 5, n), "min(n, 5)"),
        (minimum(n, n + 1, minimum(m, 3)), "min(m, n, 3)"),
        (maximum(n, n + 1, maximum(m, 3), 4), "max(m, n + 1, 4)"),
        (maximum(n), "n"),
        (product([n, 2, m, 8]), "16*m*n"),
        (product([]), "1"),
    ],
)
def test_canonical_text(e: Index, text: str) -> None:
    text = text.replace("n floordiv 4 mod 3", "(n floordiv 4) mod 3")
    assert str(e) == text
    assert parse_index(text) == e


def test_constants_are_plain_ints() -> None:
    for e in (n - n, n // n, (n * 4) % 4, minimum(3, 4), floordiv(7, 2), (2 * n + 1) % 2):
        assert type(e) is int


def test_equality_hash_and_identity_of_symbols() -> None:
    assert Sym("n") == n
    assert n * 1 is n
    assert n + m == m + n
    assert n + 1 != n
    assert n != 0
    assert {n + m: 1}[m + n] == 1
    assert isinstance((n + m) - m, Sym)
    match (n + 1) // 4, n % 4, minimum(n, 3), maximum(n, m):
        case FloorDiv(p, 4), FloorMod(Sym("n"), 4), IndexMin((Sym(), 3)), IndexMax(
            (Sym("m"), Sym("n"))
        ):
            assert p == n + 1
        case _:
            pytest.fail("atoms do not match by their operands")
    assert pickle.loads(pickle.dumps((n + 3) // 4 + m)) == (n + 3) // 4 + m


def test_numpy_object_arrays_are_elementwise() -> None:
    shape = np.array([n, 4, m + 1], dtype=object)
    assert list(shape + 1) == [n + 1, 5, m + 2]
    assert list(n * shape) == [n * n, 4 * n, n * m + n]
    assert list(shape // 2) == [n // 2, 2, (m + 1) // 2]
    assert list(shape % np.int64(2)) == [n % 2, 0, (m + 1) % 2]
    assert list(n - np.array([1, 2])) == [n - 1, n - 2]
    assert shape.prod() == 4 * m * n + 4 * n
    three: Any = np.int64(3)
    assert n + three == three + n == n + 3
    assert type((n + three) - n) is int
    half: Any = 1.5
    with pytest.raises(TypeError):
        _ = n + half


@pytest.mark.parametrize(
    "name", ["unk__214", "p2o.DynamicDimension.0", "batch size", "é/:-", 'a"b\\', "min", "0", "n*m"]
)
def test_any_string_can_name_a_symbol(name: str) -> None:
    e = (Sym(name) + 3) // 4 * m
    assert parse_index(str(e)) == e
    assert symbols(e) == {name, "m"}
    assert compile_index(e)({name: 9, "m": 2}) == evaluate(e, {name: 9, "m": 2}) == 6


def test_errors_name_the_culprit() -> None:
    with pytest.raises(KeyError, match="m, n"):
        evaluate(n + m * x, {"x": 2})
    with pytest.raises(KeyError, match="n"):
        compile_shapes([[n + m]], ["m"])
    with pytest.raises(ZeroDivisionError, match="n"):
        _ = (n + 1) // 0
    with pytest.raises(ZeroDivisionError, match="n"):
        _ = n % 0
    with pytest.raises(ValueError, match="empty"):
        Sym("")
    with pytest.raises(ValueError, match="at least one"):
        minimum()


@pytest.mark.parametrize(
    ("text", "column"),
    [("n +", 4), ("n 3", 3), ("(n", 3), ("min(n", 6), ("n @ 3", 3), ("", 1), ("mod", 1), ('"', 1)],
)
def test_parser_refuses_with_the_column(text: str, column: int) -> None:
    with pytest.raises(SyntaxError, match=rf"at column {column}:"):
        parse_index(text)


# --- simplification under bounds ---------------------------------------------------------------

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


def test_coefficient() -> None:
    assert coefficient(4 * n * m + 2 * n + 7, "n") == 4 * m + 2
    assert coefficient(m, "n") == 0
    assert coefficient(n * n, "n") is None
    assert coefficient(n // 2, "n") is None
    assert split_affine(n * m, ("n", "m")) is None
    assert split_affine(5, ("n",)) == ({"n": 0}, 5)


def test_substitute_leaves_untouched_expressions_alone() -> None:
    e = (n + 3) // 4 * m
    assert substitute(e, {"x": 3}) is e
    assert substitute(n + m, {"n": m, "m": n}) == n + m
    assert isinstance(e, Expr)


def test_renamed_terms_meet_the_others() -> None:
    k = Sym("k")
    assert substitute(2 * n + 3 * m + k, {"n": m}) == 5 * m + k
    assert substitute(2 * n - 2 * m + 3, {"n": m}) == 3
    assert substitute(2 * n - m + k, {"n": k, "m": k}) == 2 * k
    assert substitute(n + m + k, {"n": m + 1, "m": k, "k": n}) == m + n + k + 1


def test_docstring() -> None:
    assert doctest.testmod(index).attempted > 0
    assert doctest.testmod(index).failed == 0


def test_products_of_many_symbols_are_not_written_out() -> None:
    names = [f"s{i}" for i in range(48)]
    bounds = {name: Range(1, None) for name in names}
    whole = product(tuple(map(Sym, names)))
    assert compare(whole, "==", 48, bounds) is None
    assert compare(whole, ">=", 0, bounds) is True
