"""Choices above kernels: algorithms that are switched on, blocks of channels, pairs of products."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

import modelcc
from modelcc.driver import target_of
from modelcc.emit.emission import emit
from modelcc.model_tuning.above import listing_text, other_lines, whole_choices
from modelcc.options import Options
from modelcc.targets.base import BuildConfig
from modelcc.targets.native.cpu_target import CpuTarget
from modelcc.tune.database import FILE, Database
from modelcc.tune.model_rows import model_key

CPU = "x86-64-v2"
PLAIN = Options(cpu=CPU)

SMALL_CONVOLUTION = """<ir_version: 8, opset_import: ["" : 18]>
g (float[1, 32, 3, 3] x) => (float[1, 32, 3, 3] y)
<float[32, 32, 3, 3] w>
{ [conv] p = Conv <pads = [1, 1, 1, 1]> (x, w) [relu] y = Relu(p) }"""
"""So few points that Winograd's algorithm seems not to pay."""

SMALL_PRODUCT = """<ir_version: 8, opset_import: ["" : 18]>
g (float[64, 64] x) => (float[64, 128] y)
<float[64, 128] w>
{ [product] y = MatMul(x, w) }"""

ATTENTION = """<ir_version: 8, opset_import: ["" : 18]>
g (float[2, ROWS, 16] x, float[2, 16, 64] k, float[2, 64, 16] v) => (float[2, ROWS, 16] y)
{ s = MatMul(x, k) p = Softmax <axis = -1> (s) y = MatMul(p, v) }"""


def with_weights(text: str) -> onnx.ModelProto:
    """The model of a text, with random weights if a line ``<float[…] w>`` declares some."""
    declared = re.search(r"^<float\[(.*)\] w>\n", text, re.MULTILINE)
    if declared is None:
        return onnx.parser.parse_model(text)
    shape = tuple(map(int, declared[1].split(",")))
    model = onnx.parser.parse_model(text.replace(declared[0], ""))
    values = np.random.default_rng(0).standard_normal(shape) / 12
    model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), "w"))
    return model


def emitted(model: onnx.ModelProto, options: Options, form: str = "tensor") -> str:
    return emit(model, None, form, target_of(options), options, BuildConfig()).contents.decode()


def with_lines(lines: Mapping[str, str]) -> Options:
    return Options(cpu=CPU, schedule=listing_text({}, lines))


def check_results(model: onnx.ModelProto, options: Options) -> None:
    """The same as onnxruntime's."""
    rng = np.random.default_rng(1)
    feeds = {
        i.name: rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]).astype(
            np.float32
        )
        for i in model.graph.input
    }
    peer = onnxruntime.InferenceSession(model.SerializeToString())
    wanted = np.asarray(peer.run(None, feeds)[0])
    compiled = modelcc.compile(model.SerializeToString(), options=options, cache=None)
    np.testing.assert_allclose(compiled(*feeds.values()), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("text", "words"),
    [(SMALL_CONVOLUTION, {"winograd2", "winograd4"}), (SMALL_PRODUCT, {"strassen"})],
)
def test_algorithms_are_switched_on(text: str, words: set[str]) -> None:
    model = with_weights(text)
    groups = other_lines(model, PLAIN)
    assert {word for group in groups for _, word in group} == words
    assert "winograd" not in emitted(model, PLAIN) and "strassen" not in emitted(model, PLAIN)
    made: set[str] = set()
    for group in groups:
        ((name, word),) = group
        options = with_lines({name: word})
        made.add(emitted(model, options, "schedule"))
        assert word.rstrip("24") in emitted(model, options)
        assert f"\n{name}: {word}\n" in emitted(model, options, "schedule")
        assert not other_lines(model, options)
        check_results(model, options)
    assert len(made) == len(words)


@pytest.mark.parametrize("channels", ["8", "16", "32"])
def test_blocks_of_channels(channels: str) -> None:
    model = with_weights(SMALL_CONVOLUTION)
    options = with_lines({"model channels": channels})
    assert set(re.findall(r"d1%(\d+)", emitted(model, options))) == {channels}
    assert f"\nmodel channels: {channels}\n" in emitted(model, options, "schedule")
    check_results(model, options)
    ((name, word), *_) = (line for group in other_lines(model, options) for line in group)
    asked = with_lines({"model channels": channels, name: word})
    assert "winograd" in emitted(model, asked)
    check_results(model, asked)


