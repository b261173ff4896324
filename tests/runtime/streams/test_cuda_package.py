"""NVIDIA's own package between devices and what stands for the driver's library, so that arguments
and results are converted as they will be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from modelcc.targets.cuda.tools import find_tool

LIBRARY = Path(__file__).with_name("libcuda_stand_in.c")
CC = shutil.which("cc")
HAS_PACKAGE = find_spec("cuda") is not None and find_spec("cuda.bindings") is not None

PROGRAM = """
import modelcc, onnx.parser
square = "bfloat16[2048, 2048]"
text = f'<ir_version: 11, opset_import: ["" : 22]> g ({square} a, {square} b) => ({square} y)'
model = onnx.parser.parse_model(text + " { p = MatMul(a, b) y = Relu(p) }")
net = modelcc.compile(model, target="cuda:sm_90a")
feeds = net.random_inputs()
for _ in range(3):
    y = net.run(feeds)["y"]
assert y.shape == (2048, 2048)
device = net.run(feeds, out="device")["y"]
assert device.numpy().shape == y.shape
times = [kernel.seconds for kernel in net.report(profile=feeds, runs=2).kernels]
assert len(times) == 4 and all(abs(seconds - 1e-5) < 1e-9 for seconds in times), times
"""

CHECKED = """
import modelcc, numpy as np, onnx.parser
text = '<ir_version: 11, opset_import: ["" : 22]> g (int64[2] i) => (int64[2] y)'
model = onnx.parser.parse_model(text + " <int64[5] w = {3, 0, 4, 1, 2}> { y = Gather(w, i) }")
net = modelcc.compile(model, target="cuda:sm_90a")
y = net(np.arange(2), out="device")
for _ in range(8):
    y = net(y, out="device")
assert y.numpy().shape == (2,)
"""

AHEAD = """
import sys, modelcc, onnx.parser
square = "float16[512, 512]"
text = f'<ir_version: 11, opset_import: ["" : 22]> g ({square} a, {square} b) => ({square} y)'
model = onnx.parser.parse_model(text + " { p = MatMul(a, b) s = Softmax(p) y = MatMul(s, b) }")
for on in (True, False):
    net = modelcc.compile(model, target="cuda:sm_90a")
    net.overlap(on)
    net.run(net.random_inputs())
    print("recorded", file=sys.stderr)
"""

REFUSED = """
from modelcc.runtime.streams.cuda_device import open_device
device = open_device(0)
memory = device.allocate(64)
device.copy(memory, 32, memory, 0, 64)
"""


def run(folder: Path, program: str) -> Sequence[str]:
    """What the library says while ``program`` runs."""
    assert CC is not None
    built = [CC, "-O1", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(LIBRARY)]
    subprocess.run([*built, "-ldl"], check=True)
    paths = {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    known = {**os.environ, **paths}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=known, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "refused" in done.stderr, done.stderr
    return done.stderr.splitlines()


@pytest.mark.skipif(CC is None, reason="there is no compiler of C")
@pytest.mark.skipif(not HAS_PACKAGE, reason="there is no cuda-bindings")
@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
def test_a_model_goes_through_the_package(tmp_path: Path) -> None:
    """Recorded, run again, left on the device, timed: a kernel that takes maps of tensors."""
    said = run(tmp_path, PROGRAM)
    assert not [line for line in said if "refused" in line]
    assert len([line for line in said if line.startswith("launched k0")]) >= 3
    assert len([line for line in said if line.startswith("map of")]) >= 2


@pytest.mark.skipif(CC is None, reason="there is no compiler of C")
@pytest.mark.skipif(not HAS_PACKAGE, reason="there is no cuda-bindings")
@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
def test_indices_are_checked_behind_calls(tmp_path: Path) -> None:
    """Whose notes have come when the next call asks for them."""
    said = run(tmp_path, CHECKED)
    assert not [line for line in said if "refused" in line]
    assert said.count("asked") >= 3


@pytest.mark.skipif(CC is None, reason="there is no compiler of C")
@pytest.mark.skipif(not HAS_PACKAGE, reason="there is no cuda-bindings")
@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
def test_kernels_behind_kernels_are_launched_ahead(tmp_path: Path) -> None:
    """All of a recording but its first one, unless that is switched off."""
    said = run(tmp_path, AHEAD)
    assert not [line for line in said if "refused" in line]
    kinds = [line.split(" ")[0] for line in said if "launched" in line or line == "recorded"]
    count = kinds.index("recorded")
    assert count >= 3
    first = ["launched", *["ahead:"] * (count - 1), "recorded"]
    assert kinds == [*first, *["launched"] * count, "recorded"]


@pytest.mark.skipif(CC is None, reason="there is no compiler of C")
@pytest.mark.skipif(not HAS_PACKAGE, reason="there is no cuda-bindings")
def test_what_the_library_refuses_is_told(tmp_path: Path) -> None:
    """That it says nothing means something."""
    said = run(tmp_path, REFUSED)
    assert "refused: DtoD" in said and any("did not take this call" in line for line in said)
