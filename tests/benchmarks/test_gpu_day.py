"""The benchmark of GPUs does what it can of its rows, whatever becomes of some; without a GPU."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from benchmarks.gpu import needs, onnxruntime_peer, operators, torch_peer, xla_peer
from benchmarks.gpu.__main__ import main
from benchmarks.gpu.cases import cases
from benchmarks.gpu.clock import MissingPeerError
from benchmarks.gpu.day import CHECK, TIMES, Day, check_operators, run
from benchmarks.gpu.entries import BATCHES, ITEMS, TOLERANCES, Entry, build, entries, prepare
from benchmarks.gpu.kernels import artifact
from benchmarks.gpu.page import missing_most, page
from benchmarks.gpu.profiles import FILE as PROFILES
from benchmarks.gpu.profiles import read
from benchmarks.gpu.programs import DETAILS, Programs
from benchmarks.gpu.results import FAULTS, FILE, Results, Row
from benchmarks.gpu.turns import Failed, Opened, Task, Turns
from benchmarks.gpu.weights import grown
from modelcc.artifact.file import read_artifact
from modelcc.driver import compile_model
from modelcc.report.in_artifact import report_in
from modelcc.runtime.errors import LoadError
from tests.benchmarks import gpu_engines
from tests.machines import chosen_options


def day(folder: Path, how: str = "", seconds: float = 600.0, **more: Any) -> Results:
    """All small kernels, by the stand-in."""
    for case in cases("small"):
        artifact(folder, case).touch()
    end = perf_counter() + seconds
    given = Day(folder, how, "cuda", end, "small", limit=30.0, operators=False, **more)
    results = Results(folder)
    turns = run(given, results, gpu_engines.serve)
    (folder / "page.md").write_text(page(results, "a stand-in", turns.missing))
    return results


def test_what_fails_costs_its_own_row_and_the_next_call_goes_on(tmp_path: Path) -> None:
    rows = day(tmp_path).rows
    faults = {name.split()[0]: row.fault for name, row in rows.items() if row.section == "kernel"}
    assert faults == {
        "product": "the process ended",
        "attention": faults["attention"],
        "decode": "LaunchError: the GPU did not do its work",
        "softmax": "WRONG",
        "layer": "",
        "gelu": "",
        "residual": "",
    }
    assert faults["attention"].startswith("no answer in")
    (norm,) = (row for row in rows.values() if row.name.startswith("layer"))
    assert norm.seconds["modelcc"] == 2.0 and norm.ratio == 1.5
    asked = (tmp_path / gpu_engines.ASKED).read_text().splitlines()
    assert Results(tmp_path).rows == rows
    assert (
        "== kernel decode 1x64x16 f16 by modelcc\nline 7\nlost\n" in (tmp_path / FAULTS).read_text()
    )

    later = day(tmp_path, "well")
    again = (tmp_path / gpu_engines.ASKED).read_text().splitlines()[len(asked) :]
    assert not any(norm.name in line for line in again), "it was done"
    kernels = later.of("kernel")
    assert not any(row.fault for row in kernels) and all(row.seconds for row in kernels)
    counts = Counter(line.split()[1] for line in again if line.startswith("open"))
    assert (
        counts["cublas"] == 1 and "cublas: cuBLAS is not here" in (tmp_path / "page.md").read_text()
    )
    (product,) = (row for row in kernels if row.name.startswith("product"))
    assert "cublas" not in product.seconds and product.refused["cublas"] == "cuBLAS is not here"
    attention = next(row for row in kernels if row.name.startswith("attention"))
    assert attention.refused["flash"] == "the process ended" and "modelcc" in attention.seconds


def test_models_are_checked_and_timed_in_turns(tmp_path: Path) -> None:
    """Two get ready at the same time; one that is not compiled is a fault."""
    for stem in ("a", "b"):
        (tmp_path / f"{stem}.seeded.onnx").write_bytes(b"no model")
    for entry in entries(tmp_path)[:3]:
        entry.artifact.touch()
    end, engines = perf_counter() + 600, ("modelcc", "torch")
    given = Day(tmp_path, "well", "cuda", end, places=2, operators=False, engines=engines)
    results = Results(tmp_path)
    run(given, results, gpu_engines.serve)
    found = {row.name: (bool(row.fault), row.ratio) for row in results.of("model")}
    assert found == {"a x32": (False, 1.5), "b x32": (False, 1.5), "a x1": (False, 1.5),
                     "b x1": (True, None)}  # fmt: skip


def test_kernels_of_what_is_right_are_profiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the phase that checks models are timed beside nobody."""
    for stem in ("a", "b_f16"):
        (tmp_path / f"{stem}.seeded.onnx").write_bytes(b"no model")
    for entry in entries(tmp_path):
        entry.artifact.touch()
    rows = day(tmp_path, profile=True, phases=(CHECK,), order=[("f16", 1), ("f32", 32)]).rows
    found = read(tmp_path / PROFILES)
    wanted = [name for name, row in rows.items() if row.section in ("kernel", "model")]
    assert list(found) == [name for name in wanted if not rows[name].fault]
    layers = ["layer norm 8x96 f32", "gelu 64x40x96 f32", "residual 64x40x96 f32"]
    assert list(found) == [*layers, "b_f16 x1", "a x32"]
    assert rows["layer norm 8x96 f32"].seconds and not rows["a x32"].seconds
    said = capsys.readouterr().out
    assert "a x32: call 50.0 us, kernels 40.0 us, roof 10.0 us\n" in said
    later = day(tmp_path, "well", phases=(TIMES,), engines=("modelcc", "torch")).rows
    assert later["a x32"].ratio == later["a x1"].ratio == 1.5


