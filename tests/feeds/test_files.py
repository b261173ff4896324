"""Inputs from files: damaged ones, and element types that NumPy's files have no name for."""

from __future__ import annotations

import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from modelcc.feeds.files import read_feeds
from modelcc.feeds.npz import write_npz
from modelcc.ir.errors import ModelError
from modelcc.ir.types import BF16, DTYPES, F32, Array, TensorType

TYPES = {"x": TensorType((2, 3), F32)}


def described(shape: str, dtype: str = "<f4") -> bytes:
    """An .npy file that says to hold ``shape``, and holds 24 bytes."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}".encode()
    text += b" " * (117 - len(text)) + b"\n"
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text + bytes(24)


@pytest.mark.parametrize(
    "shape", ["(99999999999,)", "(1000000000, 1000000000)", f"({10**30}, 2)", "(True, 6)", "(-1,)"]
)
def test_files_that_promise_more_than_they_hold_are_damaged(shape: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(described(shape))
    with pytest.raises(ModelError, match=r"x\.npy is cut off or damaged"):
        read_feeds([f"x={path}"], TYPES)


def test_archives_of_anything_else_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    for contents in (b"1, 2, 3", described(f"({10**30}, 2)"), described("(99,)")):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", contents)
        with pytest.raises(ModelError, match=r"x\.npz: it is damaged"):
            read_feeds([str(path)], TYPES)


@pytest.mark.parametrize(
    "array",
    [
        np.array([["a", "b"]]),
        np.array([["2020-01-01"]], "M8[D]"),
        np.zeros((2, 3), [("a", "i4"), ("b", "f4")]),
        np.zeros((2, 3), "V0"),
        np.zeros((2, 3), "V4"),
        np.zeros((2, 3), np.longdouble),
        np.zeros((2, 3), np.complex64),
    ],
    ids=lambda array: array.dtype.kind,
)
def test_other_types_are_told(array: Array, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(ModelError, match=r"'x' must be f32\[2, 3\], but the file holds"):
        read_feeds([f"x={tmp_path / 'x.npy'}"], TYPES)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4", "uint4", "int2"])
def test_types_that_files_do_not_name_read_back(name: str, tmp_path: Path) -> None:
    """``numpy.save`` writes these as bytes without a type."""
    array = np.array([[1, -2, 0], [1, 0, -1]]).astype(getattr(ml_dtypes, name))
    dtype = next(d for d in DTYPES.values() if d.kind != "string" and d.numpy == array.dtype)
    types = {"x": TensorType((2, 3), dtype)}
    np.save(tmp_path / "x.npy", array)
    write_npz(tmp_path / "x.npz", {"x": array})
    for item in (f"x={tmp_path / 'x.npy'}", str(tmp_path / "x.npz")):
        found, missing = read_feeds([item], types)
        assert not missing
        assert found["x"].dtype == array.dtype
        assert found["x"].tobytes() == array.tobytes()


def test_bytes_without_a_type_are_not_any_type(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 3), "V4"))
    with pytest.raises(ModelError, match=r"must be bf16"):
        read_feeds([f"x={tmp_path / 'x.npy'}"], {"x": TensorType((2, 3), BF16)})
