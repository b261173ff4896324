"""Rows that are gathered from the same places."""

from __future__ import annotations

import re

import pytest

from modelcc.ir.index import Range
from modelcc.ir.library import meaning_of
from modelcc.ir.loop_text import print_function
from modelcc.ir.tensor_parser import parse_kernel
from modelcc.schedule.canonical import canonical
from modelcc.targets.cpu.lower import schedule_kernel
from tests.machines import chosen_cpu


@pytest.mark.parametrize(
    ("places", "read"), [("i64[64]", "%p[j]"), ("i64[32, 64]", "%p[i, j]")], ids=["same", "own"]
)
def test_places_of_several_rows_are_loaded_once(places: str, read: str) -> None:
    stage = f"%y: f32[32, 64] = [i < 32, j < 64] (let g = {read} in %x[i, g])"
    head = f"kernel @rows(%x: f32[32, n], %p: {places}) -> (%y: f32[32, 64])"
    kernel, types = parse_kernel(f"{head} {{ {stage} }}")
    key, _ = canonical(kernel, types, frozenset(), {"n": Range(1, None)})
    text = print_function(meaning_of(schedule_kernel(key, "rows", chosen_cpu()).function))
    gathers, loads = (len(re.findall(word, text)) for word in (r"= gather", r"= load"))
    assert gathers == (4 * loads if read == "%p[j]" else loads)
