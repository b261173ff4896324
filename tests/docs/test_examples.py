"""The programs in examples/ do what they say."""

from __future__ import annotations

import io
import runpy
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest
from small_models import mlp

import modelcc

EXAMPLES = Path(__file__).parents[2] / "examples"


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_the_server_answers_many_threads_and_refuses_in_words() -> None:
    net = modelcc.compile(mlp("batch"), threads=1, cache=None)
    server = runpy.run_path(str(EXAMPLES / "serve.py"))["server_of"](net, ("127.0.0.1", 0))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/"

    def ask(x: np.ndarray) -> np.ndarray:
        with urlopen(url, data=npy(x), timeout=300) as reply:
            return np.load(io.BytesIO(reply.read()))["y"]

    def refusal(body: bytes) -> str:
        try:
            urlopen(url, data=body, timeout=300)
        except HTTPError as error:
            with error:
                assert error.code == 400
                return error.read().decode()
        raise AssertionError("it must be refused")

    try:
        feeds = [np.full((1 + n % 4, 6), n, np.float32) for n in range(24)]
        with ThreadPoolExecutor(8) as pool:
            for got, x in zip(pool.map(ask, feeds), feeds, strict=True):
                np.testing.assert_array_equal(got, net(x))
        assert "expected 6, got 5" in refusal(npy(np.ones((1, 5), np.float32)))
        assert "must be an .npy" in refusal(b"nothing")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_digits_are_learned_and_training_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn")
    main = runpy.run_path(str(EXAMPLES / "train_digits.py"))["main"]
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", ["train_digits.py", "--folder", str(tmp_path)])
        assert main() == 0
    first, _, second, _ = capsys.readouterr().out.splitlines()
    assert first.partition("; ")[2] == second.partition("; ")[2]
