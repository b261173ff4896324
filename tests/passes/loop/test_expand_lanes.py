"""Vectors as values of their lanes: the same results, in any order of reading and writing."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Mapping

import numpy as np
import pytest
from loop_programs import CASES, Case, check

from modelcc.ir.loop import Function, Intrinsic
from modelcc.ir.loop_interpreter import compile_loops
from modelcc.ir.loop_parser import parse_function
from modelcc.ir.loop_text import print_function
from modelcc.ir.loop_traversal import mentions
from modelcc.ir.loop_verifier import verify_function
from modelcc.passes.loop.expand_lanes import expand_lanes

VECTORS = [c for c in CASES if not mentions(c.function.body, lambda e: isinstance(e, Intrinsic))]


def test_the_example() -> None:
    doc = inspect.getdoc(expand_lanes) or ""
    texts = re.findall(r"^(?:before|after)::\n\n((?:    .*\n?|\n)+)", doc, re.MULTILINE)
    before, after = (parse_function(textwrap.dedent(text)) for text in texts)
    assert print_function(expand_lanes(before)) == print_function(after)
    verify_function(after)


@pytest.mark.parametrize("case", VECTORS, ids=lambda c: c.name)
def test_lanes_compute_what_vectors_do(case: Case) -> None:
    def run(function: Function, arrays: dict[str, np.ndarray], sizes: Mapping[str, int]) -> None:
        expanded = expand_lanes(function)
        verify_function(expanded)
        assert not mentions(expanded.body, lambda e: e.lanes > 1)
        given = [arrays[p.buffer.name] for p in function.parameters]
        compile_loops(expanded)(given, [sizes[name] for name in function.sizes])

    check(case, run)


def test_all_lanes_are_read_before_one_is_written() -> None:
    text = """func @f(%x: mut f32[5]; n) {
      register %a = load %x[0] x4
      %a = shuffle[3 2 1 0](%a, %a)
      store %x[1] = load %x[0] x4
      store %x[0] stride(2) mask(n) = %a
    }"""
    x = np.arange(5, dtype=np.float32)
    compile_loops(expand_lanes(parse_function(text)))([x], [2])
    np.testing.assert_array_equal(x, [3, 0, 2, 2, 3])


def test_checks_are_of_one_index_each() -> None:
    text = """func @f(%x: i64[2]) {
      let %i = load %x[0] x2
      check %i below [4]
    }"""
    with pytest.raises(NotImplementedError, match="one by one"):
        expand_lanes(parse_function(text))
