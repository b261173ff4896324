"""Rows streamed through chains are those of whole images, bit by bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelcc.ir.tensor import Repeat, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.passes.tensor.row_stream import row_stream
from modelcc.passes.tensor.row_windows import NoRowsError
from modelcc.passes.tensor.stream_rows import StreamRows

HEIGHT, WIDTH = 13, 3

windows = st.tuples(st.integers(1, 4), st.integers(1, 2), st.integers(0, 2))
layers = st.lists(windows | st.just("add"), min_size=2, max_size=5)
"""Rows of a window, steps between windows, rows of padding before; or the sum of two images."""


def chain(found: list[tuple[int, int, int] | str], pooled: bool) -> TensorProgram:
    """Windows of rows and sums of images, one after the other, and maybe the sum of all rows."""
    names, heights, texts = ["x"], [HEIGHT], list[str]()
    for layer in found:
        name, height, image = f"y{len(texts)}", heights[-1], f"%{names[-1]}"
        if isinstance(layer, str):
            other = max((n for n, h in enumerate(heights[:-1]) if h <= height), default=0)
            if heights[other] != height:
                continue
            read = f"{image}[0, h, w] - 2:i32 * %{names[other]}[0, h, w]"
            inputs, body = {names[-1], names[other]}, f"[n < 1, h < {height}, w < {WIDTH}] {read}"
        else:
            rows, step, before = layer
            at = f"{step}*h + a - {before}" if before else f"{step}*h + a"
            read = f"({image}[0, {at}, w] if [0 <= {at}, {at} < {height}] else 7:i32) - 5:i32"
            height = (height - 1) // step + 1
            inputs = {names[-1]}
            body = f"[n < 1, h < {height}, w < {WIDTH}] sum[a < {rows}] {read}"
        given_ = ", ".join(
            f"%{n}: i32[1, {heights[names.index(n)]}, {WIDTH}]" for n in sorted(inputs)
        )
        type_ = f"i32[1, {height}, {WIDTH}]"
        texts.append(f"kernel @k({given_}) -> (%{name}: {type_}) {{\n%{name}: {type_} = {body}\n}}")
        names.append(name)
        heights.append(height)
    if pooled:
        given_ = f"%{names[-1]}: i32[1, {heights[-1]}, {WIDTH}]"
        total = f"%total: i32[{WIDTH}] = [w < {WIDTH}] sum[h < {heights[-1]}] %{names[-1]}[0, h, w]"
        rest = f"%y: i32[{WIDTH}] = [w < {WIDTH}] %total[w] * 3:i32"
        texts.append(f"kernel @k({given_}) -> (%y: i32[{WIDTH}]) {{\n{total}\n{rest}\n}}")
        names.append("y")
    head = f"program @main(%x: i32[1, {HEIGHT}, {WIDTH}]) -> (%{names[-1]}) {{\n"
    return parse_tensor_program(head + "\n".join(texts) + "\n}\n", {})


@settings(max_examples=40, deadline=None)
@given(layers, st.integers(1, 4), st.booleans(), st.booleans())
def test_rows_are_the_same(
    found: list[tuple[int, int, int] | str], rows: int, pooled: bool, slide: bool
) -> None:
    program = chain(found, pooled)
    verify_tensor_program(program)
    last = len(program.items) - 1
    try:
        row_stream(program, 0, last, rows)
    except NoRowsError:
        return
    streamed = StreamRows(0, last, rows, slide)(program)
    verify_tensor_program(streamed)
    assert any(isinstance(item, Repeat) for item in streamed.items)
    x = np.random.default_rng(0).integers(-9, 9, (1, HEIGHT, WIDTH)).astype(np.int32)
    want, got = (run_program(p, {"x": x}, {}) for p in (program, streamed))
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array)


@pytest.mark.parametrize("rows", [1, 2, 13])
def test_what_is_kept_of_a_chain(rows: int) -> None:
    images = row_stream(chain([(3, 1, 1), (3, 1, 1), "add"], True), 0, 3, rows).images
    assert [image.lag for image in images.values()] == [0, 1, 1]
    assert [image.kept for image in images.values()] == [2, 0, 0]
    assert {image.rows for image in images.values()} == {rows}


def test_what_others_need_is_no_part_of_a_chain() -> None:
    program = chain([(3, 1, 1), (1, 1, 0), (3, 1, 1)], False)
    with pytest.raises(NoRowsError):
        row_stream(replace(program, outputs=("y0", "y2")), 0, 2, 1)
