"""C for microcontrollers, built and run here with checks of memory and arithmetic."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from small_models import mlp, two_outputs

from modelcc.ir.errors import ModelError
from modelcc.ir.program import Launch, leaves
from modelcc.ir.program_parser import constants_by_digest, parse_program
from modelcc.ir.program_text import print_program
from modelcc.ir.program_verifier import verify_program
from modelcc.targets.mcu.delivery.header import header
from modelcc.targets.mcu.delivery.source import source
from tests.embedded import (
    WARNINGS,
    command,
    embedded,
    keyword_spotter,
    leaky_sum,
    needs_compiler,
    run_here,
    written,
)

RNG = np.random.default_rng(3)


@needs_compiler
@pytest.mark.parametrize("target", ["mcu", "cortex-m4"])
def test_bytes_are_those_of_onnxruntime(target: str, tmp_path: Path) -> None:
    model = keyword_spotter()
    x = RNG.integers(-128, 128, (1, 1, 9, 5), np.int8)
    got = run_here(written(embedded(model, target), tmp_path), {"x": x})
    (want,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    assert len(np.unique(want)) > 20
    np.testing.assert_array_equal(np.frombuffer(got["point1"], np.int8), np.ravel(want))


@needs_compiler
@pytest.mark.parametrize("make", [mlp, two_outputs])
def test_floats_are_those_of_onnxruntime(make: object, tmp_path: Path) -> None:
    model = make()  # type: ignore[operator]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feeds = {
        i.name: RNG.uniform(0, 30, [d if isinstance(d, int) else 7 for d in i.shape]).astype("f")
        for i in session.get_inputs()
    }
    got = run_here(written(embedded(model), tmp_path), feeds)
    for output, want in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        found = np.frombuffer(got[output.name], np.float32)
        np.testing.assert_allclose(found, np.ravel(want), rtol=1e-5)


@needs_compiler
def test_states_are_memory_of_the_callers(tmp_path: Path) -> None:
    folder = written(embedded(leaky_sum()), tmp_path)
    got = run_here(folder, {"x": np.arange(6, dtype=np.float32)})
    np.testing.assert_array_equal(np.frombuffer(got["twice"], np.float32), np.arange(6) * 2 + 1)
    assert "void net_reset(float *total);" in (folder / "net.h").read_text()


@needs_compiler
def test_the_header_is_for_c_and_for_cpp(tmp_path: Path) -> None:
    folder = written(embedded(keyword_spotter()), tmp_path)
    command(["gcc", *WARNINGS, "-c", "example.c"], folder)
    user = "int main() { return NET_ARENA_BYTES + net_run(nullptr, nullptr, nullptr); }"
    (folder / "user.cpp").write_text(f'#include "net.h"\n{user}\n')
    command(["g++", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "user.cpp"], folder)


def test_the_text_is_the_same_each_time_and_needs_no_memory() -> None:
    first, second = (source(embedded(keyword_spotter())) for _ in range(2))
    assert first == second
    assert not re.search(r"\b(malloc|free|printf|pool)\b", first)
    variables = re.findall(r"^(?!static const |typedef )\w.*[=;{]$", first, re.MULTILINE)
    assert not variables
    assert "/* net/depth0, net/point0 */" in first


def test_equal_constants_are_one_array() -> None:
    model = embedded(keyword_spotter())
    contents = [(one.dtype, one.array.tobytes()) for one in model.arrays]
    assert len(set(contents)) == len(contents)
    names = [name for one in model.arrays for name in one.names]
    assert {*names} == {n for n, c in model.program.constants.items() if c.nbytes}


def test_inputs_and_outputs_have_room_in_the_arena() -> None:
    model = embedded(keyword_spotter())
    text = header(model)
    assert model.room.keys() == {"x", "point1"}
    offset = re.search(r"#define NET_OUTPUT_point1_ARENA_OFFSET (\d+)", text)
    assert offset and int(offset[1]) + 8 * 9 * 5 <= model.arena
    assert f"#define NET_ARENA_BYTES {model.arena}\n" in text


def test_results_lie_over_what_has_been_read() -> None:
    """That outputs are right nevertheless, the tests above show."""
    program = embedded(keyword_spotter()).program
    offset = {name: b.offset for name, b in program.placed.bindings.items() if b.place == "arena"}
    meeting = [
        (x, y)
        for launch in leaves(program.steps)
        if isinstance(launch, Launch)
        for y in program.results(launch)
        for x in launch.arguments
        if x != y and x in offset and y in offset
        and 0 < offset[x] - offset[y] < program.types[y].bytes
    ]  # fmt: skip
    assert len(meeting) >= 2
    verify_program(program)
    text = print_program(program)
    assert "  aligned 8\n" in text and "  room %x at " in text
    assert print_program(parse_program(text, constants_by_digest(program))) == text


def test_sizes_must_be_known() -> None:
    with pytest.raises(ModelError, match=r"dimension 'rows'.*is not known\n.*--dim rows=1"):
        embedded(mlp("rows"))
