"""A whole model for the target cuda, on what stands for the driver: its kernels are interpreted."""

from __future__ import annotations

import gc
import re
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from cuda_driver import FakeDriver
from device_models import Prepared, checked, interpreted, prepared
from machines import chosen_options
from rich.console import Console
from small_models import computed_gather, mlp

import modelcc
from modelcc.artifact.file import read_artifact
from modelcc.cli.main import cli
from modelcc.driver import compile_model
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.loop_parser import parse_functions
from modelcc.ir.types import F16, TensorType
from modelcc.ops.matmul import MatMul
from modelcc.options import Options
from modelcc.report.in_artifact import report_in
from modelcc.report.page import report_page
from modelcc.report.report import report_from_json
from modelcc.report.tables import report_tables
from modelcc.runtime.devices.device_program import DeviceCode
from modelcc.runtime.errors import LoadError, RunError
from modelcc.runtime.session import Session
from modelcc.runtime.streams.cuda_code import ARCHITECTURES
from modelcc.runtime.values import ValueSession
from modelcc.targets.c.names import symbol
from modelcc.targets.cuda.chips import CHIPS
from modelcc.targets.cuda.tools import assemble, find_tool
from tests.test_states import decoder

cuda_device = pytest.importorskip("modelcc.runtime.streams.cuda_device")


def compiled(model: Path, form: str, output: Path) -> Path:
    """What the command writes."""
    arguments = ["compile", str(model), "--target", "cuda:sm_80", "-o", str(output)]
    cli(arguments + (["--emit", form] if form else []), standalone_mode=False)
    return output


@pytest.mark.skipif(find_tool("ptxas") is None, reason="there is no ptxas here")
def test_the_report_tells_what_kernels_take(tmp_path: Path) -> None:
    model = tmp_path / "mlp.onnx"
    model.write_bytes(mlp(64).SerializeToString())
    artifact = read_artifact(compiled(model, "", tmp_path / "mlp.mcc"))
    uses = assemble(compiled(model, "ptx", tmp_path / "mlp.ptx").read_text(), CHIPS["sm_80"]).uses
    report = report_in(artifact)
    assert report is not None and report.device is not None
    assert report_from_json(report.to_json()) == report and report.device.machine == "A100"
    found = {symbol(u.function): (u.registers, u.local) for u in report.device.uses}
    assert found == {name: (u.registers, u.stack) for name, u in uses.items()}
    launches = [row for row in report.kernels if row.roof is not None]
    assert len(launches) == len(uses)
    for row in launches:
        assert row.roof == max(row.flops / 19.5e12, row.bytes / 2039e9)
    page, shown = report_page(report), StringIO()
    Console(width=200, file=shown).print(report_tables(report))
    for name, (registers, _) in found.items():
        assert re.search(rf"{name}\b.*\b{registers}\b", shown.getvalue())
        assert re.search(rf"<td>{name}</td>.*<td class='n'>{registers}</td>", page)


@pytest.mark.parametrize(
    ("made", "target", "message"),
    [
        ("cuda:sm_80", "opencl:1", "compiled for cuda, not for opencl: load it without a target"),
        ("native", "cuda", "compiled for processors, not for cuda: .* --target cuda"),
    ],
)
def test_a_model_is_not_loaded_as_another_target_would(
    tmp_path: Path, made: str, target: str, message: str
) -> None:
    artifact = tmp_path / "mlp.mcc"
    compile_model(mlp(2), chosen_options(target=made)).save(artifact)
    with pytest.raises(LoadError, match=message):
        modelcc.load(artifact, target=target)


def test_the_runtime_names_the_architectures_that_code_is_made_for() -> None:
    assert tuple(CHIPS) == ARCHITECTURES


def test_code_for_no_gpu_in_particular_fits_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """An A100 has groups that share more than a desktop's GPU gives them."""
    monkeypatch.setattr("modelcc.targets.cuda.target.chip_here", lambda index: None)
    build = GraphBuilder("product")
    given = (build.input(name, TensorType((4096, 4096), F16)) for name in "ab")
    graph = build.build([build.emit(MatMul(), *given, name="y")])
    shared: list[int] = []
    for target in ("cuda", "cuda:sm_80"):
        report = report_in(compile_model(graph, Options(target=target)).artifact)
        assert report is not None and report.device is not None
        shared.append(max(use.shared for use in report.device.uses))
    assert shared[0] <= 99 << 10 < shared[1]


