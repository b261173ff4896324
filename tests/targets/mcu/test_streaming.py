"""Layers streamed by rows on microcontrollers: less memory, the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.program_parser import constants_by_digest, parse_program
from modelcc.ir.program_text import print_program
from modelcc.ir.region import Repeat
from modelcc.ir.types import I8
from modelcc.ops.activation import Clip
from modelcc.ops.arithmetic import Add, Cast
from modelcc.targets.mcu.delivery.model import EmbeddedModel
from modelcc.targets.mcu.emulation.boards import missing_tools
from modelcc.targets.mcu.emulation.build import build
from modelcc.targets.mcu.emulation.run import run
from modelcc.targets.mcu.machine import MODELS
from tests.embedded import embedded, needs_compiler, run_here, written
from tests.targets.mcu.test_kernels import BOTH, END, convolved, image

RAM = 3400


def layers(b: GraphBuilder, x: str) -> str:
    """Windows, points, a sum with what was before them, and a step of two."""
    first = convolved(b, x, 8, (3, 3), pads=BOTH)
    own = convolved(b, first, 8, (3, 3), pads=BOTH, groups=8, zero=7)
    narrow = [b.emit(Cast(I8), b.emit(Clip(-60.0, 60.0), n)) for n in (first, own)]
    return convolved(b, b.emit(Add(), *narrow), 8, (3, 3), 2, END)


def network() -> Graph:
    return image((1, 48, 8, 4), layers)


def example() -> tuple[np.ndarray, bytes]:
    x = np.random.default_rng(2).integers(-128, 128, (1, 48, 8, 4)).astype(np.int8)
    (want,) = interpret(network(), {"x": x}).values()
    assert len(np.unique(want)) > 2
    return x, want.astype(np.int8).tobytes()


def streamed(target: str) -> EmbeddedModel:
    model = embedded(network(), target, ram=RAM)
    assert any(isinstance(step, Repeat) for step in model.program.steps)
    assert model.arena < embedded(network(), target).arena
    return model


@needs_compiler
def test_the_same_numbers_in_less_memory(tmp_path: Path) -> None:
    x, want = example()
    (got,) = run_here(written(streamed("cortex-m4"), tmp_path), {"x": x}).values()
    assert got == want


@pytest.mark.parametrize("name", ["cortex-m4", "cortex-m55"])
def test_on_a_processor(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    if missing := missing_tools(model):
        pytest.skip(missing)
    x, want = example()
    program = build(written(streamed(name), tmp_path), "net", model)
    measured = run(program, {"x": x.tobytes()})
    assert [*measured.outputs.values()] == [want]
    assert measured.variables + measured.stack <= RAM


def test_its_text_reads_back() -> None:
    program = streamed("cortex-m4").program
    assert program.placed.overlaps
    text = print_program(program)
    assert print_program(parse_program(text, constants_by_digest(program))) == text


def test_enough_memory_changes_nothing() -> None:
    model, plain = (embedded(network(), "cortex-m4", ram=ram) for ram in (64 << 10, None))
    assert model.program == plain.program


def test_too_little_memory_is_told() -> None:
    with pytest.raises(ModelError, match=r"needs \d+ bytes of memory, 900 are there"):
        embedded(network(), "cortex-m4", ram=900)


def test_other_targets_stream_nothing() -> None:
    with pytest.raises(ModelError, match="'native' streams no rows"):
        embedded(network(), "native", ram=900)
