"""Models that a process of its own compiles."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_models import mlp

import modelcc
from modelcc.ir.errors import ModelError

PROGRAM = """
import sys, modelcc
told = []
net = modelcc.compile(
    sys.argv[1], threads=1, cache=None, separate=True, progress=lambda *parts: told.append(parts)
)
print(net.report().stages[0].stage, len(told) > 1, "modelcc.driver" in sys.modules)
net.save(sys.argv[2])
"""


def test_the_artifact_is_the_same_and_the_compiler_is_not_loaded(tmp_path: Path) -> None:
    source, target = tmp_path / "mlp.onnx", tmp_path / "mlp.mcc"
    source.write_bytes(mlp().SerializeToString())
    command = [sys.executable, "-c", PROGRAM, str(source), str(target)]
    path = os.pathsep.join(sys.path)
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert run.stdout == "import/import True False\n"
    here = modelcc.compile(source, threads=1, cache=None)
    assert modelcc.load(target).digest == here.digest


def test_graphs_and_errors_pass_between_processes() -> None:
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    graph = modelcc.import_model(mlp())
    net = modelcc.compile(graph, threads=1, cache=None, separate=True)
    wanted = modelcc.compile(graph, threads=1, cache=None)(x)
    np.testing.assert_array_equal(net(x), wanted)
    with pytest.raises(ModelError, match=r"nothing"):
        modelcc.compile(graph, target="nothing", cache=None, separate=True)
    with pytest.raises(ModelError, match="separate"):
        modelcc.compile(graph, separate=2)  # pyright: ignore[reportArgumentType]
