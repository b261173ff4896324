"""Runs files that ``--emit triton`` wrote, in Triton's interpreter: ``triton_runner.py FOLDER…``.

Each folder has ``model.py``, ``inputs.npz`` (``x0``, ``x1`` …) and maybe ``model.npz``; it gets
``outputs.npz`` or ``error.txt``.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path

import numpy as np
import torch

interpreter = importlib.import_module("triton.runtime.interpreter")
options = interpreter.InterpreterOptions(debug=True)  # assertions hold, as where it is run
interpreter.interpreter_builder.options = options


def run(folder: Path) -> None:
    spec = importlib.util.spec_from_file_location(folder.name, folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with np.load(folder / "inputs.npz") as arrays:
        inputs = [torch.from_numpy(arrays[f"x{n}"]) for n in range(len(arrays.files))]
    beside = folder / "model.npz"
    constants = module.load_constants(beside, "cpu") if beside.exists() else {}
    outputs = module.run(*inputs, constants, **({} if inputs else {"device": "cpu"}))
    np.savez(folder / "outputs.npz", **{f"y{n}": y.numpy() for n, y in enumerate(outputs)})


for name in sys.argv[1:]:
    try:
        run(Path(name))
    except Exception:
        (Path(name) / "error.txt").write_text(traceback.format_exc())
