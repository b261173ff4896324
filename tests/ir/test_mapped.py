"""Pages of mapped files: found behind views, given back, read again; other memory left alone."""

import mmap
from pathlib import Path

import numpy as np
import pytest

from modelcc.ir.mapped import CHUNK, copy_bytes, mapped_file, release_all, release_pages


def resident(path: Path):
    """KiB of the file at ``path`` in this process's memory."""
    total, inside = 0, False
    with open("/proc/self/smaps") as maps:
        for line in maps:
            if "-" in line.split()[0]:
                inside = line.rstrip().endswith(str(path))
            elif inside and line.startswith("Rss:"):
                total += int(line.split()[1])
    return total


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    np.arange(4 << 20, dtype=np.float32).tofile(path)
    return path


def opened(path: Path, way: str):
    if way == "memmap":
        return np.memmap(path, np.float32, "r")
    with open(path, "rb") as stream:
        view = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    return np.frombuffer(view[4096:], np.float32)


@pytest.mark.parametrize("way", ["memmap", "buffer"])
def test_pages_are_given_back(file: Path, way: str) -> None:
    array = opened(file, way)[8:].reshape(-1, 2)
    total = array.sum(dtype=np.float64)
    assert resident(file) > 8 << 10
    release_pages(array)
    assert resident(file) == 0
    assert array.sum(dtype=np.float64) == total


def test_copying_keeps_little_of_the_file_in_memory(file: Path) -> None:
    array = opened(file, "memmap")
    target = np.empty(array.nbytes, np.uint8)
    copy_bytes(target, array)
    np.testing.assert_array_equal(target.view(np.float32), np.fromfile(file, np.float32))
    assert resident(file) << 10 <= CHUNK


def test_memory_that_is_no_file_is_left_alone() -> None:
    pages = mmap.mmap(-1, 1 << 16)
    array = np.frombuffer(pages, np.uint8)
    array[:] = 7
    release_pages(array)
    assert mapped_file(array) is None
    assert (array == 7).all()


def test_pages_of_all_are_given_back(file: Path) -> None:
    arrays = [opened(file, way)[start:] for way in ("memmap", "buffer") for start in (0, 9)]
    assert sum(float(array.sum()) for array in arrays) and resident(file)
    release_all([np.zeros(3), *arrays])
    assert resident(file) == 0
