"""State dicts and initial values beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from modelcc import Tensor, nn
from modelcc.nn import init

torch: Any = pytest.importorskip("torch")


def both() -> tuple[Any, Any]:
    def made(package: Any) -> Any:
        return package.Sequential(
            package.Conv2d(3, 4, 3), package.BatchNorm2d(4), package.PReLU(),
            package.Flatten(), package.Linear(16, 2),
        )  # fmt: skip

    return made(nn), made(torch.nn)


def test_states_go_both_ways() -> None:
    ours, theirs = both()
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype(np.float32)
    ours.load_state_dict(theirs.state_dict())
    expected = theirs(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(ours(x).numpy(), expected, rtol=1e-5, atol=1e-5)
    other = both()[1]
    other.load_state_dict({n: torch.from_dlpack(t) for n, t in ours.state_dict().items()})
    for name, tensor in ours.state_dict().items():
        np.testing.assert_array_equal(other.state_dict()[name].numpy(), tensor.numpy())


def test_narrow_floats_are_taken_exactly() -> None:
    ours, theirs = both()
    ours.load_state_dict(theirs.bfloat16().state_dict())
    expected = theirs.state_dict()["4.weight"].float().numpy()
    np.testing.assert_array_equal(ours[4].weight.numpy(), expected)
    assert ours[4].weight.dtype.name == "f32"


INITIAL = {
    "Linear": (300, 200), "Bilinear": (40, 30, 20), "Embedding": (200, 100),
    "Conv2d": (64, 32, 3), "ConvTranspose2d": (64, 32, 3), "LSTM": (50, 60), "GRU": (50, 60),
    "RNN": (50, 60), "MultiheadAttention": (64, 4), "BatchNorm2d": (16,), "LayerNorm": (64,),
    "TransformerEncoderLayer": (32, 4, 64),
}  # fmt: skip


@pytest.mark.parametrize("name", INITIAL)
def test_initial_values_are_distributed_as_theirs(name: str) -> None:
    torch.manual_seed(0)
    ours, theirs = (
        getattr(nn, name)(*INITIAL[name], rng=0)
        if name not in ("BatchNorm2d", "LayerNorm")
        else getattr(nn, name)(*INITIAL[name]),
        getattr(torch.nn, name)(*INITIAL[name]),
    )
    for parameter, tensor in ours.parameters().items():
        found, expected = tensor.numpy(), theirs.state_dict()[parameter].numpy()
        assert found.shape == expected.shape
        if expected.std() == 0:
            np.testing.assert_array_equal(found, expected)
            continue
        sigma = expected.std() * np.sqrt(2 / expected.size)
        assert found.std() == pytest.approx(expected.std(), abs=5 * sigma)
        assert np.abs(found).max() == pytest.approx(np.abs(expected).max(), rel=0.3)
        assert abs(found.mean() - expected.mean()) < 5 * sigma


def test_stacks_of_transformers() -> None:
    def made(package: Any) -> tuple[Any, Any]:
        encoder = package.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True)
        decoder = package.TransformerDecoderLayer(6, 2, 8, 0.0, batch_first=True)
        return (
            package.TransformerEncoder(encoder, 2, package.LayerNorm(6)),
            package.TransformerDecoder(decoder, 2),
        )

    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(2, n, 6)).astype(np.float32) for n in (5, 4))
    padded = np.array([[False] * 5, [False, False, False, True, True]])
    (encoder, decoder), (theirs, other) = made(nn), made(torch.nn)
    encoder.load_state_dict(theirs.state_dict())
    decoder.load_state_dict(other.state_dict())
    memory = encoder(x, src_key_padding_mask=padded)
    found = decoder(y, memory, tgt_is_causal=True)
    seen = theirs(torch.tensor(x), src_key_padding_mask=torch.tensor(padded))
    mask = torch.triu(torch.ones(4, 4, dtype=torch.bool), 1)
    expected = other(torch.tensor(y), seen, tgt_mask=mask).detach().numpy()
    np.testing.assert_allclose(memory.numpy(), seen.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_gains_and_fans_are_theirs() -> None:
    for kind in ("linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
        assert init.calculate_gain(kind) == torch.nn.init.calculate_gain(kind)
    found = torch.nn.init._calculate_fan_in_and_fan_out(torch.zeros(4, 3, 2, 5))
    assert init.fans((4, 3, 2, 5)) == found


def test_optimisers_see_a_tensor_of_their_own() -> None:
    """What is handed out through DLPack is memory that nobody here writes to any more."""
    layer = nn.Linear(2, 2)
    shared = torch.from_dlpack(layer.weight)
    layer.weight = layer.weight + Tensor(1.0)
    assert not np.array_equal(shared.numpy(), layer.weight.numpy())