def test_kernels_and_libraries_are_chosen_by_words(tmp_path: Path) -> None:
    """None for no word; models are done all the same."""
    (tmp_path / "a.seeded.onnx").write_bytes(b"no model")
    (one,) = entries(tmp_path, [("f32", 1)])
    one.artifact.touch()
    rows = day(tmp_path, "well", kernels=[], engines=("modelcc",), order=[("f32", 1)]).rows
    assert [row.name for row in rows.values() if row.section in ("kernel", "model")] == ["a x1"]
    rows = day(tmp_path, "well", kernels=["norm"], libraries=["inductor"], order=[]).rows
    (norm,) = (row for row in rows.values() if row.section == "kernel")
    assert norm.name.startswith("layer norm") and set(norm.seconds) == {"modelcc", "inductor"}


def test_where_nothing_is_right_nothing_else_is_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No time is spent on what cannot tell anything."""
    (tmp_path / "a.seeded.onnx").write_bytes(b"no model")
    for entry in entries(tmp_path):
        entry.artifact.touch()
    rows = day(tmp_path, "lost").rows
    assert len(rows) == len(list(cases("small"))) and all(row.fault for row in rows.values())
    assert "nothing else is tried" in capsys.readouterr().out


def test_ops_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults are tried again, what is right is not, and the samples left over follow."""
    monkeypatch.setattr(operators, "names", lambda: iter(["a-0", "decode-0", "b-0", "attention-0"]))

    asked: list[str] = []

    class Some(Turns):
        """It answers so many, and of decode what it is to."""

        def __init__(self, count: int, decode: Opened | Failed) -> None:
            super().__init__(gpu_engines.serve, (), 1.0)
            self.count, self.decode = count, decode

        def each(
            self, tasks: Sequence[Task], engine: str, places: int, limit: float, end: float
        ) -> Iterator[tuple[Task, Opened | Failed]]:
            for task in tasks[: self.count]:
                asked.append(task.name)
                right = Opened(0.0, {"device": 1.0})
                yield task, self.decode if task.name == "decode-0" else right

    given = Day(tmp_path, "", "cuda", perf_counter() + 600, phases=(CHECK,))
    check_operators(given, Some(3, Failed("it crashed")), Results(tmp_path))
    first = Results(tmp_path).rows
    assert first["decode-0"].fault == "it crashed"
    assert dict(first["operators"].notes) == {
        "right": 2, "on the device": 2, "faults": 1, "come to": 3, "of": 4
    }  # fmt: skip
    check_operators(given, Some(9, Opened(0.0, {"device": 0.0})), Results(tmp_path))
    later = Results(tmp_path).rows
    assert not later["decode-0"].fault
    assert dict(later["operators"].notes) == {
        "right": 4, "on the device": 3, "faults": 0, "come to": 4, "of": 4
    }  # fmt: skip
    assert asked == ["a-0", "decode-0", "b-0", "decode-0", "attention-0"]


