"""Files of checkpoints, as safetensors reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from modelcc.tensor.files import TYPES, TensorFileError
from modelcc.training.checkpoint import Checkpoint, Checkpoints, read_checkpoint, write_checkpoint
from modelcc.training.progress import Progress

PROGRESS = Progress(7, 1, 3, {"loss": 0.1 + 0.2}, 2, 1 / 3, 1, False)


def values() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    made = {
        name: np.asarray(rng.integers(0, 2, (2, 3))).astype(t.numpy) for name, t in TYPES.items()
    }
    return {**made, "scalar": np.array(1.5, np.float32), "empty": np.zeros((0, 3), np.int64)}


def checkpoint() -> Checkpoint:
    return Checkpoint(values(), PROGRESS, {"seed": 1}, (123, None))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a.safetensors", checkpoint())
    found = read_checkpoint(tmp_path / "a.safetensors")
    assert (found.progress, found.data, found.marks) == (PROGRESS, {"seed": 1}, (123, None))
    assert found.values.keys() == values().keys()
    for name, array in values().items():
        assert found.values[name].dtype == array.dtype
        np.testing.assert_array_equal(found.values[name], array)


def test_safetensors_reads_it(tmp_path: Path) -> None:
    package: Any = pytest.importorskip("safetensors.numpy")
    known = {n: a for n, a in values().items() if not n.startswith("F8") and n != "BF16"}
    write_checkpoint(tmp_path / "a.safetensors", Checkpoint(known, PROGRESS))
    found = package.load_file(tmp_path / "a.safetensors")
    assert found.keys() == known.keys()
    for name, array in known.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_narrow_floats_are_kept(tmp_path: Path) -> None:
    array = np.array([1.0, -2.5], ml_dtypes.bfloat16)
    write_checkpoint(tmp_path / "a.safetensors", Checkpoint({"a": array}, PROGRESS))
    np.testing.assert_array_equal(read_checkpoint(tmp_path / "a.safetensors").values["a"], array)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_checkpoint(path, checkpoint())
    whole = path.read_bytes()
    for size in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(TensorFileError, match=r"a.safetensors: no whole safetensors file"):
            read_checkpoint(path)
    path.write_bytes(whole.replace(b"modelcc.training/1", b"modelcc.training/0"))
    with pytest.raises(TensorFileError, match="no checkpoint of this version"):
        read_checkpoint(path)
    path.write_bytes(whole.replace(b'\\"epoch\\"', b'\\"epocs\\"'))
    with pytest.raises(TensorFileError, match="a damaged checkpoint"):
        read_checkpoint(path)


def test_broken_bytes_are_noticed_wherever_they_are(tmp_path: Path) -> None:
    path, rng = tmp_path / "a.safetensors", np.random.default_rng(0)
    write_checkpoint(path, checkpoint())
    whole = np.fromfile(path, np.uint8)
    for place in rng.integers(0, len(whole), 300):
        broken = whole.copy()
        broken[place] ^= rng.integers(1, 256, dtype=np.uint8)
        broken.tofile(path)
        try:
            found = read_checkpoint(path)
        except TensorFileError:
            continue
        # Spaces that end the header, and spellings of the same text, say the same.
        assert (found.progress, found.data, found.marks) == (PROGRESS, {"seed": 1}, (123, None))
        for name, array in values().items():
            np.testing.assert_array_equal(found.values[name], array)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_checkpoint(path, checkpoint())
    whole = path.read_bytes()
    strange = {"a": np.zeros(2, np.complex64)}
    with pytest.raises(TensorFileError, match="a: safetensors has no elements of complex64"):
        write_checkpoint(path, Checkpoint(strange, PROGRESS))
    assert path.read_bytes() == whole
    assert list(tmp_path.iterdir()) == [path]


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "run", keep=2)
    assert kept.newest() is None
    for step in (3, 20, 100):
        newest = kept.add(Checkpoint({}, Progress(step)))
    assert kept.newest() == newest
    assert [read_checkpoint(path).progress.step for path in kept.paths()] == [20, 100]
    (tmp_path / "run" / ".new-abandoned.safetensors").write_bytes(b"half")
    kept.clean()
    assert len(list((tmp_path / "run").iterdir())) == 2
