"""Scatters that update their operand where it lies do not copy it, and none but those."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx import ModelProto

import modelcc
from modelcc.driver import compile_model
from modelcc.ir.library import meaning_of
from modelcc.ir.loop import Load, Store
from modelcc.ir.loop_traversal import statements
from modelcc.ir.program import Launch, Program, leaves
from modelcc.pipeline import StageRun
from tests.frontends.onnx.onnx_models import run_onnxruntime
from tests.machines import chosen_options

CHAIN = (
    "a = Exp(x) b = ScatterND(a, i, u) c = ScatterND(b, j, u) "
    'y = ScatterND<reduction = "add">(c, i, u)'
)
USED_AGAIN = "a = Exp(x) b = ScatterND(a, i, u) c = ScatterND(a, j, u) y = Sub(b, c)"
OF_AN_INPUT = "y = ScatterND(x, i, u)"
IN_A_LOOP = """
    a = Exp(x) n = Constant<value_int = 5>() go = Constant<value_int = 1>() t = Cast<to = 9>(go)
    y = Loop(n, t, a) <body = g (int64 k, bool s, float[n, 16] e) => (bool r, float[n, 16] f)
    { r = Identity(s) h = Neg(e) f = ScatterND(h, i, u) }>
"""
BODIES = {"chain": CHAIN, "used again": USED_AGAIN, "input": OF_AN_INPUT, "loop": IN_A_LOOP}


def model_of(body: str, rows: str) -> ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> '
        f"m (float[{rows}, 16] x, int64[k, 1] i, int64[k, 1] j, float[k, 16] u) => "
        f"(float[{rows}, 16] y) {{ {body.replace('[n, 16]', f'[{rows}, 16]')} }}"
    )


def self_copies(model: ModelProto) -> int:
    """Stores of what a kernel reads at the same offset of an argument of the same name."""
    programs: list[Program] = []

    def note(run: StageRun) -> None:
        if isinstance(run.after, Program):
            programs.append(run.after)

    compile_model(model, chosen_options(), observer=note)
    program, found = programs[-1], 0
    for launch in (step for step in leaves(program.steps) if isinstance(step, Launch)):
        function = meaning_of(program.callee[launch.callee])
        pairs = zip(function.parameters, launch.arguments, strict=True)
        names = {parameter.buffer.name: name for parameter, name in pairs}
        for s in statements(function.body):
            match s:
                case Store(buffer, offset, Load(source, start)) if offset == start:
                    one, two = (program.placed.bindings[names[b]] for b in (buffer, source))
                    same = one.place == two.place and one.offset == two.offset
                    found += same and (one.place == "arena" or names[buffer] == names[source])
                case _:
                    pass
    return found


@pytest.mark.parametrize("rows", ["n", "200"])
@pytest.mark.parametrize("name", BODIES)
def test_nothing_is_copied_to_where_it_is(name: str, rows: str) -> None:
    assert self_copies(model_of(BODIES[name], rows)) == 0


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", ["n", "200"])
@pytest.mark.parametrize("name", BODIES)
def test_results_are_those_of_onnxruntime(name: str, rows: str, threads: int) -> None:
    model = model_of(BODIES[name], rows)
    net = modelcc.compile(model, options=chosen_options(threads=threads), cache=None)
    for count, updates in ((200, 7), (3, 3), (1, 0)) if rows == "n" else ((200, 7),):
        random = np.random.default_rng(count)
        feeds = {
            "x": random.random((count, 16), dtype=np.float32),
            "i": random.permutation(count)[:updates, None],
            "j": random.permutation(count)[:updates, None],
            "u": random.random((updates, 16), dtype=np.float32),
        }
        used = {given.name: feeds[given.name] for given in model.graph.input}
        wanted = run_onnxruntime(model, used)["y"]
        before = {key: value.copy() for key, value in feeds.items()}
        (found,) = net.run(feeds).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
        for key, value in before.items():
            np.testing.assert_array_equal(feeds[key], value)