def test_pairs_of_contractions_are_kept_apart_or_fused() -> None:
    for rows, default in ((64, "fused"), (4, "apart")):
        model = with_weights(ATTENTION.replace("ROWS", str(rows)))
        made = {
            word: emitted(model, with_lines({"model contractions": word}))
            for word in ("apart", "fused")
        }
        kernels = {word: text.count("  kernel @") for word, text in made.items()}
        assert kernels["fused"] == kernels["apart"] - 2
        plain = emitted(model, PLAIN)
        assert plain == made[default]
        for word in made:
            check_results(model, with_lines({"model contractions": word}))


def test_a_machine_model_of_few_registers_is_tried_with_all_there_are() -> None:
    def schedules(options: Options) -> list[str]:
        text = emitted(model, options, "schedule")
        return [line for line in text.splitlines() if line.startswith("kernel ")]

    model = with_weights(SMALL_PRODUCT)
    few = replace(PLAIN, machine=(("vector_registers", 8.0),))
    assert whole_choices(model, few)[0] == (("model vectors", "all"),)
    chosen = replace(few, schedule=listing_text({}, {"model vectors": "all"}))
    assert schedules(chosen) == schedules(PLAIN) != schedules(few)
    check_results(model, chosen)


def test_only_choices_that_change_the_model_are_tried() -> None:
    found = whole_choices(with_weights(SMALL_CONVOLUTION), PLAIN)
    assert found == [(("model channels", "8"),), (("model channels", "32"),)]
    found = whole_choices(with_weights(ATTENTION.replace("ROWS", "64")), PLAIN)
    assert found == [(("model contractions", "apart"),)]


def key_of(text: str) -> str:
    ((name, _), *_) = (line for g in other_lines(with_weights(text), PLAIN) for line in g)
    return name.split()[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model channels: 7\n", "line 1 of the schedules: channels of a model cannot be '7'"),
        ("model colour: red\n", "'colour' cannot be chosen for a model"),
        ("model channels: 8\n" * 2, "lines 1 and 2 of the schedules are for one model"),
        ("algorithm 0123456789abcdef: winograd4\n", "no contraction of this model has the key"),
        ("algorithm KEY: strassen\n", "contraction .* cannot be computed by strassen"),
    ],
)
def test_what_cannot_be_is_refused(text: str, message: str) -> None:
    schedule = text.replace("KEY", key_of(SMALL_CONVOLUTION))
    model = with_weights(SMALL_CONVOLUTION).SerializeToString()
    with pytest.raises(modelcc.ModelError, match=message) as caught:
        modelcc.compile(model, options=Options(cpu=CPU, schedule=schedule), cache=None)
    assert "KEY" not in text or "conv" in str(caught.value)


def test_what_is_switched_off_cannot_be_asked_for() -> None:
    model = with_weights(SMALL_CONVOLUTION).SerializeToString()
    text = f"algorithm {key_of(SMALL_CONVOLUTION)}: winograd4\n"
    with pytest.raises(modelcc.ModelError, match="cannot be computed by winograd4"):
        modelcc.compile(model, options=Options(cpu=CPU, schedule=text, winograd=False), cache=None)
    with pytest.raises(modelcc.ModelError, match="cannot be chosen at level 0"):
        options = Options(cpu=CPU, schedule="model channels: 8\n", optimize=0)
        modelcc.compile(model, options=options, cache=None)


def test_what_tuning_chose_is_used_and_what_is_stale_is_told(tmp_path: Path) -> None:
    model = with_weights(SMALL_CONVOLUTION).SerializeToString()
    target, key = target_of(PLAIN), key_of(SMALL_CONVOLUTION)
    assert isinstance(target, CpuTarget)
    own = f"model {model_key(model)}"

    def compiled(rows: Mapping[str, str]) -> modelcc.Report:
        with Database.open(tmp_path / FILE) as database:
            database.clear()
            database.choose(target.tuning_key, rows)
        return modelcc.compile(model, options=PLAIN, tuned=True, cache=tmp_path).report()

    plain = {one.function for one in compiled({}).kernels}
    used = compiled({f"algorithm {key}": "winograd4", f"{own} contractions": "apart"})
    assert any("winograd" in one.function for one in used.kernels) and used.notes == ()
    other = compiled({f"model {'0' * 16} channels": "8", "algorithm " + "1" * 16: "strassen"})
    assert {one.function for one in other.kernels} == plain and other.notes == ()
    stale = compiled({f"algorithm {key}": "strassen", f"{own} channels": "9"})
    assert {one.function for one in stale.kernels} == plain
    assert len(stale.notes) == 2 and all("tune the model anew" in n for n in stale.notes)
