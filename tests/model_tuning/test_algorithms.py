"""Contractions that are computed directly although the target has a faster algorithm for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import modelcc
from modelcc.driver import target_of
from modelcc.emit.emission import emit
from modelcc.model_tuning.above import Lines, chosen_lines, listing_text, rewritten
from modelcc.options import Options
from modelcc.targets.base import BuildConfig
from modelcc.targets.native.cpu_target import CpuTarget
from modelcc.tune.database import FILE, Database
from modelcc.tune.turns import Run

CPU = "x86-64-v2"
WINOGRAD = Options(cpu=CPU)
STRASSEN = Options(cpu="znver5")


def convolutions() -> onnx.ModelProto:
    """Two in a row, of different sizes: the second wants another border than the first."""
    rng = np.random.default_rng(0)
    shapes = {"v": (32, 16, 3, 3), "w": (32, 32, 3, 3)}
    weights = [
        numpy_helper.from_array((rng.standard_normal(s) / 12).astype(np.float32), n)
        for n, s in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["p"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["p"], ["q"], "relu"),
        helper.make_node("Conv", ["q", "w"], ["y"], "second", pads=[1, 1, 1, 1]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 30, 30])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32, 30, 30])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def product() -> onnx.ModelProto:
    w = numpy_helper.from_array(np.zeros((1024, 1024), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "product")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1024, 1024])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1024, 1024])
    graph = helper.make_graph(nodes, "g", [x], [y], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def loops(model: onnx.ModelProto, options: Options) -> str:
    text = emit(model, None, "loop", target_of(options), options, BuildConfig()).contents.decode()
    return re.sub(r"\bk\d+_", "", text)


def with_direct(options: Options, *keys: str) -> Options:
    lines = {f"algorithm {key}": "direct" for key in keys}
    return Options(cpu=options.cpu, schedule=listing_text({}, lines))


def compiled(options: Options, cache: Path | None = None, tuned: bool = False) -> modelcc.Model:
    data = convolutions().SerializeToString()
    return modelcc.compile(data, options=options, tuned=tuned, cache=cache)


def test_algorithms_of_all_contractions_are_left_out_as_by_the_option() -> None:
    for model, options, name in (
        (convolutions(), WINOGRAD, "winograd"),
        (product(), STRASSEN, "strassen"),
    ):
        (keys,) = rewritten(model, options)
        assert len(keys) == (2 if name == "winograd" else 1)
        off = Options(cpu=options.cpu, **{name: False})  # pyright: ignore[reportArgumentType]
        assert loops(model, with_direct(options, *keys)) == loops(model, off)
        assert loops(model, with_direct(options, *keys)) != loops(model, options)
        assert rewritten(model, off) == ()


def test_one_contraction_may_be_direct_and_results_are_the_same() -> None:
    model = convolutions()
    (keys,) = rewritten(model, WINOGRAD)
    one, other = (with_direct(WINOGRAD, key) for key in keys)
    made = {loops(model, options) for options in (WINOGRAD, one, other)}
    assert len(made) == 3
    listing = emit(model, None, "schedule", target_of(one), one, BuildConfig()).contents.decode()
    assert loops(model, Options(cpu=CPU, schedule=listing)) == loops(model, one)
    x = np.random.default_rng(1).standard_normal((1, 16, 30, 30)).astype(np.float32)
    peer = onnxruntime.InferenceSession(model.SerializeToString())
    wanted = np.asarray(peer.run(None, {"x": x})[0])
    np.testing.assert_allclose(compiled(one)(x), wanted, atol=1e-4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("algorithm 0123456789abcdef: direct\n", "no contraction of this model has the key 012"),
        ("algorithm 0123456789abcdef: quick\n", "'quick' is no algorithm"),
        ("algorithm 0123456789abcdef: direct\n" * 2, "lines 1 and 2 of the schedules are for one"),
        ("algorithm key: direct\n", "line 1 of the schedules is none"),
    ],
)
def test_what_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(modelcc.ModelError, match=message):
        loops(convolutions(), Options(cpu=CPU, schedule=text))


def test_what_tuning_chose_is_used_if_asked_for(tmp_path: Path) -> None:
    (keys,) = rewritten(convolutions(), WINOGRAD)
    target = target_of(WINOGRAD)
    assert isinstance(target, CpuTarget)
    with Database.open(tmp_path / FILE) as database:
        rows = {f"algorithm {key}": "direct" for key in (*keys, "0" * 16)}
        database.choose(target.tuning_key, rows)
    report = compiled(WINOGRAD, tmp_path, tuned=True).report()
    assert not any("winograd" in kernel.function for kernel in report.kernels)
    assert report.notes == () and "winograd" in loops(convolutions(), WINOGRAD)


def test_only_the_contractions_that_gain_by_it_are_made_direct() -> None:
    """``a`` and ``c`` gain, ``b`` and ``d`` lose much by being computed directly."""
    cost = {"a": -1.0, "b": 4.0, "c": -1.0, "d": 4.0}
    tried: list[frozenset[str]] = []

    def attempt(best: Run, lines: Mapping[str, str], group: Lines) -> Run | None:
        tried.append(frozenset(lines))
        assert lines.items() >= dict(group).items()
        seconds = 4 + sum(cost[key] for key in lines)
        faster = float(best()) > seconds  # pyright: ignore[reportArgumentType]
        return (lambda: seconds) if faster else None

    groups = [tuple((key, "direct") for key in keys) for keys in ("ab", "c", "d")]
    before: tuple[Run, dict[str, str]] = (lambda: 4.0, {})
    _, chosen = chosen_lines(groups, before, attempt, lambda: False)
    assert chosen == {"a": "direct", "c": "direct"} and len(tried) == len(set(tried)) == 5
    assert not chosen_lines(groups, before, attempt, lambda: True)[1]
