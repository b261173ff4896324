"""The target as an axis: a target of another package inherits tests, with nothing edited here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from modelcc.ir.op import Op
from modelcc.ops.arithmetic import Add
from modelcc.ops.catalog import MCC
from modelcc.ops.unique import Unique
from tests import axis, test_models
from tests.axis import expected_failures, parameters, read_failures, unknown_failures
from tests.ops.test_native import check
from tests.packages import described

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "examples" / "target"
SUITE = ("tests/ops/test_native.py", "tests/ops/test_algorithms.py", "tests/test_models.py")
SHARE = "narrow and (LeakyRelu or Unique or mlp)"
"""What of the suite is tested here: an op, one with expected failures (twice), and a model."""


@pytest.fixture
def narrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The example, installed."""
    for folder in described(PACKAGE, tmp_path):
        monkeypatch.syspath_prepend(folder)
    expected_failures.cache_clear()
    yield "narrow"
    expected_failures.cache_clear()


@pytest.mark.targets("native", "c")
def test_expected_failures_name_samples_and_tests(target: str) -> None:
    assert not unknown_failures(expected_failures(target), MCC.ops, vars(test_models))


def test_an_installed_target_inherits_the_suite() -> None:
    options = ("--target", "narrow", "--target-package", str(PACKAGE), "-k", SHARE, "--all-ops")
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *SUITE)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout
    assert "4 passed" in done.stdout


def test_its_list_lies_beside_its_module(narrow: str) -> None:
    assert list(expected_failures(narrow)) == ["Unique-1", "Unique-5"]
    assert f"--target {narrow}" in axis.places()


@pytest.mark.parametrize(
    ("op", "failures", "message"),
    [
        (Unique, {}, "the target narrow has no type u64"),
        (Add, {"Add-2": "not so"}, r"expected to fail on narrow, but passed: Add samples \[2\]"),
    ],
)
def test_what_is_not_on_the_list_must_pass_and_what_is_must_not(
    op: type[Op], failures: Mapping[str, str], message: str, narrow: str
) -> None:
    with pytest.raises(Exception, match=message):
        check(op, narrow, failures)


def test_models_on_the_list_are_marked(narrow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(axis, "expected_failures", lambda _: {"test_mlp": "why"})
    (marked,) = (p.marks for p in parameters([narrow], "test_mlp"))
    assert [(m.name, m.kwargs) for m in marked] == [("xfail", {"reason": "why", "strict": True})]
    assert not parameters([narrow], "test_attending")[0].marks


def test_lists_are_refused_whose_lines_say_nothing() -> None:
    with pytest.raises(ValueError, match="no reason is given for Cast-7"):
        read_failures('Cast-7 = ""')
    failures = {"Unique-5": "", "Unique-99": "", "Uniq-1": "", "test_mlp": "", "test_mpl": ""}
    found = unknown_failures(failures, MCC.ops, vars(test_models))
    assert found == ["Uniq-1", "Unique-99", "test_mpl"]
