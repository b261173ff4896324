"""Models of one operator: they are named apart, run, and are compared with what others compute."""

from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from benchmarks.operators.__main__ import Result, cases, measure, prepare, table


def test_labels_differ() -> None:
    labels = [case.label for case in cases(())]
    assert len(labels) == len(set(labels)) > 200


def test_patterns_choose() -> None:
    assert {case.family for case in cases(("pool/*", "norm/layer*"))} == {"pool", "norm"}


def test_a_case_is_compiled_and_timed(tmp_path: Path) -> None:
    (case,) = cases(("transpose/64x3_10",))
    assert prepare(case, tmp_path, threads=1, again=False) is None
    found = measure(case, tmp_path, threads=1, rounds=1, seconds=0.001)
    assert found.error == 0
    assert set(found.microseconds) == {"modelcc", "onnxruntime", "openvino"}


def test_the_table_begins_with_the_slowest() -> None:
    results = [
        Result("a/fast", {"modelcc": 1.0, "onnxruntime": 2.0}, 2.0, 0.0),
        Result("a/slow", {"modelcc": 2.0, "onnxruntime": 1.0}, 0.5, 1e-7),
    ]
    lines = table(results).splitlines()
    assert lines[2] == "| a/slow | 2.0 | 1.0 | – | 0.50 | 1e-07 |"
    assert lines[3].startswith("| a/fast")
    assert lines[-1] == "2 cases, geometric mean 1.000, 1 below 1."