@pytest.mark.parametrize("batch", [2, "n"])
def test_a_model_runs_by_its_steps(tmp_path: Path, batch: int | str) -> None:
    model = tmp_path / "mlp.onnx"
    model.write_bytes(mlp(batch).SerializeToString())
    functions = parse_functions(compiled(model, "loop", tmp_path / "mlp.loop").read_text("utf-8"))
    kernels = {symbol(f.name): interpreted(f) for f in functions}
    artifact = read_artifact(compiled(model, "", tmp_path / "mlp.mcc"))
    driver = FakeDriver(kernels)
    session = Session(artifact, 1, DeviceCode(artifact, cuda_device.CudaDevice(driver, 0)))
    x = np.random.default_rng(3).standard_normal((2, 6)).astype(np.float32)
    weights = np.random.default_rng(7)
    w0, b0, w1 = (weights.standard_normal(s).astype(np.float32) for s in ((6, 20), (20,), (20, 3)))
    wanted = np.maximum(x @ w0 + b0, 0) @ w1
    for _ in range(3):
        np.testing.assert_allclose(session.run({"x": x})["y"], wanted, rtol=1e-4, atol=1e-5)
    assert driver.calls.count("cuLaunchKernel") == len(functions), "recorded once"
    assert driver.calls.count("cuGraphLaunch") == 3
    taken = session.profile({"x": x}, len(functions) + 2, runs=1)
    np.testing.assert_allclose(taken, 1.0)  # what each command takes by the GPU's clock
    if batch == "n":
        for _ in range(2):
            y = session.run({"x": np.tile(x, (20, 1))})["y"]
            np.testing.assert_allclose(y, np.tile(wanted, (20, 1)), rtol=1e-4, atol=1e-5)
        assert driver.calls.count("cuStreamBeginCapture") == 2, "another size, another recording"
        np.testing.assert_allclose(session.run({"x": x})["y"], wanted, rtol=1e-4, atol=1e-5)
    session.limit(0.01)
    np.testing.assert_allclose(session.run({"x": x})["y"], wanted, rtol=1e-4, atol=1e-5)
    del session
    gc.collect()
    assert not (driver.given or driver.pinned or driver.executables or driver.graphs)
    assert not (driver.streams or driver.modules or driver.events or driver.retained[0])


def test_an_index_out_of_range_ends_a_recorded_run(tmp_path: Path) -> None:
    """Found after the recording, named as elsewhere; the next call is fine."""
    model = tmp_path / "rows.onnx"
    model.write_bytes(computed_gather().SerializeToString())
    functions = parse_functions(compiled(model, "loop", tmp_path / "rows.loop").read_text("utf-8"))
    kernels = {symbol(f.name): checked(f) for f in functions}
    artifact = read_artifact(compiled(model, "", tmp_path / "rows.mcc"))
    driver = FakeDriver(kernels)
    session = Session(artifact, 1, DeviceCode(artifact, cuda_device.CudaDevice(driver, 0)))
    table = np.random.default_rng(3).standard_normal((40, 3)).astype(np.float32)
    for _ in range(2):
        y = session.run({"x": np.array([3, 0], np.float32)})["y"]
        np.testing.assert_array_equal(y, table[[4, 1]])
        with pytest.raises(RunError, match="rows"):
            session.run({"x": np.array([3, 70], np.float32)})
    assert driver.calls.count("cuLaunchKernel") == len(functions)


def test_states_stay_in_the_gpus_memory() -> None:
    """Recorded in two parts: what changes states comes after all checks."""
    net, driver = on_driver(prepared(decoder(8)))
    moves = ("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync")
    wanted, counts = np.zeros((1, 8, 16), np.float32), list[list[int]]()
    for place in (3, 7, 9, 0, 5):
        row = np.full((1, 1, 16), place + 1, np.float32)
        before = [driver.calls.count(name) for name in moves]
        if place > 7:
            with pytest.raises(RunError, match="start 9 is outside"):
                net(row, np.array([place]))
            continue
        wanted[:, place] = row[:, 0]
        np.testing.assert_allclose(net(row, np.array([place])), wanted.sum(2, keepdims=True))
        counts.append([driver.calls.count(n) - b for n, b in zip(moves, before, strict=True)])
    assert counts == [[4, 2], [2, 2], [2, 2], [2, 2]], "ones, the cache; row, place; faults, sums"
    assert driver.calls.count("cuStreamBeginCapture") == 2
    np.testing.assert_array_equal(net.states.now["cache"], wanted)
    net.states.reset({"cache": np.ones((1, 8, 16), np.float32)})
    assert net(np.zeros((1, 1, 16), np.float32), np.array([0])).sum() == 7 * 16
    del net
    gc.collect()
    assert not driver.given


def on_driver(model: Prepared, devices: int = 1) -> tuple[ValueSession, FakeDriver]:
    """A session on what stands for the driver."""
    artifact, kernels = model
    driver = FakeDriver(kernels, devices=devices)
    code = DeviceCode(artifact, cuda_device.CudaDevice(driver, 0))
    return ValueSession(artifact, 1, code), driver


def test_a_model_that_does_not_fit_says_what_is_missing(tmp_path: Path) -> None:
    model = tmp_path / "mlp.onnx"
    model.write_bytes(mlp(2).SerializeToString())
    artifact = read_artifact(compiled(model, "", tmp_path / "mlp.mcc"))
    driver = FakeDriver({}, memory=1200)
    session = Session(artifact, 1, DeviceCode(artifact, cuda_device.CudaDevice(driver, 0)))
    with pytest.raises(RunError, match=r"has 1,200, of which \d+ are free: [\d,]+ are missing"):
        session.run({"x": np.zeros((2, 6), np.float32)})
    assert driver.trimmed
