"""Files of weights, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from modelcc import ModelError, Tensor, nn
from modelcc.tensor import files


def net(seed: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4, rng=seed), nn.BatchNorm1d(4), nn.Linear(4, 2, rng=seed))


def test_a_file_brings_everything_back(tmp_path: Path) -> None:
    library: Any = pytest.importorskip("safetensors.numpy")
    path, one, other = tmp_path / "net.safetensors", net(0), net(1)
    nn.save(one, path, {"epoch": "3"})
    found = library.load_file(path)  # as others read it
    assert found.keys() == one.state_dict().keys()
    other.load_state_dict(nn.load(path))
    for name, tensor in one.state_dict().items():
        np.testing.assert_array_equal(other.state_dict()[name].numpy(), tensor.numpy())
        np.testing.assert_array_equal(found[name], tensor.numpy())


def test_every_element_type(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    kinds = [np.float16, np.float64, np.int8, np.uint16, np.int64, np.bool_, ml_dtypes.bfloat16]
    arrays = {np.dtype(kind).name: np.ones((2, 3), kind) for kind in kinds}
    arrays["scalar"], arrays["empty"] = np.array(2.5, np.float32), np.zeros((0, 3), np.float32)
    nn.save(arrays, tmp_path / "x.safetensors")
    for name, tensor in nn.load(tmp_path / "x.safetensors").items():
        assert tensor.numpy().dtype == arrays[name].dtype
        assert tensor.shape == arrays[name].shape
        assert (tensor.numpy() == arrays[name]).all()


def test_broken_files_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "net.safetensors"
    path.write_bytes(b"no weights at all")
    with pytest.raises(ModelError, match=r"net.safetensors: no whole safetensors file"):
        nn.load(path)


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(files, "import_module", missing)
    with pytest.raises(ModelError, match=r"pip install 'modelcc\[train\]'"):
        nn.save({"x": Tensor([1.0])}, tmp_path / "x.safetensors")


def test_states_of_another_model_are_listed() -> None:
    state = dict(net(0).state_dict())
    state["2.weights"] = state.pop("2.weight")
    state["0.bias"] = Tensor([1.0])
    with pytest.raises(ModelError) as error:
        net(1).load_state_dict(state)
    text = str(error.value)
    assert "missing: 2.weight;" in text and "unknown: 2.weights;" in text
    assert "other types: 0.bias: [1] for f32[4]" in text
    other = net(1)
    del state["0.bias"]
    other.load_state_dict(state, strict=False)
    np.testing.assert_array_equal(other[0].weight.numpy(), net(0)[0].weight.numpy())
    np.testing.assert_array_equal(other[2].weight.numpy(), net(1)[2].weight.numpy())
