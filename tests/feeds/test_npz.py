"""Files of arrays, read back by NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from modelcc.feeds.npz import write_npz
from modelcc.ir.errors import ModelError
from modelcc.levels.text import read_constants


@pytest.mark.parametrize("name", ["x", "file", "allow_pickle", "a/b", "ünï"])
def test_any_name_and_type_reads_back(name: str, tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    texts = np.array([["a", "längst"], ["", "c"]], object)
    arrays = {name: np.arange(6.0).reshape(2, 3), "scalar": np.array(3), "none": np.zeros((0, 4))}
    write_npz(path, {**arrays, "texts": texts})
    with np.load(path, allow_pickle=False) as archive:
        assert archive.files == [name, "scalar", "none", "texts"]
        for key, array in arrays.items():
            assert archive[key].dtype == array.dtype
            np.testing.assert_array_equal(archive[key], array)
        np.testing.assert_array_equal(archive["texts"], texts.astype(str))


def test_constants_from_a_file_of_one_array_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "c.npy", np.zeros(3))
    with pytest.raises(ModelError, match=r"c\.npy is no file of constants"):
        read_constants(tmp_path / "c.npy")
