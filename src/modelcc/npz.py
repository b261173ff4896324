"""Named arrays as a .npz file.

``numpy.savez`` takes the names as keywords, so that no array can be called ``file``, and whether it
may pickle is a keyword in some versions of NumPy and the name of an array in others.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from modelcc.ir.types import Array


def write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write ``arrays`` to ``path``; arrays of texts become NumPy's own, nothing is pickled.

    ``OSError`` if the file cannot be written.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            plain = array.astype(np.str_) if array.dtype == object else np.asanyarray(array)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, plain, allow_pickle=False)
