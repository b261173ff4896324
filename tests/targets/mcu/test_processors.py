"""C for microcontrollers on what it is for: compiled for all of them, and run in QEMU."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from modelcc.targets.mcu.emulation.boards import missing_tools
from modelcc.targets.mcu.emulation.build import build
from modelcc.targets.mcu.emulation.run import run
from modelcc.targets.mcu.machine import MODELS
from modelcc.targets.registry import BUILT_IN
from tests.embedded import WARNINGS, command, embedded, keyword_spotter, leaky_sum, written


def test_every_microcontroller_is_a_target() -> None:
    assert MODELS.keys() <= BUILT_IN.keys()


@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.compiler])
def test_compiles_without_a_warning(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    if shutil.which(f"{model.compiler}gcc") is None:
        pytest.skip(f"there is no {model.compiler}gcc")
    folder = written(embedded(keyword_spotter(), name), tmp_path)
    if model.architecture == "riscv32":  # whose compiler may come without a C library
        for header in ("string.h", "math.h"):
            (folder / header).write_text("float nearbyintf(float);\n")
    free = ("-ffreestanding", "-I.") if model.architecture == "riscv32" else ()
    command([f"{model.compiler}gcc", *WARNINGS, *model.flags, *free, "-c", "net.c"], folder)


@pytest.mark.parametrize("name", ["cortex-m4", "cortex-m0plus", "cortex-m55", "riscv32imc"])
def test_runs(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    missing = missing_tools(model)
    if missing:
        pytest.skip(missing)
    network = keyword_spotter()
    x = np.random.default_rng(3).integers(-128, 128, (1, 1, 9, 5), np.int8)
    delivered = embedded(network, name)
    program = build(written(delivered, tmp_path), "net", model)
    got = run(program, {"x": x.tobytes()})
    (want,) = onnxruntime.InferenceSession(network.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(
        np.frombuffer(got.outputs["point1"], np.int8), np.ravel(np.asarray(want))
    )
    assert 0 < got.stack < 1024
    assert delivered.arena <= got.variables <= delivered.arena + 16


def test_states_run_on_a_processor(tmp_path: Path) -> None:
    model = MODELS["cortex-m3"]  # whose floats are a library's
    if missing := missing_tools(model):
        pytest.skip(missing)
    program = build(written(embedded(leaky_sum(), model.name), tmp_path), "net", model)
    got = run(program, {"x": np.arange(6, dtype=np.float32).tobytes()})
    found = np.frombuffer(got.outputs["twice"], np.float32)
    np.testing.assert_array_equal(found, np.arange(6) * 2 + 1)
