"""Models of torch's layers: every case has its own name, and is what it says."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

pytest.importorskip("torch")

from fuzz.torch_models import Case, cases, written

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_cases_have_different_names() -> None:
    names = [case.name for case in cases()]
    assert len(names) > 150
    assert len(set(names)) == len(names)


def test_named_axes_are_dimensions(tmp_path: Path) -> None:
    path = tmp_path / "abs.onnx"
    assert written(Case("abs", lambda x: x.abs(), ((2, 3),), (0,)), path, 17, False)
    (x,) = onnx.load(path).graph.input
    assert [d.dim_param or d.dim_value for d in x.type.tensor_type.shape.dim] == ["d0", 3]


def test_what_the_exporter_refuses_is_left_out(tmp_path: Path) -> None:
    case = Case("sinh", lambda x: x.sinh(), ((2, 3),))
    assert not written(case, tmp_path / "sinh.onnx", 17, False)
