"""Where there is no file, finished contents are written."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from modelcc.artifact.replacement import replace_file
from modelcc.feeds.npz import write_npz


def test_archives_go_through_pipes_and_devices(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6.0), "b": np.zeros(0)}
    replace_file(Path("/dev/null"), lambda path: write_npz(path, arrays))
    pipe = tmp_path / "pipe.npz"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(pipe.read_bytes)
        replace_file(pipe, lambda path: write_npz(path, arrays))
        contents = reading.result(30)
    with np.load(io.BytesIO(contents)) as archive:
        np.testing.assert_array_equal(archive["a"], arrays["a"])
    assert os.listdir(tmp_path) == ["pipe.npz"]
