"""The replay on copies of this tree with planted changes, and on a model of two kernels."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper
from small_models import model

from benchmarks.replay.__main__ import jobs_of, main
from benchmarks.replay.cases import cases_of
from benchmarks.replay.compare import compare
from benchmarks.replay.records import Job, Kernel, Outcome, Setting, job_from, outcome_from, to_json
from benchmarks.replay.report import diffs, listed, verdict
from benchmarks.replay.run import Limits, outcomes_of
from benchmarks.replay.small import SMALL
from benchmarks.replay.worker import main as worker
from benchmarks.replay.worker import outcomes
from benchmarks.trees import ROOT, TreeError, sources_of

SETTING = Setting("native", "x86-64-v2", 1)
SETTINGS = (SETTING, replace(SETTING, target="c"))

Tree = Callable[..., Path]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``y = softmax(x @ w)``: nodes `fc` and `soft`."""
    weight = np.random.default_rng(0).standard_normal((48, 24)).astype(np.float32)
    nodes = (
        helper.make_node("MatMul", ["x", "w"], ["h"], "fc"),
        helper.make_node("Softmax", ["h"], ["y"], "soft", axis=1),
    )
    place = tmp_path_factory.mktemp("models") / "tiny.onnx"
    onnx.save(model(nodes, {"x": (5, 48)}, {"y": (5, 24)}, {"w": weight}), str(place))
    return place


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Copies of this tree, one text of a file replaced."""

    def make(name: str, file: str = "", old: str = "", new: str = "") -> Path:
        copy = tmp_path / name
        shutil.copytree(ROOT / "src/modelcc", copy / "src/modelcc")
        if file:
            place = copy / "src/modelcc" / file
            text = place.read_text()
            assert old in text, f"{file} has changed: plant something else"
            place.write_text(text.replace(old, new, 1))
        return copy

    return make


def made(path: Path, tree: Path) -> list[Outcome]:
    job = Job("", str(tree / "src"), "file", str(path), SETTINGS)
    return outcomes_of(job, Limits(1, 120))


@pytest.fixture(scope="module")
def here(path: Path) -> list[Outcome]:
    """What this tree makes of the model."""
    return made(path, ROOT)


def test_identical_trees_report_nothing(path: Path, here: list[Outcome], tree: Tree) -> None:
    found = compare(here, made(path, tree("same")))
    assert not found.differences and not found.neither
    assert found.kernels == 2 * len(SETTINGS)
    assert verdict(found) == "no kernel of 4 differs" and list(listed(found)) == []


def test_a_planted_change_is_listed_with_its_kernel(path: Path, tree: Tree, tmp_path: Path) -> None:
    other = tree("small_tiles", "targets/cpu/processors.py", "or arm else 16", "or arm else 8")
    records = tmp_path / "records.json"
    command = [str(ROOT), "--tree", str(other), "--folder", str(path.parent), "--models", "tiny"]
    command += ["--cpu", "x86-64-v2", "--threads", "1", "--jobs", "1"]
    found = CliRunner().invoke(main, [*command, "--diff", "tiny:fc", "--json", str(records)])
    assert found.exit_code == 1, found.output
    assert "changed k0_MatMul of fc: text" in found.output
    assert "[native/x86-64-v2/1 and 1 more]" in found.output
    assert "2 of 4 kernels differ" in found.output
    assert "Softmax" not in found.output
    assert "--- before tiny k0_MatMul" in found.output and "\n-  " in found.output
    trees = json.loads(records.read_text())
    kept = [[outcome_from(one) for one in trees[name]] for name in ("before", "now")]
    assert compare(*kept).tallies["tiny"].counts == {"same": 2, "changed": 2}


def test_the_exit_status_of_identical_trees_is_zero(path: Path) -> None:
    command = [str(ROOT), "--folder", str(path.parent), "--models", "tiny", "--jobs", "1"]
    command += ["--target", "native", "--cpu", "x86-64-v2", "--threads", "1"]
    found = CliRunner().invoke(main, command)
    assert found.exit_code == 0, found.output
    assert "no kernel of 2 differs" in found.output


def test_nothing_to_compare_is_an_error(path: Path, tree: Tree) -> None:
    broken = str(tree("broken", "driver.py", "import annotations", "import nothing"))
    command = [broken, "--tree", broken, "--folder", str(path.parent), "--models", "tiny"]
    found = CliRunner().invoke(main, [*command, "--jobs", "1"])
    assert found.exit_code == 2, found.output
    assert "compiles with neither tree" in found.output and "nothing to compare" in found.output


def test_renumbered_kernels_are_not_listed(path: Path, here: list[Outcome], tree: Tree) -> None:
    now = made(path, tree("other", "targets/cpu/schedule.py", 'f"k{len(self', 'f"k{7 + len(self'))
    names = [[kernel.name for kernel in found[0].kernels] for found in (here, now)]
    assert names == [["k0_MatMul", "k1_Softmax"], ["k7_MatMul", "k8_Softmax"]]
    assert not compare(here, now).differences


RAISES = 'def plan_rows(*_):\n    raise RuntimeError("planted")\n\n\ndef planned('


@pytest.mark.parametrize(
    ("file", "old", "new", "reason"),
    [
        ("targets/cpu/tiled.py", "import annotations", "import nothing", "SyntaxError"),
        ("targets/cpu/rows.py", "def plan_rows(", RAISES, "RuntimeError: planted"),
    ],
)
def test_a_tree_that_does_not_compile_a_model_is_told_of(
    path: Path, here: list[Outcome], tree: Tree, file: str, old: str, new: str, reason: str
) -> None:
    broken = made(path, tree("broken", file, old, new))
    for status, trees in {"fails": (here, broken), "compiles": (broken, here)}.items():
        found = compare(*trees)
        assert {one.status for one in found.differences} == {status}
        assert all(reason in one.details[0] for one in found.differences)
        assert len(found.differences) == len(SETTINGS) and found.kernels == 0
    both = compare(broken, broken)
    assert not both.differences and len(both.neither) == len(SETTINGS)
    assert reason in next(iter(listed(both)))


def test_a_worker_that_takes_too_long_is_ended(path: Path) -> None:
    job = Job("", str(ROOT / "src"), "file", str(path), SETTINGS)
    found = outcomes_of(job, Limits(1, 0.1))
    assert [one.failed for one in found] == ["not done within 0.1 s"] * len(SETTINGS)


def test_a_worker_refuses_the_modules_of_another_tree(tmp_path: Path) -> None:
    """So that no tree is compared with itself by mistake."""
    job = Job("", str(tmp_path / "src"), "small", "small_dense", SETTINGS)
    with pytest.raises(SystemExit, match="modelcc is that of"):
        worker(to_json(job))


def kernel(name: str, text: str, *nodes: str, launches: int = 1) -> Kernel:
    return Kernel(name, nodes, launches, text, 100)


def differences(before: Sequence[Kernel], now: Sequence[Kernel]) -> list[tuple[object, ...]]:
    old, new = (Outcome("m", "m", SETTING, tuple(kernels)) for kernels in (before, now))
    found = compare([old], [new]).differences
    return [(d.status, d.before and d.before.name, d.now and d.now.name) for d in found]


def test_kernels_are_known_by_text_and_nodes() -> None:
    before = [kernel("k0_A", "1", "a"), kernel("k1_B", "2", "b"), kernel("k2_C", "3", "c", "d")]
    moved = [kernel("k0_B", "2", "b"), kernel("k1_C", "3", "c", "d"), kernel("k2_A", "1", "a")]
    assert differences(before, moved) == []
    fused = [kernel("k0_A", "1", "a"), kernel("k1_B_C", "4", "b", "c", "d")]
    assert differences(before, fused) == [
        ("changed", "k2_C", "k1_B_C"),
        ("removed", "k1_B", None),
    ]
    assert differences(fused, before) == [
        ("changed", "k1_B_C", "k2_C"),
        ("added", None, "k1_B"),
    ]
    more = [kernel("k0_A", "1", "a", launches=2), *before[1:]]
    assert differences(before, more) == [("changed", "k0_A", "k0_A")]


def test_diffs_leave_out_numbers_where_more_differs(tmp_path: Path) -> None:
    lines = ("%v.1 = load", "%v.2 = add %v.1", "%v.3 = mul %v.2")
    texts = {
        "1": lines,
        "2": ("%v.1 = load", "%v.2 = freeze %v.1", "%v.3 = add %v.2", "%v.4 = mul %v.3"),
        "3": (*lines[:2], "%v.3 = mul %v.1"),
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(zlib.compress("\n".join(text).encode()))

    def changed(now: str) -> list[str]:
        trees = ([Outcome("m", "m", SETTING, (kernel("k", t, "a"),))] for t in ("1", now))
        found = list(diffs(compare(*trees), "m:a", tmp_path))[2:]
        return [line for line in found if line[0] in "+-"]

    assert changed("2") == ["+%v = freeze %v"]
    assert changed("3") == ["-%v.3 = mul %v.2", "+%v.3 = mul %v.1"]


def test_what_one_tree_does_not_tell_is_no_difference() -> None:
    known = replace(kernel("k0_A", "1", "a"), flops=3, plan="rows")
    assert differences([kernel("k0_A", "1", "a")], [known]) == []
    assert differences([replace(known, plan="tiled")], [known]) == [("changed", "k0_A", "k0_A")]


def test_memory_and_cases_of_one_tree_are_told_of() -> None:
    one = Outcome("m", "m", SETTING, (kernel("k0_A", "1", "a"),), arena="64")
    (moved,) = compare([one], [replace(one, arena="128")]).differences
    assert (moved.status, moved.details) == ("memory", ("arena 64 → 128",))
    (came,) = compare([], [one]).differences
    assert (came.status, came.details) == ("came", ("1 kernels",))
    assert compare([], [one]).tallies["m"].counts == {"added": 1}
    assert not compare([], [replace(one, kernels=())]).differences


@pytest.mark.parametrize("name", SMALL)
def test_small_models_compile(name: str) -> None:
    (found,) = outcomes(Job("", "", "small", name, (SETTING,)))
    assert not found.failed and found.kernels and found.group == name
    assert outcome_from(json.loads(to_json(found))) == found


def test_a_share_of_the_op_matrix_compiles() -> None:
    job = Job("", "", "ops", "3/400", (SETTING,))
    assert job_from(to_json(job)) == job
    found = list(outcomes(job))
    assert len(found) > 1 and not [one for one in found if one.failed]


def test_samples_have_distinct_names_and_every_share_has_some() -> None:
    shares = [[name for name, _ in cases_of(Job("", "", "ops", f"{n}/7", ()))] for n in range(1, 8)]
    names = [name for share in shares for name in share]
    assert len(names) == len(set(names)) > 1500
    assert min(map(len, shares)) > 150


def test_the_quick_form_needs_no_files(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path / "none", (), quick=True, settings=SETTINGS)
    assert [job.kind for job in jobs] == ["small", "ops"]


def test_what_is_no_tree_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(TreeError, match="'nonsense' is no commit and no folder of a tree"):
        sources_of("nonsense", tmp_path)
