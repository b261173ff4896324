"""Attention reads slices, permutations and repetitions of its operands where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from attention_models import feeds_for, halved, joint_attention, scheduled
from kernel_runs import functions_of, interpreted, run_scheduled

from modelcc.ir.loop_traversal import launch_extents, tile_maps

CASES: Mapping[str, tuple[dict[str, Any], dict[str, int]]] = {
    "side by side": ({"batch": 2, "rows": 20, "heads": 2, "groups": 2}, {}),
    "in groups": ({"batch": 2, "rows": 18, "heads": 4, "groups": 2, "causal": True}, {}),
    "one group": ({"batch": 1, "rows": 17, "heads": 3, "groups": 1, "mask": True}, {}),
    "named batch": ({"batch": "b", "rows": 16, "heads": 4, "groups": 2}, {"b": 2}),
    "few rows": ({"batch": 2, "rows": 1, "heads": 4, "groups": 2, "past": 23}, {}),
    "more rows": ({"batch": 1, "rows": 3, "heads": 4, "groups": 2, "past": 20}, {}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("target", ["cuda:sm_90a", "opencl", "webgpu", "metal"])
def test_attention_is_what_onnxruntime_computes(target: str, case: str) -> None:
    """Nothing is copied but what is kept for later, and no threads race."""
    arguments, sizes = CASES[case]
    source = joint_attention(**arguments)
    program = scheduled(source, target)
    names = [function.name for function in functions_of(program)]
    assert not [n for n in names if "Attention" not in n and "Concat" not in n], names
    whole = "past" not in arguments or target.startswith("cuda")
    assert sum("Attention" in n for n in names) == 1 or not whole
    feeds = feeds_for(source, sizes)
    found = run_scheduled(program, interpreted(program), feeds, sizes)
    session = onnxruntime.InferenceSession(source.SerializeToString())
    outputs = [value.name for value in source.graph.output]
    for name, result in zip(outputs, session.run(outputs, feeds), strict=True):
        wanted = np.asarray(result)
        np.testing.assert_allclose(found[name], wanted, rtol=2e-5, atol=2e-6)


def test_rows_of_a_group_of_queries_read_keys_once() -> None:
    """A group of threads has all queries of a key's head: 2 heads of keys in 3 batches."""
    source = joint_attention(3, 1, 8, 2, past=40)
    functions = functions_of(scheduled(source, "cuda:sm_90a"))
    (attention,) = (f for f in functions if "Attention" in f.name)
    assert launch_extents(attention)[0] == (6,)


def test_boxes_are_of_the_tensor_that_is_sliced() -> None:
    source = halved(joint_attention(16, 512, 8, 2, depth=64))
    (function,) = functions_of(scheduled(source, "cuda:sm_90a"))
    maps = tile_maps(function)
    assert len({m.source for m in maps}) == 1
    assert {m.offset for m in maps} == {0, 8 * 64, 8 * 64 + 2 * 64}
    assert {m.strides[-2] for m in maps} == {(8 + 2 + 2) * 64}


@pytest.mark.parametrize(("depth", "copied"), [(8, False), (6, True), (2, True)])
def test_rows_on_no_boundaries_are_copied(depth: int, copied: bool) -> None:
    """Vectors of 16 bytes begin at multiples of as many."""
    source = joint_attention(1, 40, 3, 3, depth=depth)
    functions = functions_of(scheduled(source, "cuda:sm_90a"))
    assert any("Slice" in f.name for f in functions) == copied
