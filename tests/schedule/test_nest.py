"""Loops follow the layout of what is written and merge where every access walks them as one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from modelcc.ir.index import Index, evaluate
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor_parser import parse_kernel
from modelcc.schedule.nest import (
    Nest,
    Offsets,
    axis_blocks,
    linearise,
    merge_loops,
    merge_terms,
)

PLAIN, BLOCKED = "f32[2, 32, 5, 6]", "f32[2, 32, 5, 6]<d0 d1/16 d2 d3 d1%16>"
RAGGED = "f32[2, 24, 5, 6]<d0 d1/16 d2 d3 d1%16>"


def nest(text: str, source: str, target: str) -> Nest:
    """The nest of one stage from ``%x`` to ``%y``."""
    body = f"%y: {target} = {text}"
    kernel, types = parse_kernel(f"kernel @k(%x: {source}) -> (%y: {target}) {{ {body} }}")
    (stage,) = kernel.stages
    return linearise(stage, types, {}, frozenset(), axis_blocks(stage, types))


def extents(made: Nest) -> list[object]:
    return [v.extent for v in made.parallel]


def merged(*nests: Nest) -> Sequence[object]:
    return extents(merge_loops(nests)[0])


COPY = "[n < 2, c < 32, h < 5, w < 6] %x[n, c, h, w]"


@pytest.mark.parametrize(
    ("text", "source", "target", "loops", "after"),
    [
        (COPY, PLAIN, PLAIN, [2, 32, 5, 6], [1920]),
        (COPY, BLOCKED, BLOCKED, [2, 2, 5, 6, 16], [1920]),
        (COPY, PLAIN, BLOCKED, [2, 2, 5, 6, 16], [4, 30, 16]),
        (COPY, BLOCKED, PLAIN, [2, 2, 16, 5, 6], [4, 16, 30]),
        (COPY.replace("32", "24"), RAGGED, "f32[2, 24, 5, 6]", [2, 24, 5, 6], [2, 24, 30]),
    ],
)
def test_loops(text: str, source: str, target: str, loops: list[int], after: list[int]) -> None:
    made = nest(text, source, target)
    assert extents(made) == loops
    assert list(merged(made)) == after


@pytest.mark.parametrize(
    ("read", "source", "after"),
    [
        ("%x[i, a, b, c]", "f32[4, 2, 4, 3]", [24]),
        ("%x[a, i, b, c]", "f32[2, 4, 4, 3]", [2, 12]),
        ("%x[b, i, a, c]", "f32[4, 4, 2, 3]", [6, 4]),
        ("(%x[i, a, b, c] if [b < 3] else 0.0)", "f32[4, 2, 4, 3]", [3, 2, 4]),
    ],
)
def test_terms_that_lie_side_by_side_are_one_loop(read: str, source: str, after: list[int]) -> None:
    made = merge_terms(nest(f"[i < 4] sum[c < 3, a < 2, b < 4] {read}", source, "f32[4]"))
    assert sorted(v.extent for v in made.reduce if isinstance(v.extent, int)) == sorted(after)
    assert extents(made) == [4]


def test_offsets_are_flat() -> None:
    made = nest("[i < 4, j < 3] %x[j, 3 - i]", "f32[3, 4]", "f32[4, 3]")
    (read,) = reads(made.body)
    assert str(made.store) == "3*i + j" and [str(i) for i in read.indices] == ["-i + 4*j + 3"]


def test_guards_that_always_hold_are_dropped() -> None:
    made = nest("[i < 4] (%x[i] if [i >= 0, i < 3] else 0.0)", "f32[3]", "f32[4]")
    (condition,) = made.body.conditions  # type: ignore[union-attr]
    assert str(condition.left) == "-i + 2" and condition.comparison == ">="


def test_a_zero_border_makes_guards_superfluous() -> None:
    text = "[i < 4] (%x[i - 1] if [i >= 1, i < 4] else 0.0)"
    guarded = nest(text, "f32[3]", "f32[4]")
    free = nest(text, "f32[3]<d0 halo1:0>", "f32[4]")
    assert str(reads(free.body)[0].indices[0]) == "i" and free.body == reads(free.body)[0]
    assert guarded.body != reads(guarded.body)[0]


BORDER = "f32[2, 64, 9, 9]<d0 d1/16 d2 d3 d1%16 halo0:0,0:0,1:1,2:3>"


@pytest.mark.parametrize(("source", "distinct"), [("f32[2, 64, 9, 9]", 1), (BORDER, 4)])
def test_places_that_are_constants_apart_share_their_offset(source: str, distinct: int):
    """Each read is where the layout has it, be its constants along split dimensions or others."""
    steps = [(0, 0, 0, 0), (0, 0, 1, 2), (0, 0, 2, -1), (0, 16, 0, 0), (0, 8, 0, 3), (1, 3, 1, 0)]
    places = [f"%x[{n}, c + {c}, 2*h + {h}, w + {w}]" for n, c, h, w in steps]
    target = "f32[4, 32, 4, 5]"
    known: Offsets = {}
    for (n, c, h, w), place in zip(steps, places, strict=True):
        text = f"kernel @k(%x: {source}) -> (%y: {target})"
        body = f"%y: {target} = [n < 4, c < 32, h < 4, w < 5] {place}"
        kernel, types = parse_kernel(f"{text} {{ {body} }}")
        (stage,) = kernel.stages
        made = linearise(stage, types, {}, frozenset(), {}, known)
        (read,) = reads(made.body)
        axes = [a.name for a in stage.axes]
        for at in ((0, 0, 0, 1), (3, 31, 2, 4), (1, 17, 1, 2)):
            where: list[Index] = [n, at[1] + c, 2 * at[2] + h, at[3] + w]
            offset = types["x"].physical.offset(where, types["x"].shape)
            assert evaluate(read.indices[0], dict(zip(axes, at, strict=True))) == offset
    # One for each place along the split dimension; without a split, one for all.
    assert sum(tensor == "x" for tensor, _ in known) == distinct
