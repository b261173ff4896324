"""What was measured of a machine: kept, used where code is for it, and never if it is damaged."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from machines import chosen_options
from onnx import TensorProto, helper, numpy_helper

import modelcc
from modelcc import api
from modelcc.cache import measurements
from modelcc.cache.measurements import (
    Measurements,
    keep_measurements,
    measurements_path,
    read_measurements,
    usable_measurements,
    with_measurements,
)
from modelcc.cli.main import cli
from modelcc.driver import target_of
from modelcc.ir.errors import ModelError
from modelcc.options import Options
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.native.measuring import Measured

FOUND = Measurements(
    "cafe", "znver9", (("l2_bandwidth", 12.5), ("memory_bandwidth", 3.0)), {"a": 1}
)


@pytest.fixture(autouse=True)
def as_cafe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors have no identity of their own here."""
    monkeypatch.setattr(measurements, "machine_identity", lambda: "cafe")


def test_what_is_kept_is_read(tmp_path: Path) -> None:
    path = keep_measurements(FOUND, tmp_path)
    assert read_measurements(path, "cafe") == FOUND
    assert usable_measurements(tmp_path) == FOUND
    assert [p.name for p in path.parent.iterdir()] == ["cafe.json"]


def test_they_are_for_this_machine_only(tmp_path: Path) -> None:
    keep_measurements(FOUND, tmp_path)
    plain = Options(cpu="native")
    assert with_measurements(plain, tmp_path) == replace(plain, machine=FOUND.numbers)
    given = replace(plain, machine=(("l2_bytes", 1 << 20),))
    for options, folder in (
        (plain, None),
        (plain, tmp_path / "none"),
        (Options(cpu="x86-64-v3"), tmp_path),
        (given, tmp_path),
    ):
        assert with_measurements(options, folder) == options


@pytest.mark.parametrize("at", [0, 30, 90, 200, -5])
def test_a_changed_letter_is_noticed(
    tmp_path: Path, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = keep_measurements(FOUND, tmp_path)
    damaged = bytearray(path.read_bytes())
    damaged[at] = ord("7") if damaged[at] != ord("7") else ord("8")
    path.write_bytes(damaged)
    with pytest.raises(ModelError, match=r"cafe\.json is damaged"):
        read_measurements(path, "cafe")
    with caplog.at_level(logging.WARNING):
        assert usable_measurements(tmp_path) is None
    assert "not used" in caplog.text
    assert "modelcc machine --measure" in caplog.text
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "[" * 9999, '{"sha256": 1}', "\x00"])
def test_other_contents_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ModelError, match=r"is damaged"):
        read_measurements(path, "cafe")


def test_files_of_newer_versions_are_refused_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(measurements, "FORMAT", measurements.FORMAT + 1)
        path = keep_measurements(FOUND, tmp_path)
    before = path.read_bytes()
    with pytest.raises(ModelError, match=r"a newer modelcc wrote .*cafe\.json"):
        read_measurements(path, "cafe")
    assert usable_measurements(tmp_path) is None and path.read_bytes() == before


def test_numbers_that_no_machine_has_are_refused(tmp_path: Path) -> None:
    for numbers in ((("speed", 1.0),), (("l2_bandwidth", -1.0),), (("fmas", float("nan")),)):
        path = keep_measurements(replace(FOUND, numbers=numbers), tmp_path)
        with pytest.raises(ModelError, match=r"is damaged"):
            read_measurements(path, "cafe")


def test_files_of_other_processors_are_refused(tmp_path: Path) -> None:
    path = measurements_path(tmp_path, "cafe")
    keep_measurements(replace(FOUND, identity="beef"), tmp_path).rename(path)
    with pytest.raises(ModelError, match=r"was measured on another processor \(znver9\)"):
        read_measurements(path, "cafe")
    assert usable_measurements(tmp_path) is None


def test_a_folder_that_cannot_be_read_is_no_obstacle(tmp_path: Path) -> None:
    measurements_path(tmp_path, "cafe").mkdir(parents=True)
    assert usable_measurements(tmp_path) is None


def test_the_key_of_a_target_and_of_options_has_the_numbers() -> None:
    plain = chosen_options(threads=1)
    measured = replace(plain, machine={"l2_bandwidth": 12.5})
    assert measured.machine == (("l2_bandwidth", 12.5),)
    assert measured.key() != plain.key()
    assert "l2_bandwidth=12.5" in target_of(measured).key
    assert target_of(measured).key != target_of(plain).key


@pytest.mark.parametrize("numbers", [3, "l2", ["l2"], {"l2_bytes": "many"}, {1: 2}])
def test_options_refuse_what_are_no_numbers(numbers: object) -> None:
    with pytest.raises(ModelError, match="machine"):
        Options(cpu="native", machine=numbers)  # pyright: ignore[reportArgumentType]


def test_unknown_numbers_are_named() -> None:
    with pytest.raises(ModelError, match="a machine has no 'l9_bytes'"):
        target_of(chosen_options(machine=(("l9_bytes", 1),)))


def product() -> bytes:
    w = np.random.default_rng(0).standard_normal((96, 96)).astype(np.float32)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 96]) for n in "xy")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(w, "w")])
    return helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()


def test_compiling_takes_them_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MODELCC_CPU", raising=False)
    seen: list[Options] = []
    compiled_model = api.compiled_model

    def spy(model: object, options: Options, *others: object) -> object:
        seen.append(options)
        return compiled_model(model, options, *others)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(api, "compiled_model", spy)
    keep_measurements(FOUND, tmp_path)
    for measured in (True, False):
        modelcc.compile(product(), threads=1, cache=tmp_path, measured=measured)
    assert [options.machine for options in seen] == [FOUND.numbers, ()]


def shown(*arguments: str, folder: Path) -> tuple[int, str]:
    result = CliRunner().invoke(
        cli, ["machine", *arguments], env={"MODELCC_CACHE_DIR": str(folder), "COLUMNS": "100"}
    )
    return result.exit_code, result.output


def test_the_command_shows_a_named_processor(tmp_path: Path) -> None:
    code, text = shown("--cpu", "portable", "--json", folder=tmp_path)
    told = json.loads(text)
    assert code == 0
    assert told["known"]
    assert told["measured"] is None
    assert told["model"]["vector_bits"] == 128
    assert set(told["model"]) < set(CpuModel.__dataclass_fields__)
    code, text = shown("--cpu", "portable", folder=tmp_path)
    assert "of 128 bits" in text
    assert "memory" in text


def test_the_command_shows_what_was_measured(tmp_path: Path) -> None:
    levels = {"L1": 1e11, "memory": 1e10}
    facts = Measured(0.3e-9, {"f32": 5e10}, 4.01, levels, dict.fromkeys(levels, 1e-9), 2e-6, 2)
    keep_measurements(replace(FOUND, facts=facts.__dict__), tmp_path)
    _, text = shown(folder=tmp_path)
    for part in ("0.300 ns", "50.0 G/s, 15.0 per cycle", "4.0 cycles", "2.00 µs", "12.5", "100.0"):
        assert part in text
    _, text = shown("--no-measured", folder=tmp_path)
    assert "measured" not in text


def test_measuring_another_processor_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["machine", "--measure", "--cpu", "portable"])
    assert "--measure measures this machine, not portable" in str(result.exception)
