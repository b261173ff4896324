"""NumPy's files: named arrays as .npz, and reading them.

``numpy.savez`` takes the names as keywords, so no array can be called ``file``, and
``allow_pickle`` is an option in some versions of NumPy and an array's name in others.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from modelcc.ir.types import Array


def write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes ``arrays`` to ``path``; string arrays become NumPy's own, nothing is pickled.

    ``OSError`` if the file cannot be written.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            plain = array.astype(np.str_) if array.dtype == object else np.asanyarray(array)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, plain, allow_pickle=False)


class DamagedFileError(ValueError):
    """A file without readable NumPy arrays."""


def read_arrays(path: Path) -> Array | dict[str, Array]:
    """The array of a .npy file, or those of a .npz by name; nothing is unpickled.

    ``OSError`` if the file cannot be read, :class:`DamagedFileError` if it is invalid or truncated.
    """
    try:
        loaded: Any = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return cast(Array, loaded)
        with loaded as archive:
            found = {name: archive[name] for name in archive.files}
    except OSError:
        raise
    except Exception as error:  # NumPy, zipfile and zlib may raise anything on invalid bytes
        raise DamagedFileError(f"{path} is damaged: {error}") from error
    wrong = [name for name, array in found.items() if not isinstance(array, np.ndarray)]
    if wrong:
        raise DamagedFileError(f"{path} is damaged: {wrong[0]!r} is no array")
    return found
