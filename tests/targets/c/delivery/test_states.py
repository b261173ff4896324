"""Delivered models that keep something: memory of the caller's, changed as a session changes its.

The programs allocate nothing; every step is compared bit by bit.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelcc
from modelcc.ir.graph import Graph
from modelcc.targets.c.delivery.facts import WeightsForm
from modelcc.targets.c.dialect import GNU
from modelcc.targets.c.toolchain import semantics
from tests.delivered import COMPILERS, WARNINGS, delivered, needs_compiler, run
from tests.test_states import decoder, exchange, momentum

pytestmark = needs_compiler
MARCH = ("-march=x86-64",) if platform.machine() == "x86_64" else ()
RNG = np.random.default_rng(0)

TRAINING = """
#include <stdio.h>
#include "net.h"

NET_DEFINE_ARENA(scratch);
NET_DEFINE_STATES(states);

static float x[NET_INPUT_x_ELEMENTS], y[NET_INPUT_y_ELEMENTS], rate[NET_INPUT_rate_ELEMENTS];
static float error[NET_OUTPUT_error_ELEMENTS], late[NET_OUTPUT_late_ELEMENTS];

int main(void)
{
    const net_inputs in = {x, y, rate};
    net_outputs out = {error, late};
    if (net_states_reset(&states, net_weights()) != NET_OK) return 1;
    for (int step = 0; step < 5; step++) {
        if (fread(x, sizeof x, 1, stdin) + fread(y, sizeof y, 1, stdin) != 2) return 2;
        if (fread(rate, sizeof rate, 1, stdin) != 1) return 3;
        if (net_run(&in, &out, net_weights(), &states, scratch, sizeof scratch) != NET_OK) return 4;
        fwrite(error, sizeof error, 1, stdout);
        fwrite(late, sizeof late, 1, stdout);
        fwrite(states.w, NET_STATE_w_BYTES, 1, stdout);
        fwrite(states.m, NET_STATE_m_BYTES, 1, stdout);
    }
    return 0;
}
"""

DECODING = """
#include <stdio.h>
#include "net.h"

NET_DEFINE_ARENA(scratch);
NET_DEFINE_STATES(states);

static float row[NET_INPUT_row_ELEMENTS], sums[NET_OUTPUT_sums_ELEMENTS];

int main(void)
{
    int64_t place = 0;
    const net_inputs in = {row, &place};
    net_outputs out = {sums};
    if (net_states_reset(&states) != NET_OK) return 1;
    if (net_states_reset(NULL) != NET_NULL_POINTER) return 2;
    for (; place < 66; place++) {
        for (int i = 0; i < 16; i++) row[i] = (float)(place + i);
        const net_status status =
            net_run(&in, &out, net_weights(), &states, scratch, sizeof scratch);
        if ((status != NET_OK) != (place >= 64)) return 3;
        if (status != NET_OK) puts(net_status_text(status));
    }
    if (net_run(&in, &out, net_weights(), NULL, scratch, sizeof scratch) != NET_NULL_POINTER)
        return 4;
    FILE *file = fopen("cache.bin", "wb");
    if (file == NULL) return 5;
    fwrite(states.cache, NET_STATE_cache_BYTES, 1, file);
    return fclose(file);
}
"""


def program(
    graph: Graph, text: str, place: Path, *flags: str, weights: WeightsForm = "array"
) -> Path:
    """A program of one's own around the model; no function that allocates is in it."""
    folder = delivered(graph, place, weights="array")
    (place / "main.c").write_text(text)
    sources = sorted(path.name for path in place.glob("*.c"))
    options = [*semantics(GNU), *(flags or ("-O2", *MARCH)), *WARNINGS]
    run([COMPILERS[0].split()[0], *options, *sources, "-o", "own", "-lm"], folder.path)
    if not flags:
        assert "alloc" not in run(["nm", "own"], place)
    return place / "own"


def session(graph: Graph) -> modelcc.Model:
    return modelcc.compile(graph, target="c", cpu="portable", threads=1, cache=None)


def test_a_training_step_follows_the_session_bit_by_bit(tmp_path: Path) -> None:
    own, net = program(momentum(), TRAINING, tmp_path), session(momentum())
    feeds: list[Any] = []
    wanted = b""
    for _ in range(5):
        x, y = RNG.standard_normal((2, 8, 4), np.float32)
        feeds += [x, y, np.full((), 0.01, np.float32)]
        error, late = net(*feeds[-3:])
        now = net.states
        wanted += b"".join(a.tobytes() for a in (error, late, now["w"], now["m"]))
    (tmp_path / "in.bin").write_bytes(b"".join(array.tobytes() for array in feeds))
    run(["sh", "-c", f"{own} < in.bin > out.bin"], tmp_path)
    assert (tmp_path / "out.bin").read_bytes() == wanted


def test_a_cache_is_kept_and_a_call_that_fails_leaves_it(tmp_path: Path) -> None:
    own = program(decoder(), DECODING, tmp_path)
    assert run([str(own)], tmp_path).count("start within") == 2
    cache = np.fromfile(tmp_path / "cache.bin", np.float32).reshape(64, 16)
    np.testing.assert_array_equal(cache, np.add.outer(np.arange(64), np.arange(16)))


@pytest.mark.parametrize("text, graph", [(TRAINING, momentum), (DECODING, decoder)])
def test_sanitizers_find_nothing(text: str, graph: Any, tmp_path: Path) -> None:
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
    own = program(graph(), text, tmp_path, *flags)
    (tmp_path / "in.bin").write_bytes(bytes(5 * 4 * (32 + 32 + 1)))
    run(["sh", "-c", f"{own} < in.bin > out.bin"], tmp_path)


@pytest.mark.parametrize("weights", ["bin", "incbin"])
def test_the_example_goes_on_from_call_to_call(weights: WeightsForm, tmp_path: Path) -> None:
    folder, net = delivered(exchange(), tmp_path, weights=weights), session(exchange())
    folder.build(flags=("-O2", *MARCH))
    feeds = {"x": np.arange(3, dtype=np.float32)}
    for _ in range(4):
        wanted = net.run(feeds)
    for name, array in folder.outputs(feeds, wanted, "-n", "4").items():
        np.testing.assert_array_equal(array, wanted[name])


def test_the_header_tells_states(tmp_path: Path) -> None:
    delivered(momentum(), tmp_path)
    text = (tmp_path / "net.h").read_text()
    for words in (
        " *     kept w: f32[8, 8]", "float *m; /* m: f32[8, 8] */",
        "net_status net_states_reset(const net_states *states, const void *weights);",
        "const net_states *states,", "and the states as they were",
    ):  # fmt: skip
        assert words in text
    (tmp_path / "user.c").write_text('#include "net.h"\nNET_DEFINE_STATES(kept);\n')
    flags = ("-std=gnu99", "-Wall", "-Wextra", "-Wpedantic", "-Wno-unused-variable")
    run([COMPILERS[0].split()[0], *flags, "-fsyntax-only", "user.c"], tmp_path)
