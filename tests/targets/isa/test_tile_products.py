"""Products of tiles that are copied as boxes: what they mean, and what they race without."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tile_kernels import COLUMNS, ROWS, TERMS, product

from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Barrier, Function, Stmt
from modelcc.ir.loop_groups import RaceError
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import map_blocks, tile_maps
from modelcc.ir.loop_verifier import verify_function
from modelcc.ir.tiles import WaitArrival, WaitRoutines
from modelcc.ir.types import BF16, F16, Array, DType
from modelcc.passes.loop.expand_tiles import expand_tiles


def operands(dtype: DType, transposed: tuple[bool, bool]) -> tuple[list[Array], Array]:
    """Operands whose products are exact, memory for the result, and what that is to be."""
    generator = np.random.default_rng(5)
    x = generator.integers(-4, 5, (ROWS, TERMS))
    y = generator.integers(-4, 5, (COLUMNS, TERMS))
    wanted = np.zeros((64, 64), np.float32)
    wanted[:ROWS, :COLUMNS] = x @ y.T
    given = [
        np.ascontiguousarray(one.T if t else one).astype(dtype.numpy)
        for one, t in zip((x, y), transposed, strict=True)
    ]
    return [*given, np.zeros((64, 64), np.float32)], wanted


def changed(function: Function, keep: Callable[[Stmt], bool]) -> Function:
    """``function`` without the statements that are not kept."""

    def rewrite(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map_blocks(s, rewrite) for s in body if keep(s))

    return replace(function, body=rewrite(function.body))


@pytest.mark.parametrize(
    ("dtype", "transposed"), [(F16, (False, False)), (BF16, (True, True))], ids=str
)
def test_products_are_those_of_numpy(dtype: DType, transposed: tuple[bool, bool]) -> None:
    """Beyond the operands tiles have zeros."""
    function = product(dtype, transposed)
    verify_function(function)
    assert parse_function(print_function(function)) == function
    given, wanted = operands(dtype, transposed)
    interpret_loops(function, given, [])
    np.testing.assert_array_equal(given[2], wanted)


def test_loads_and_stores_do_the_same() -> None:
    function = expand_tiles(product(F16))
    verify_function(function)
    given, wanted = operands(F16, (False, False))
    interpret_loops(function, given, [])
    np.testing.assert_array_equal(given[2], wanted)


PLANTED: dict[str, tuple[Callable[[Stmt], bool], str]] = {
    "tiles are not waited for": (
        lambda s: not isinstance(s, WaitArrival),
        "it is read before it has come: a wait is missing",
    ),
    "products are not waited for": (
        lambda s: not isinstance(s, WaitRoutines) or s.pending == 0,
        "what its warp runs beside reads it",
    ),
    "sums are not waited for": (
        lambda s: not isinstance(s, WaitRoutines) or s.pending == 1,
        "what its warp runs beside writes it",
    ),
    "threads do not meet": (lambda s: not isinstance(s, Barrier), "a barrier is missing"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_what_is_missing_is_found(fault: str) -> None:
    keep, message = PLANTED[fault]
    given, _ = operands(F16, (False, False))
    with pytest.raises(RaceError, match=message):
        interpret_loops(changed(product(F16), keep), given, [])


def test_all_threads_that_read_have_waited() -> None:
    text = print_function(product(F16))
    wait = "await %full[k mod 2] phase k floordiv 2"
    assert wait in text
    some = f"if predicate(lane < 96) {{\n{wait}\n}}"
    given, _ = operands(F16, (False, False))
    with pytest.raises(RaceError, match="by threads that have not waited"):
        interpret_loops(parse_function(text.replace(wait, some)), given, [])


FAULTY = {
    ("expect %full[0] bytes 16384", "expect %full[0] bytes 8192"): "16384 bytes come in a phase",
    ("phase k floordiv 2", "phase 0"): "phase 0 is waited for when 2 have begun",
}


@pytest.mark.parametrize("change", FAULTY, ids=lambda change: change[1])
def test_phases_that_never_end(change: tuple[str, str]) -> None:
    text = print_function(product(F16))
    assert change[0] in text
    given, _ = operands(F16, (False, False))
    with pytest.raises(RaceError, match=FAULTY[change]):
        interpret_loops(parse_function(text.replace(*change)), given, [])


REFUSED = {
    ("run @clear_sums_64(%c[0])", "store %l[0] = f16(0.0)"): "only routines touch it",
    (f"stride ({TERMS}, 1)", f"stride ({TERMS}, 2)"): "elements of rows lie side by side",
    ("box (64, 64)", "box (64)"): "have as many numbers each",
    ("= %x[0, 0]", "= %z[0, 0]"): "boxes of inputs are copied",
    ("finish 1", "if predicate(lane < 32) { finish 1 }"): "only some threads may reach it",
    ("await %full[k mod 2]", "await %r[k mod 2]"): "%r counts no arrivals",
}


@pytest.mark.parametrize("change", REFUSED, ids=lambda change: change[1])
def test_what_has_no_meaning_is_refused(change: tuple[str, str]) -> None:
    text = print_function(product(F16))
    assert change[0] in text
    with pytest.raises(ModelError, match=re.escape(REFUSED[change])):
        verify_function(parse_function(text.replace(*change)))


def test_copies_of_one_tensor_have_one_map() -> None:
    maps = tile_maps(product(F16))
    assert [(each.source, each.sizes, each.box) for each in maps] == [
        ("x", (ROWS, TERMS), (64, 64)),
        ("y", (COLUMNS, TERMS), (64, 64)),
    ]
