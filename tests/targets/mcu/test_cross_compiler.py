"""What GCC says of stack and of code."""

from __future__ import annotations

import shutil

import pytest

from modelcc.targets.mcu.cross_compiler import find_cross_compiler, greatest_stack
from modelcc.targets.mcu.footprint import footprint
from modelcc.targets.mcu.machine import MODELS
from tests.embedded import embedded, keyword_spotter

GRAPH = r"""graph: { title: "net.c"
node: { title: "net.c:k0" label: "k0\nnet.c:7:13\n112 bytes (static)" }
node: { title: "net.c:k1" label: "k1\nnet.c:9:13\n40 bytes (static)" }
node: { title: "rintf" label: "rintf\n/usr/include/math.h:3:14" shape : ellipse }
node: { title: "net_run" label: "net_run\nnet.c:20:9\n24 bytes (static)" }
node: { title: "net.c:unused" label: "unused\nnet.c:30:9\n4000 bytes (static)" }
edge: { sourcename: "net_run" targetname: "net.c:k0" label: "net.c:21:5" }
edge: { sourcename: "net_run" targetname: "net.c:k1" label: "net.c:22:5" }
edge: { sourcename: "net.c:k1" targetname: "rintf" label: "net.c:10:5" }
}
"""


def test_stack_is_that_of_the_deepest_calls() -> None:
    assert greatest_stack(GRAPH, "net_run") == (24 + 112, ("rintf",))
    deep = GRAPH.replace("40 bytes", "140 bytes")
    assert greatest_stack(deep, "net_run") == (24 + 140, ("rintf",))


def test_a_model_is_measured() -> None:
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("there is no arm-none-eabi-gcc")
    model = embedded(keyword_spotter(), "cortex-m4")
    compiler = find_cross_compiler(MODELS["cortex-m4"], 2)
    taken, guessed = footprint(model, compiler), footprint(model, None)
    assert taken.weights == guessed.weights == 8 * 9 + 2 * (8 * 9 + 8 * 8)
    assert taken.arena == guessed.arena
    assert taken.tables <= guessed.tables  # single numbers become part of the code
    assert taken.stack is not None and 0 < taken.stack < 1024
    assert 0.5 < guessed.code / taken.code < 2
    assert not guessed.compiler and guessed.stack is None
