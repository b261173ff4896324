"""A small transformer that continues a text, character by character, in modelcc and in torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from modelcc import Tensor, nn

Array = np.ndarray
WIDTH, HEADS, LAYERS, LENGTH = 32, 4, 2, 24


class Block(nn.Module):
    """Attention to what came before, and two linear maps, each after a norm."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, rng=rng)
        self.out = nn.Linear(WIDTH, WIDTH, rng=rng)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, rng=rng)
        self.down = nn.Linear(4 * WIDTH, WIDTH, rng=rng)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(self.norm1(x)).reshape(-1, LENGTH, 3, HEADS, WIDTH // HEADS)
        q, k, v = (heads.transpose(2, 0, 3, 1, 4)[n] for n in range(3))
        scores = q @ k.transpose(0, 1, 3, 2) * (WIDTH // HEADS) ** -0.5
        later = np.triu(np.full((LENGTH, LENGTH), -np.inf, np.float32), 1)
        mixed = nn.functional.softmax(scores + Tensor(later), -1) @ v
        x = x + self.out(mixed.transpose(0, 2, 1, 3).reshape(-1, LENGTH, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Scores of the next character after each of a text."""

    def __init__(self, characters: int, seed: int) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.embedding = nn.Embedding(characters, WIDTH, rng=rng)
        self.place = nn.Embedding(LENGTH, WIDTH, rng=rng)
        self.blocks = nn.ModuleList([Block(rng) for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, characters, rng=rng)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x) + self.place(Tensor(np.arange(LENGTH)))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def loss(model: Transformer, x: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of the next characters."""
    scores = model(x)
    return nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))


def torch_loss(torch: Any, state: dict[str, Any], x: Array, y: Array) -> Any:
    """The same, of a state dict of torch's tensors."""
    functional = torch.nn.functional
    weights = dict(state)

    def linear(h: Any, name: str) -> Any:
        return functional.linear(h, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(h: Any, name: str) -> Any:
        weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return functional.layer_norm(h, (WIDTH,), weight, bias)

    h = weights["embedding.weight"][torch.tensor(x)] + weights["place.weight"]
    for n in range(LAYERS):
        at = f"blocks.{n}"
        heads = linear(norm(h, f"{at}.norm1"), f"{at}.qkv")
        q, k, v = heads.reshape(-1, LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = mixed.permute(0, 2, 1, 3).reshape(-1, LENGTH, WIDTH)
        h = h + linear(mixed, f"{at}.out")
        up = functional.gelu(linear(norm(h, f"{at}.norm2"), f"{at}.up"))
        h = h + linear(up, f"{at}.down")
    scores = linear(norm(h, "norm"), "head")
    return functional.cross_entropy(scores.flatten(0, 1), torch.tensor(y).flatten())


def texts(text: str, batch: int, steps: int, seed: int) -> tuple[int, list[tuple[Array, Array]]]:
    """How many characters there are, and batches of pieces of ``text`` and what comes next."""
    known = sorted(set(text))
    codes = np.array([known.index(c) for c in text])
    rng = np.random.default_rng(seed)
    found: list[tuple[Array, Array]] = []
    for _ in range(steps):
        starts = rng.integers(0, len(codes) - LENGTH - 1, batch)
        places = starts[:, None] + np.arange(LENGTH)
        found.append((codes[places], codes[places + 1]))
    return len(known), found
