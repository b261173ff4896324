"""Examples of inputs from files and arrays, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelcc import ModelError
from modelcc.ir.types import Array
from modelcc.quantization.samples import Feeds, calibration_feeds
from tests.quantization.graphs import floats, products, residual


def shapes(given: Any, batch: int = 4) -> list[tuple[int, ...]]:
    found = calibration_feeds(given, residual(), lambda feeds: batch)
    return [feeds["x"].shape for feeds in found]


def test_samples_are_along_the_first_axis(tmp_path: Path) -> None:
    x = floats(10, 3, 8, 8)
    np.savez(tmp_path / "data.npz", x=x)
    np.save(tmp_path / "more.npy", x[:2])
    whole = [(4, 3, 8, 8)] * 3  # the last one has samples of the one before
    assert shapes(x) == shapes({"x": x}) == shapes(tmp_path / "data.npz") == whole
    assert shapes(str(tmp_path)) == [*whole, (2, 3, 8, 8)]
    assert shapes([one[None] for one in x]) == [(1, 3, 8, 8)] * 10
    assert shapes({"x": one} for one in x[:, None]) == [(1, 3, 8, 8)] * 10
    assert shapes(x[:, None]) == [(1, 3, 8, 8)] * 10


def test_fixed_extents_take_samples_together() -> None:
    graph = products()

    def feeds(**arrays: Array) -> tuple[Feeds, ...]:
        return calibration_feeds(arrays, graph, lambda _: 1)

    assert len(feeds(x=floats(6, 6, 32), other=floats(6, 16, 6))) == 3
    assert len(feeds(x=floats(5, 2, 6, 32), other=floats(2, 16, 6))) == 5
    with pytest.raises(ModelError, match="3 runs of input 'x' and 2 of 'other'"):
        feeds(x=floats(6, 6, 32), other=floats(4, 16, 6))


NAN = floats(2, 3, 8, 8)
NAN[1, 2, 0, 3] = np.nan


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"z": floats(2, 3, 8, 8)}, "calibration data for 'z', which is no input"),
        ({}, "has nothing for input 'x'"),
        ([], "no samples"),
        (floats(0, 3, 8, 8), "is empty"),
        (floats(2, 3, 8, 8).astype(np.float64), "must be f32.*but the calibration data is f64"),
        (floats(2, 3), "must be f32.*but the calibration data is f32"),
        (floats(2, 3, 8, 9), "axis 3: expected 8, got 9"),
        (NAN, r"is nan at \[1, 2, 0, 3\]"),
        (3, "must be files, arrays or feeds"),
        ("nowhere.npz", "cannot read nowhere.npz"),
    ],
)
def test_what_does_not_fit_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        shapes(given)


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no \.npy or \.npz files"):
        shapes(tmp_path)
    (tmp_path / "a.npz").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="not a NumPy file"):
        shapes(tmp_path)


def test_mappings_are_read_by_name() -> None:
    given: Mapping[str, Array] = {"other": floats(2, 16, 6), "x": floats(2, 6, 32)}
    (found,) = calibration_feeds(given, products(), lambda _: 1)
    assert list(found) == ["x", "other"]
