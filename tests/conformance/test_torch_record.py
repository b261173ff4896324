"""Which samples of torch's operators are tried, and the file to go on from."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")

from conformance import torch_record
from conformance.torch_database import Outcome, Share


def test_each_entry_has_a_sample_and_those_known_are_left_out() -> None:
    some = Share(4, first=6, known=frozenset({("add", 6), ("mul", 2)}))
    assert some.chosen("add", list("abcdefghijk")) == [(2, "c"), (10, "k")]
    assert some.chosen("sub", list("abc")) == [(0, "a")]
    assert some.chosen("mul", []) == []


def test_outcomes_are_written_one_by_one_and_read_by_halves(tmp_path: Path) -> None:
    file = tmp_path / "record"
    forward, backward = Outcome("add", 3, "passed"), Outcome("add", 3, 'wrong: "far" off')
    new = torch_record.kept([forward, backward], file, gradients=False)
    assert next(new) == forward
    assert torch_record.read(file, gradients=False) == [forward]
    assert list(torch_record.kept([backward], file, gradients=True)) == [backward]
    assert torch_record.read(file, gradients=True) == [backward]
    assert torch_record.read(None, gradients=True) == []
