"""How far a session's results are from ONNX Runtime's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

from modelcc.ir.types import Array
from modelcc.options import Options
from modelcc.runtime.session import Session

TOLERANCE = {"f32": 2e-5, "tf32x3": 2e-5, "tf32": 1e-2, "f16": 6e-3, "bf16": 7e-2}
"""Of the largest number of a result."""


def error_against_onnxruntime(model: Path, session: Session, options: Options) -> float:
    """The largest one of all results of random inputs, as a part of the largest number; sizes that
    ``options`` leave open are 2."""
    peer = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    feeds: dict[str, Array] = {}
    sizes = {name: size for name, size in options.dims if isinstance(size, int)}
    for given in peer.get_inputs():
        shape = [n if isinstance(n, int) else sizes.get(n, 2) for n in given.shape]
        floats = "float" in given.type
        data = rng.standard_normal(shape) if floats else rng.integers(0, 20, shape)
        feeds[given.name] = data.astype("f4" if floats else "i8" if "64" in given.type else "i4")
    found, errors = session.run(feeds), list[float]()
    for output, result in zip(peer.get_outputs(), peer.run(None, feeds), strict=True):
        wanted = np.asarray(result).astype(np.float64)
        most = max(float(np.abs(wanted).max()), 1e-9)
        errors.append(float(np.abs(found[output.name].astype(np.float64) - wanted).max()) / most)
    return float(np.max(errors))
