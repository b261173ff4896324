"""Files of schedules: printed, edited, taken back, refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import modelcc
from modelcc.cli.main import USER_ERROR, main
from modelcc.driver import target_of
from modelcc.emit.emission import emit
from modelcc.ir.errors import ModelError
from modelcc.options import Options
from modelcc.targets.base import BuildConfig

MODEL = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["" : 18]>
    g (float[24, 40] x, float[40, 36] w) => (float[24, 36] y)
    { p = MatMul(x, w) y = Relu(p) }"""
)
CPU = "x86-64-v2"


def listing(cpu: str = CPU, **more: object) -> str:
    options = Options(cpu=cpu, **more)  # pyright: ignore[reportArgumentType]
    target = target_of(options)
    return emit(MODEL, None, "schedule", target, options, BuildConfig()).contents.decode()


def compiled(schedule: str) -> modelcc.Model:
    return modelcc.compile(MODEL, cpu=CPU, threads=1, schedule=schedule, cache=None)


def test_a_file_names_the_machine_and_the_users_nodes() -> None:
    text = listing()
    assert text.startswith("machine 128-bit vectors, 16 registers, 1 thread\n")
    assert re.search(r"^# node .*\n(#   .*\n)+kernel [0-9a-f]{16}: ", text, re.MULTILINE)


def test_an_edited_schedule_is_used_and_gives_the_same() -> None:
    text = listing()
    edited = re.sub(r"tile=\{[^}]*\}", "tile={}", text)
    assert edited != text
    x = np.random.default_rng(0).standard_normal((24, 40)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal((40, 36)).astype(np.float32)
    np.testing.assert_allclose(compiled(edited)(x, w), np.maximum(x @ w, 0), rtol=1e-5, atol=1e-5)
    again = Options(cpu=CPU, schedule=edited)
    printed = emit(MODEL, None, "schedule", target_of(again), again, BuildConfig())
    wanted = re.findall(r"^kernel.*", edited.replace("tile={}, ", ""), re.MULTILINE)
    assert re.findall(r"^kernel.*", printed.contents.decode(), re.MULTILINE) == wanted


def test_loops_change_with_the_schedule() -> None:
    options = Options(cpu=CPU, schedule=re.sub(r"tile=\{[^}]*\}", "tile={}", listing()))
    plain, edited = (
        emit(MODEL, None, "loop", target_of(one), one, BuildConfig()).contents
        for one in (Options(cpu=CPU), options)
    )
    assert plain != edited


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.replace("128-bit", "512-bit"), "for the machine '512-bit vectors"),
        (
            lambda t: re.sub(r"kernel \w{16}", "kernel 0123456789abcdef", t),
            "has the key 0123456789",
        ),
        (lambda t: re.sub(r"lanes=\d+", "lanes=64", t), "vectors have up to 4 lanes here"),
        (lambda t: re.sub(r"lanes=\d+", "lanes=3", t), "a power of two, not 3"),
        (lambda t: re.sub(r"vector=\w+", "vector=a99", t), "there is no parallel loop 'a99'"),
        (lambda t: re.sub(r"tile=\{\w+", "tile={zz", t), "tile: there is no loop 'zz'"),
        (lambda t: re.sub(r"tile=\{(\w+): \d+", r"tile={\1: 999", t), "their product at most 128"),
        (lambda t: re.sub(r"(kernel \w+): .*", r"\1: rows(lanes=1, unroll=99)", t), "unroll is 1"),
        (lambda t: re.sub(r"(kernel \w+): .*", r"\1: row_blocks(rows=8)", t), "the kernel is not"),
        (lambda t: re.sub(r"(kernel \w+): .*", r"\1: tiled(", t), "of the schedules: this is no"),
        (lambda t: t + t[t.index("kernel") :], "of the schedules are for one kernel"),
        (lambda t: t + "nonsense\n", "of the schedules is none: 'nonsense'"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(
    change: Callable[[str], str], message: str
) -> None:
    with pytest.raises(ModelError) as error:
        compiled(change(listing()))
    assert message in str(error.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    onnx.save(MODEL, tmp_path / "m.onnx")
    arguments = ["compile", str(tmp_path / "m.onnx"), "--schedule", str(tmp_path / "none.txt")]
    assert main(arguments) == USER_ERROR
