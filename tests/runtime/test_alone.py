"""Running a model without the packages that compile it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_models import mlp

import modelcc
from tests.levels import runnable

SCRIPT = """
import pickle, sys
for name in ("onnx", "google", "llvmlite", "click", "rich"):
    sys.modules[name] = None
import numpy as np, modelcc
net = modelcc.load(sys.argv[1], threads=1)
x = np.ones((2, 6), np.float32)
assert (pickle.loads(pickle.dumps(net))(x) == net(x)).all() and repr(net)
assert modelcc.InputError and modelcc.StageError
try:
    modelcc.compile("model.onnx", cache=None)
except modelcc.ModelError as error:
    print(error)
"""


@pytest.mark.parametrize("cpu", runnable())
def test_models_run_and_compiling_is_refused_in_words(tmp_path: Path, cpu: str) -> None:
    modelcc.compile(mlp(), threads=1, cpu=cpu, cache=None).save(tmp_path / "net.mcc")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "net.mcc")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "compiling needs the package" in done.stdout and "pip install" in done.stdout
