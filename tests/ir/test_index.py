"""The index algebra against Python's own integers, and the simplifications others rely on."""

import doctest
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from modelcc.ir import index
from modelcc.ir.index import (
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