def test_nothing_begins_when_the_seconds_are_over(tmp_path: Path) -> None:
    results = day(tmp_path, "well", 0.0)
    assert not results.rows
    assert "| open |" in (tmp_path / "page.md").read_text()


def test_a_hang_at_the_end_is_no_fault(tmp_path: Path) -> None:
    """Only what a row's own limit has ended is one."""
    rows = day(tmp_path, seconds=3.0).rows
    assert not any(row.name.startswith("attention") for row in rows.values())


def test_many_questions_wait_for_nobody(tmp_path: Path) -> None:
    """A process that hangs, with more to do than a pipe holds, costs its own limit."""
    turns = Turns(gpu_engines.serve, (tmp_path, "", "cuda"), 30.0)
    tasks = [Task("operator", f"attention {'x' * 1000} {number}") for number in range(2000)]
    begin = perf_counter()
    assert not list(turns.each(tasks, "modelcc", 1, 30.0, perf_counter() + 3.0))
    assert perf_counter() - begin < 30
    well = Turns(gpu_engines.serve, (tmp_path, "well", "cuda"), 300.0)
    found = list(well.each(tasks[:30], "modelcc", 2, 300.0, perf_counter() + 300.0))
    assert sorted(task.name for task, _ in found) == sorted(task.name for task in tasks[:30])
    turns.close()
    well.close()


CHECKER = """#!/bin/sh
echo "$@" >> {calls}
echo "========= ERROR SUMMARY: $2"
test $2 = memcheck || exit 9
"""


def test_the_profiler_looks_into_what_misses_its_bar_most(tmp_path: Path) -> None:
    results = Results(tmp_path)
    for name, own in (("softmax 8x8 f16", 2e-5), ("product 4096x4096x4096 bf16", 4e-5)):
        row = Row("kernel", name, error=0.0)
        results.add(row.with_times({"modelcc": own, "cublas": 1e-5}, {"TFLOP/s": 500.0}))
    fast = Row("kernel", "softmax 9x9 f16", error=0.0)
    results.add(fast.with_times({"modelcc": 1e-5, "eager": 2e-5}, {}))
    found = missing_most(results)
    assert found == ["softmax 8x8 f16", "product 4096x4096x4096 bf16"], "500 of 600 TFLOP/s"
    profiler = tmp_path / "ncu"
    profiler.write_text('#!/bin/sh\necho "details of $@"\n')
    profiler.chmod(0o755)
    Programs(profiler=str(profiler)).profile(results, tmp_path, "cuda", perf_counter() + 9, found)
    text = (tmp_path / DETAILS).read_text()
    assert [line for line in text.splitlines() if line.startswith("==")] == [
        f"== {name}" for name in found
    ]
    assert "--once softmax 8x8 f16" in text and "--set detailed" in text


def test_checkers_run_the_smaller_kernels(tmp_path: Path) -> None:
    checker, calls = tmp_path / "checker", tmp_path / "calls"
    checker.write_text(CHECKER.format(calls=calls))
    checker.chmod(0o755)
    results, some = Results(tmp_path), [case.name for case in cases("medium")]
    given = results, tmp_path, "cuda", perf_counter() + 600, some
    Programs(sanitizer=str(checker)).sanitize(*given)
    assert results.rows["memcheck"].fault == ""
    assert results.rows["racecheck"].fault == "========= ERROR SUMMARY: racecheck"
    lines = calls.read_text().splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["--tool", tool, "--error-exitcode", "9"] for tool in ("memcheck", "racecheck")
    ]
    assert all(f"--once {name}" in lines[0] for name in some)
    Programs(sanitizer=str(checker)).sanitize(*given)
    assert len(calls.read_text().splitlines()) == 3, "the one with a fault is tried again"


