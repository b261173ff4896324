"""A few of the generated models by Vela; ``python -m conformance.ethos_u`` has all."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("tflite")
if importlib.util.find_spec("ethosu") is None:
    pytest.skip("ethos-u-vela is not installed", allow_module_level=True)

from conformance.ethos_u import compared
from conformance.ethos_u_models import convolution, pool

CASES = {
    "taken": convolution(s=(4, 4), same=False),
    "strides": convolution(True, s=(4, 4), same=False),
    "window": pool("AVERAGE_POOL_2D", k=(9, 8), s=(1, 1), same=True),
    "weights": convolution(channels=(512, 8), k=(12, 12), fill=127),
}


@pytest.mark.parametrize("name", CASES)
def test_verdicts_are_those_of_vela(name: str, tmp_path: Path) -> None:
    count, differing = compared(CASES[name], name, "ethos-u55", tmp_path)
    assert (count, differing) == (1, ())
