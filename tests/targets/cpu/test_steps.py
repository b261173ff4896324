"""Steps within schedules: their text says all of them, others mean the same, wrong ones are
refused."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from machines import chosen_cpu, chosen_options

import modelcc
from modelcc.model_tuning.above import tasks_of
from modelcc.options import Options
from modelcc.schedule.schedule import Parts, RowBlocks, RowSums, Schedule, ScheduleError
from modelcc.schedule.text import parse_schedule, print_schedule
from modelcc.targets.cpu.candidates import candidates
from modelcc.targets.cpu.lower import schedule_kernel
from modelcc.tune.search import Task

HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'
SUMS = """g (float[1, 1003] x, float[1003, 2100] w) => (float[1, 2100] y)
{ p = MatMul(x, w) y = Tanh(p) }"""
PADS = """g (float[3, 5, 300] x) => (float[3, 7, 311] y)
<int64[6] pads = {0, 1, 4, 0, 1, 7}> { y = Pad<mode = "reflect">(x, pads) }"""
BLOCKS = """g (float[2, 149, 24] q, float[2, 24, 149] k, float[2, 149, 40] v)
=> (float[2, 149, 40] y) { s = MatMul(q, k) p = Softmax(s) y = MatMul(p, v) }"""
ENDS = """g (float[1, 70, 16] q, float[1, 16, 2000] k, float[1, 2000, 24] v)
=> (float[1, 70, 24] y) { s = MatMul(q, k) p = Softmax(s) y = MatMul(p, v) }"""
MODELS = {"sums": SUMS, "pads": PADS, "blocks": BLOCKS, "ends": ENDS}
FUSED = "model contractions: fused\n"
OPTIONS: Options = chosen_options(threads=1, schedule=FUSED)
DRAWN = 6


def parsed(name: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + MODELS[name])


def task(name: str) -> Task:
    """The kernel of most work."""
    return max(tasks_of(parsed(name), OPTIONS), key=lambda task: task.estimate)


def steps(schedule: Schedule) -> tuple[object, ...]:
    match schedule:
        case Parts((part,)):
            return getattr(part, "parts", ())
        case RowBlocks() | RowSums():
            return schedule.steps
        case _:
            return ()


@pytest.mark.parametrize(("name", "least"), [("sums", 4), ("pads", 3), ("blocks", 4), ("ends", 8)])
def test_the_text_says_all_and_gives_the_same_function(name: str, least: int) -> None:
    one = task(name)
    assert len(steps(one.default)) >= least
    read = parse_schedule(print_schedule(one.default))
    assert read == one.default
    default = schedule_kernel(one.kernel, "kernel", chosen_cpu())
    assert schedule_kernel(one.kernel, "kernel", chosen_cpu(), (), read) == default


def others(one: Task) -> Iterator[Schedule]:
    """Candidates that differ from the default in one step only."""
    for schedule in candidates(one.kernel, one.default, chosen_cpu()):
        own, plain = steps(schedule), steps(one.default)
        if own and sum(a != b for a, b in zip(own, plain, strict=False)) == 1:
            yield schedule


@pytest.mark.parametrize("name", MODELS)
def test_other_steps_change_loops_and_not_results(name: str) -> None:
    one, model = task(name), parsed(name)
    rng = np.random.default_rng(0)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feeds = {i.name: rng.standard_normal(i.shape).astype("f") for i in session.get_inputs()}
    (wanted,) = map(np.asarray, session.run(None, feeds))
    default = schedule_kernel(one.kernel, "kernel", chosen_cpu()).function
    options, changed = list(others(one)), 0
    assert len(options) >= DRAWN
    for schedule in random.Random(name).sample(options, DRAWN):
        lowered = schedule_kernel(one.kernel, "kernel", chosen_cpu(), (), schedule)
        changed += lowered.function != default
        text = f"{FUSED}kernel {one.key}: {print_schedule(schedule)}"
        net = modelcc.compile(model, options=OPTIONS, schedule=text, cache=None)
        np.testing.assert_allclose(np.asarray(net(**feeds)), wanted, rtol=1e-4, atol=1e-4)
    assert changed


def test_rows_that_are_added_at_once() -> None:
    one = task("sums")
    functions = {
        schedule_kernel(
            one.kernel, "kernel", chosen_cpu(), (), RowSums(2048, False, terms)
        ).function
        for terms in (1, 2, 8, 16)
    }
    assert len(functions) == 4
    default = schedule_kernel(one.kernel, "k", chosen_cpu(), (), RowSums(2048)).schedule
    assert isinstance(default, RowSums) and default.terms == 8


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("sums", "row_sums(block=64, terms=33)", "up to 32 rows are added at once, not 33"),
        ("sums", "row_sums(block=64, steps=[rows(lanes=4)])", "step 1 is tiled, not rows"),
        ("sums", "row_sums(block=64, steps=[tiled()])", "there are more steps than 1"),
        ("sums", "row_sums(block=64, steps=[tiled(parallel=16)])", "steps are not parallel"),
        ("pads", "straight_rows(tiled())", "there are more steps than 1"),
        (
            "pads",
            f"straight_rows({', '.join(['tiled()'] * 40)})",
            "steps, not 40",
        ),
        ("pads", "straight_rows(tiled(vector=zz, lanes=4))", "zz"),
        ("blocks", "row_blocks(rows=50, steps=[tiled()])", "step 1 is rows, not tiled"),
        ("blocks", "row_blocks(rows=50, steps=[rows(lanes=3)])", "a power of two, not 3"),
    ],
)
def test_steps_that_do_not_fit_are_refused(name: str, text: str, message: str) -> None:
    one = task(name)
    with pytest.raises(ScheduleError) as error:
        schedule_kernel(one.kernel, "kernel", chosen_cpu(), (), parse_schedule(text))
    assert message in str(error.value)