def test_gpus_are_timed_between_events_with_caches_cleared() -> None:
    """On what stands for PyTorch."""
    done: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            done.append("event")

        def elapsed_time(self, other: Event) -> float:
            return 2.0

    def empty(size: int, dtype: object, device: str) -> object:
        return SimpleNamespace(zero_=lambda: done.append(f"clear {size} {device}"))

    cuda = SimpleNamespace(Event=Event, synchronize=lambda: done.append("synchronize"))
    torch = SimpleNamespace(empty=empty, uint8="uint8", cuda=cuda)
    assert torch_peer.event_seconds(torch, lambda: done.append("step")) == 2e-3
    assert done[:4] == [f"clear {64 << 20} cuda", "event", "step", "event"]
    assert done.count("step") == torch_peer.RUNS + 3 and done[-1] == "synchronize"


def test_the_page_has_each_bar(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.add(Row("machine", "copy", notes={"GB/s": 3000.0}))
    taken = {"modelcc": 2e-4, "cublas": 1.9e-4, "xla": 1e-5}
    row = Row("kernel", "product 4096x4096x4096 bf16", error=1e-3)
    results.add(row.with_times(taken, {"TFLOP/s": 690.0, "GB/s": 500.0}))
    row = Row("kernel", "softmax 16384x4096 f16", error=1e-3)
    results.add(row.with_times({"modelcc": 1e-4}, {"GB/s": 2400.0}))
    row = Row("model", "resnet50 x1", error=1e-3)
    results.add(row.with_times({"modelcc": 2.0, "torch": 3.0, "xla": 2.6}, {}))
    results.add(Row("model", "b", fault="WRONG"))
    text = page(results, "an H100", {"tensorrt": "not there"})
    assert "part of cuBLAS's rate | 0.85 | 0.95 | 1.12 | met |" in text
    assert "TFLOP/s | 600 | 690 | 1.15 | met |" in text
    assert "4096 f16: part of a copy's bandwidth | 0.85 | 0.8 | 0.94 | **not met** |" in text
    assert "1 of 2 models: best other / modelcc, geometric mean | 1.2 | 1.3 | 1.08 | met |" in text
    assert "heads of 128: part of the best library's rate | 0.9 | | | open |" in text
    assert "- tensorrt: not there" in text and "- b: WRONG" in text


def test_what_is_missing_is_said_in_a_line() -> None:
    there = {"numpy": "2.5.2", "llvmlite": "0.49.0", "onnx": "1.23.1", "click": "8.1.7"}

    def found(name: str) -> str:
        if name not in there:
            raise PackageNotFoundError(name)
        return there[name]

    line, whole = needs.state(["numpy>=2.0", "llvmlite==0.50.*", "rich>=13.7", "click>=8.1"], found)
    assert not whole and "lacking: llvmlite==0.50.* (0.49.0 is there), rich>=13.7 (missing)" in line
    assert needs.state(["numpy>=2.0", "onnx>=1.22"], found)[1]
    assert needs.state(needs.requirements())[1], "this project's own"


KINDS = {"kernel", "model"}
HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
BODY = f"{HEAD} g (float[batch, 200] x) => (float[batch, 300] y)"


NODES = "p = MatMul(x, w) h = Cast<to = 1>(p) s = Add(h, m) y = Softmax<axis = 1>(s)"


def tiny(folder: Path) -> Path:
    """A model with a named batch, a mask that is no weight, and weights."""
    model = parser.parse_model(f"{BODY} {{ {NODES} }}")
    rng = np.random.default_rng(1)
    w = rng.normal(0, 0.1, (200, 300)).astype("f")
    m = np.where(np.arange(300) % 2, np.finfo("f").min, 0).astype("f").reshape(1, 300)
    model.graph.initializer.extend(
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(m, "m")]
    )
    path = folder / "tiny.onnx"
    onnx.save(model, str(path))
    return path


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with that model in all types."""
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("gpu")
    prepare(tiny(folder), folder)
    return folder


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_models_are_compared_with_what_onnxruntime_made(
    prepared: Path, dtype: str, batch: int
) -> None:
    """Every item of a batch; a batch of the first item alone is wrong."""
    (entry,) = entries(prepared, [(dtype, batch)])
    dims = tuple(entry.dims(entry.read()).items())
    compiled = compile_model(grown(entry.read()), chosen_options(dims=dims))
    results = compiled.target.load(compiled.artifact, 1).run(entry.feeds())
    assert results["y"].shape == (batch, 300)
    assert entry.error(results) <= TOLERANCES[dtype]
    if batch >= ITEMS:
        assert entry.error({"y": results["y"][[0] * batch]}) > TOLERANCES[dtype]


def test_models_of_f32_are_compiled_as_three_products_if_that_is_asked_for(
    prepared: Path, tmp_path: Path
) -> None:
    (entry,) = entries(prepared, [("tf32x3", 1)])
    assert (entry.name, entry.artifact.name) == ("tiny tf32x3 x1", "tiny_tf32x3_x1.mcc")
    assert (entry.dtype, entry.model) == ("f32", "tiny")
    shutil.copytree(prepared, tmp_path / "there")
    build(replace(entry, folder=tmp_path / "there"), "cuda:sm_80")
    report = report_in(read_artifact(tmp_path / "there" / entry.artifact.name))
    assert report is not None
    assert any("three products" in note for note in report.notes)


def test_other_engines_compute_the_same_model(prepared: Path) -> None:
    entry = Entry(prepared, "tiny", 32)
    halves = Entry(prepared, "tiny_f16", 1)
    for one in (entry, halves):
        error, measure = onnxruntime_peer.model("onnxruntime", one, "cpu")
        assert error < TOLERANCES[one.dtype] and measure() > 0
    with pytest.raises(MissingPeerError, match="TensorrtExecutionProvider"):
        onnxruntime_peer.model("tensorrt", entry, "cpu")
    pytest.importorskip("jax")
    for stem in ("tiny", "tiny_f16", "tiny_bf16"):
        entry = Entry(prepared, stem, 32)
        onnx.checker.check_model(grown(entry.read()), full_check=True)
        error, measure = xla_peer.model(entry, "cpu")
        assert error < TOLERANCES[entry.dtype] and measure() > 0


def test_models_without_a_named_batch_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "fixed.onnx"
    model = parser.parse_model(f"{HEAD} g (float[1, 2] x) => (float[1, 2] y) {{ y = Relu(x) }}")
    onnx.save(model, str(path))
    with pytest.raises(ValueError, match="no named batch"):
        prepare(path, tmp_path)


def test_the_whole_command_on_a_processors_driver(tmp_path: Path) -> None:
    """Prepared, compiled by other processes, checked and timed."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("pyopencl")
    opencl = pytest.importorskip("tests.opencl_kernels")
    try:
        opencl.first_device()
    except LoadError as error:
        pytest.skip(str(error))
    assert operators.checked("Softmax-0", "opencl") == Opened(ANY, {"device": 1.0})
    folder, out = tmp_path / "gpu", tmp_path / "out"
    here = [str(folder), "--target", "opencl", "--device", "opencl", "--size", "small"]
    assert main([*here, "--prepare", "--models", str(tiny(tmp_path))]) == 0
    assert main([*here, "--once", "softmax 64x96 f16", "--once", "layer norm 8x96 f32"]) == 0
    for other in folder.glob("*f16.seeded.onnx"):
        other.unlink()
    some = ["--no-operators", "--places", "1", "--workers", "1", "--engines", "modelcc"]
    some += ["--profile", "--order", "f32x1", "f32x32"]
    assert main([*here, *some, "--seconds", "3600", "--limit", "1800", "--out", str(out)]) == 0
    rows = Results(out).rows
    assert {row.section for row in rows.values()} >= KINDS
    assert all("modelcc" in row.seconds for row in rows.values() if row.section != "machine")
    assert len([row for row in rows.values() if row.section == "model"]) == len(BATCHES)
    assert (out / FILE).exists() and "tiny x32" in (out / "results.md").read_text()
    profiles = read(out / PROFILES)
    assert set(profiles) == {name for name, row in rows.items() if row.section in KINDS}
    for profile in profiles.values():
        assert profile.call and profile.seconds > 0 and profile.roof > 0
        assert all(kernel.source and kernel.bytes for kernel in profile.kernels)
