"""Models that a process of its own compiles."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import mlp

import modelcc
from modelcc.compiling_process import CompilingProcess, CompilingProcesses, ProcessError
from modelcc.compiling_server import ModelRequest
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.types import F32, TensorType
from modelcc.ops.elementwise import Neg
from tests.machines import chosen_options

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


def negated(extent: int = 4) -> Graph:
    build = GraphBuilder("negated")
    return build.build([build.emit(Neg(), build.input("x", TensorType((extent,), F32)))])


def request(folder: Path, graph: Graph | None = None, tells: bool = False) -> ModelRequest:
    options = chosen_options(threads=1)
    return ModelRequest(graph or negated(), options, None, 1, tells, folder / "net.mcc")


def process_of(processes: CompilingProcesses) -> subprocess.Popen[bytes]:
    (process,) = processes._idle  # pyright: ignore[reportPrivateUsage]
    return process._process  # pyright: ignore[reportPrivateUsage]


PATIENT = """
import sys
sys.path[:] = sys.argv[1:]
from modelcc import compiling_server
compiling_server.PATIENCE = 1e6
compiling_server.serve()
"""
"""A process that does not end by itself while nobody asks it, however busy the machine."""


@pytest.fixture(name="processes")
def _processes(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("modelcc.compiling_process._SERVER", PATIENT)
    made = CompilingProcesses()
    yield made
    made.end()


def test_a_process_compiles_more_than_one_model(
    processes: CompilingProcesses, tmp_path: Path
) -> None:
    processes.times(request(tmp_path), None)
    first = process_of(processes)
    with pytest.raises(ModelError, match="keep"):
        wrong = chosen_options(threads=1, keep=("nothing",))
        asked = ModelRequest(negated(), wrong, None, 1, False, tmp_path / "net.mcc")
        processes.times(asked, None)
    processes.times(request(tmp_path, negated(7)), None)
    assert process_of(processes) is first
    assert modelcc.load(tmp_path / "net.mcc").inputs[0].shape == (7,)
    processes.end()
    assert first.returncode == -signal.SIGKILL  # and has been waited for


def test_one_that_has_ended_is_replaced(processes: CompilingProcesses, tmp_path: Path) -> None:
    processes.times(request(tmp_path), None)
    first = process_of(processes)
    os.kill(first.pid, signal.SIGKILL)
    processes.times(request(tmp_path), None)
    assert process_of(processes) is not first and first.returncode == -signal.SIGKILL


def test_one_that_nobody_asks_ends(processes: CompilingProcesses, tmp_path: Path) -> None:
    program = "import modelcc.compiling_server as s; s.PATIENCE = 0.1; s.serve()"
    command, pipe = [sys.executable, "-c", program], subprocess.PIPE
    own = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=own) as process:
        assert process.wait(300) == 0


def test_what_interrupts_the_caller_ends_it(tmp_path: Path) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    process = CompilingProcess()
    with pytest.raises(KeyboardInterrupt):
        process.answer(request(tmp_path, tells=True), interrupted)
    assert process._process.returncode == -signal.SIGKILL  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("interpreter", ["", "/nonexistent/python", shutil.which("true")])
def test_where_there_is_no_other_process_this_one_compiles_or_says_so(
    interpreter: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graph = negated()
    monkeypatch.setattr(sys, "executable", interpreter)
    monkeypatch.setattr("modelcc.compiling_process._processes", CompilingProcesses)
    with pytest.raises(ProcessError, match="without 'separate'"):
        modelcc.compile(graph, threads=1, cache=None, separate=True)
    net = modelcc.compile(graph, threads=1, cache=None, separate=None)
    assert "this process compiles" in caplog.text
    assert net(np.ones(4, np.float32)).tolist() == [-1.0] * 4


ORPHANED = """
import os, sys, modelcc.compiling_process as parent
parent._SERVER = sys.argv[1]
parent.CompilingProcess()
print("started", flush=True)
os.kill(os.getpid(), 9)
"""


def test_it_ends_with_its_caller() -> None:
    """Its standard error is its caller's, which is read until nobody has it any more."""
    own = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", ORPHANED, PATIENT]
    run = subprocess.run(command, capture_output=True, text=True, env=own, timeout=300, check=False)
    assert (run.returncode, run.stdout) == (-signal.SIGKILL, "started\n")


@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning")  # of JAX, where it is loaded
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python 3.12 with threads
def test_a_fork_starts_its_own(processes: CompilingProcesses, tmp_path: Path) -> None:
    processes.times(request(tmp_path), None)
    pid = os.fork()
    if not pid:
        try:
            (tmp_path / "forked").mkdir()
            processes.times(request(tmp_path / "forked", negated(9)), None)
            os._exit(0 if len(modelcc.load(tmp_path / "forked/net.mcc").inputs) == 1 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    first = process_of(processes)
    processes.times(request(tmp_path, negated(8)), None)
    assert process_of(processes) is first
