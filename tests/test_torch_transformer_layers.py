"""PyTorch's transformer layers, whole in inference, are compiled as what they are made of."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from modelcc.torch.partition import Parted  # noqa: E402
from tests.traced_graphs import compiled  # noqa: E402

nn: Any = torch.nn
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_dynamo")]


def agrees(module: Any, *arguments: Any, **named: Any) -> None:
    seen: list[tuple[str, Parted]] = []
    fast = compiled(module, seen)
    with torch.no_grad():
        ours, theirs = fast(*arguments, **named), module(*arguments, **named)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert seen and all(parts.whole is not None for _, parts in seen)


PADDED = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
LATER = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "padding": {"src_key_padding_mask": PADDED},
    "later": {"src_mask": LATER},
    "both": {"src_mask": LATER, "src_key_padding_mask": PADDED},
    "numbers": {"src_mask": torch.zeros(5, 5).masked_fill(LATER, float("-inf"))},
}


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize(("norm_first", "activation"), [(False, "relu"), (True, "gelu")])
def test_encoder_layers(masks: dict[str, Any], norm_first: bool, activation: str) -> None:
    layer = nn.TransformerEncoderLayer(
        16, 4, 32, norm_first=norm_first, activation=activation, batch_first=True
    ).eval()
    agrees(layer, torch.randn(2, 5, 16), **masks)


def test_an_encoder_whose_batch_is_second() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32).eval()
    agrees(nn.TransformerEncoder(layer, 2).eval(), torch.randn(5, 2, 16))


@pytest.mark.parametrize(("needed", "averaged"), [(False, True), (True, True), (True, False)])
@pytest.mark.parametrize(
    ("mask", "kind"),
    [
        *((None, None), (LATER, 0), (PADDED, 1), (PADDED[:, None, None] | LATER, 2)),
        (torch.tensor([[True] * 5, [False] * 5]), 1),
    ],
)
def test_attention(mask: Any, kind: int | None, needed: bool, averaged: bool) -> None:
    sizes = ((48, 16), (48,), (16, 16), (16,))
    weights, x = [torch.randn(size) / 4 for size in sizes], torch.randn(2, 5, 16)
    whole = mask if kind != 2 else mask.expand(2, 4, 5, 5).contiguous()

    def attended(x: Any) -> Any:
        found = torch._native_multi_head_attention(
            x, x, x, 16, 4, *weights, whole, needed, averaged, kind
        )
        return found if needed else found[0]

    agrees(attended, x)
