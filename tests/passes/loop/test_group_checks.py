"""Checks in groups: the same results and the same faults, on fewer branches."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import modelcc
from modelcc.ir.loop import Check, Function, If, Load
from modelcc.ir.loop_interpreter import OutOfBoundError, interpret_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import statement_expressions, statements
from modelcc.ir.loop_verifier import verify_function
from modelcc.passes.loop.group_checks import group_checks

PAIRS = """
func @pairs(%x: i64[12], %t: f32[24], %y: mut f32[6]) {
  for i in 0 .. 6 {
    let %x0 = load %x[2*i]
    index a = select(lt(%x0, i64(0)), add(%x0, i64(4)), %x0)
    check index[i64](a) below [4]
    let %x1 = load %x[2*i + 1]
    index b = select(lt(%x1, i64(0)), add(%x1, i64(6)), %x1)
    check index[i64](b) below [6] number 1
    store %y[i] = load %t[6*a + b]
  }
}
"""
VECTORS = """
func @vectors(%x: i64[12], %t: f32[24], %y: mut f32[12]) {
  for i in 0 .. 2 {
    let %x0 = load %x[8*i] x4
    let %i0 = select(lt(%x0, i64x4(0)), add(%x0, i64x4(24)), %x0)
    check %i0 below [24]
    store %y[8*i] = gather %t[0; %i0]
    let %x1 = load %x[8*i + 4] x4 mask(8 - 8*i)
    let %i1 = select(lt(%x1, i64x4(0)), add(%x1, i64x4(24)), %x1)
    check %i1 below [24] mask(8 - 8*i)
    store %y[8*i + 4] mask(8 - 8*i) = gather %t[0; %i1] mask(8 - 8*i)
  }
}
"""
NARROW = """
func @narrow(%x: i32[2], %t: f32[24], %y: mut f32[2]) {
  let %x0 = load %x[0]
  index a = select(lt(%x0, i32(0)), add(%x0, i32(24)), %x0)
  check index[i64](a) below [24]
  store %y[0] = load %t[a]
  let %x1 = load %x[1]
  index b = %x1
  check index[i64](b) below [24]
  store %y[1] = load %t[b]
}
"""
INPUTS = {
    PAIRS: (12, np.int64, 4, 6), VECTORS: (12, np.int64, 24, 12), NARROW: (2, np.int32, 24, 2)
}  # fmt: skip


def branches(function: Function) -> list[If]:
    return [s for s in statements(function.body) if isinstance(s, If) and s.rare]


def outcome(function: Function, x: np.ndarray, outputs: int) -> np.ndarray | str:
    y = np.zeros(outputs, np.float32)
    try:
        interpret_loops(function, [x, np.arange(24, dtype=np.float32), y], ())
    except OutOfBoundError as error:
        return str(error)
    return y


@pytest.mark.parametrize("text", INPUTS, ids=["pairs", "vectors", "narrow"])
def test_results_and_faults_stay(text: str) -> None:
    function = parse_function(text)
    grouped = group_checks(function)
    verify_function(grouped)
    assert parse_function(print_function(grouped)) == grouped
    assert len(branches(grouped)) == 1
    size, dtype, extent, outputs = INPUTS[text]
    random = np.random.default_rng(0)
    seen = set[bool]()
    for trial in range(60):
        low, high = ((0, extent), (-extent, extent), (-extent - 1, extent + 1))[trial % 3]
        x = random.integers(low, high, size).astype(dtype)
        wanted, got = outcome(function, x, outputs), outcome(grouped, x, outputs)
        seen.add(isinstance(wanted, str))
        if isinstance(wanted, str):
            assert got == wanted
        else:
            np.testing.assert_array_equal(got, wanted)
    assert seen == {False, True}


def test_blocks_without_statements() -> None:
    text = """
    func @empty(%x: i64[2], %y: mut i64[8]) {
      let %x0 = load %x[0]
      index a = %x0
      check index[i64](a) below [8]
      if lt(%x0, i64(1)) {
        store %y[a] = %x0
      }
    }
    """
    function = parse_function(text)
    (branch,) = (s for s in function.body if isinstance(s, If))
    assert not branch.other
    verify_function(group_checks(function))


def test_indices_that_were_written_stay_behind_the_write() -> None:
    text = """
    func @own(%x: mut i64[8], %t: i64[8]) {
      let %x0 = load %x[0]
      index a = select(lt(%x0, i64(0)), add(%x0, i64(8)), %x0)
      check index[i64](a) below [8]
      store %x[1] = load %t[a]
      let %x1 = load %x[1]
      index b = select(lt(%x1, i64(0)), add(%x1, i64(8)), %x1)
      check index[i64](b) below [8]
      store %x[2] = load %t[b]
    }
    """
    grouped = group_checks(parse_function(text))
    verify_function(grouped)
    assert [len([s for s in b.then if isinstance(s, Check)]) for b in branches(grouped)] == [1, 1]
    x = np.zeros(8, np.int64)
    interpret_loops(grouped, [x, np.arange(8)[::-1].copy()], ())
    assert x[:3].tolist() == [0, 7, 0]


def test_an_index_found_through_another_stays_behind_its_check() -> None:
    text = """
    func @chain(%x: i64[8], %t: i64[8], %y: mut i64[1]) {
      let %x0 = load %x[0]
      index a = select(lt(%x0, i64(0)), add(%x0, i64(8)), %x0)
      check index[i64](a) below [8]
      let %x1 = load %t[a]
      index b = select(lt(%x1, i64(0)), add(%x1, i64(8)), %x1)
      check index[i64](b) below [8]
      store %y[0] = load %t[b]
    }
    """
    grouped = group_checks(parse_function(text))
    verify_function(grouped)
    assert len(branches(grouped)) == 2
    order = [s for s in statements(grouped.body) if isinstance(s, Check) or _loads(s)]
    assert [isinstance(s, Check) for s in order] == [False, True, False, True, False]


def _loads(s: object) -> bool:
    return any(isinstance(e, Load) for e in statement_expressions(s))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("rows", [1, 7, 64, 1000])
def test_each_place_of_a_hostile_index_is_noticed(rows: int, dtype: type) -> None:
    """In first and last vectors, rests and masks: in range, counted from the end, or refused."""
    kind = {np.int32: "int32", np.int64: "int64"}[dtype]
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float[5, n] x, {kind}[5, n] i) => (float[5, n] y) {{ y = GatherElements <axis = 1> (x, i) }}
    """
    net = modelcc.compile(parser.parse_model(text), threads=1, cache=None)
    x = np.random.default_rng(0).random((5, rows), np.float32)
    places = np.random.default_rng(1).integers(-rows, rows, (5, rows)).astype(dtype)
    wanted = np.take_along_axis(x, places.astype(np.int64), 1)
    np.testing.assert_array_equal(net(x, places), wanted)
    for at in {0, 2, rows // 2, 5 * rows - 1, 5 * rows - 2, 4 * rows}:
        for value in (rows, -rows - 1, np.iinfo(dtype).max, np.iinfo(dtype).min):
            bad = places.copy()
            bad.flat[at] = value
            with pytest.raises(modelcc.RunError, match=str(value)):
                net(x, bad)
