"""Views, parts, diagonals and pads give what PyTorch gives."""

from __future__ import annotations

from typing import Any

import pytest

from modelcc.ir.errors import Error
from tests.frontends.torch.comparison import check, compare, compiled, torch

F = torch.nn.functional
X = torch.arange(60.0).reshape(3, 4, 5)
SCALAR, NONE = torch.tensor(2.5), torch.zeros(0, 3)
pytestmark = pytest.mark.filterwarnings("ignore")

CASES: dict[str, tuple[Any, ...]] = {
    "split": (lambda x: torch.split(x, 3, -1), X),
    "split of given sizes": (lambda x: torch.split(x, [1, 0, 3], 1), X),
    "chunk": (lambda x: torch.chunk(x, 3, 1), X),
    "tensor_split": (lambda x: torch.tensor_split(x, (1, 3), -1), X),
    "unbind": (lambda x: torch.unbind(x, -2), X),
    "stack of scalars": (lambda x: torch.stack([x, x + 1], -1), SCALAR),
    "stack promotes": (lambda x, y: torch.stack([x, y], 1), X[0], torch.ones(4, 5).long()),
    "empty vectors joined": (lambda x, y: torch.cat([y, x, y], 1), X, torch.zeros(0)),
    "flip": (lambda x: x.flip(-1, 0), X),
    "flip of nothing": (lambda x: x.flip(0), NONE),
    "roll": (lambda x: torch.roll(x, (-7, 2), (0, -1)), X),
    "roll of all": (lambda x: torch.roll(x, 61), X),
    "rot90": (lambda x: torch.rot90(x, 3, (2, 0)), X),
    "repeat": (lambda x: x.repeat(2, 1, 0, 3), X),
    "triangles": (lambda x: (x.tril(-1), x.triu(2)), X),
    "diagonal": (lambda x: (x.diagonal(-1, 2, 0), x.diagonal(4, 1, 2), x.diagonal(9, 1, 2)), X),
    "diag_embed": (lambda x: torch.diag_embed(x, -2, 0, -1), X),
    "diag": (lambda x: (torch.diag(x), torch.diag(x[0], 1)), X[0]),
    "diagonal_scatter": (lambda x: torch.diagonal_scatter(x, -x[:, 0, :3], -1, 1, 2),
                         torch.arange(48.0).reshape(3, 4, 4)),
    "windows": (lambda x: (x.unfold(1, 2, 2), x.unfold(-1, 3, 1)), X),
    "a transposed stride": (lambda x: torch.as_strided(x, (5, 3), (1, 20), 5), X),
    "overlapping strides": (lambda x: torch.as_strided(x, (4, 3), (1, 1), 2), X),
    "strided scatter": (lambda x: torch.as_strided_scatter(x, -x[0, :2, :2], (2, 2), (20, 3), 1),
                        X),
    "pads": (lambda x: (F.pad(x, (1, -2, 0, 3), value=7.0), F.pad(x, (2, 1), "reflect"),
                        F.pad(x, (1, 0), "replicate")), X),
    "pixels": (lambda x: F.pixel_shuffle(x.reshape(1, 4, 3, 5), 2), X),
    "gradient of windows, stretched": (
        lambda x: torch.ops.aten.unfold_backward(x[..., :1, None], [3, 7, 2], 1, 1, 2), X),
    "signals of spectra": (
        lambda x: torch.istft(torch.complex(x[:, :3], x[:, 1:]), 4, 2, center=False), X),
    "writes to views": (lambda x: _written(x), X),
    "copies": (lambda x: (torch.permute_copy(x, (2, 0, 1)), torch.squeeze_copy(x[:1])), X),
}  # fmt: skip


def _written(x: Any) -> Any:
    y = x.clone()
    y[1, ::2, -2:] = 5
    y.select(0, -1).zero_()
    y.transpose(0, 2)[4, 1] += 1
    y.diagonal(0, 1, 2).mul_(3)
    return y


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_as_eager(case: tuple[Any, ...]) -> None:
    check(*case)


def test_named_extents() -> None:
    def function(x: Any) -> Any:
        return (*x.split([1, x.shape[0] - 1]), x.flip(0), x.roll(3, 0), x.unfold(0, 2, 1),
                x.repeat(1, 2), x.diagonal(), F.pad(x, (1, 1)), x.triu(1))  # fmt: skip

    batch = torch.export.Dim("batch", min=3, max=64)
    net = compiled(function, [torch.randn(4, 5)], [{0: batch}])
    for n in (3, 5, 9):
        compare(net, function, [torch.randn(n, 5)])


def _parts(x: Any, n: Any) -> Any:
    k = n.item()
    changed = torch.slice_scatter(x, x.new_full((3, 2), 7.0), 1, k, k + 2)
    return x[:, :k], x[:, k:], x[:, k::2], x[:, 1:k], changed


def _elements(x: Any, n: Any) -> Any:
    k = n.item()
    return x[:, k], torch.select_scatter(x, -x[:, 1], 1, k)


@pytest.mark.parametrize("function", [_parts, _elements])
@pytest.mark.parametrize("named", [False, True])
def test_places_that_a_tensor_gives(function: Any, named: bool) -> None:
    width = torch.export.Dim("width", min=2)
    given = [torch.randn(3, 5), torch.tensor(2)]
    net = compiled(function, given, [{1: width}, {}] if named else None)
    for size in (2, 4, 9) if named else (5,):
        x = torch.randn(3, size)
        for k in map(torch.tensor, range(-size - 2, size + 3)):
            try:
                function(x, k)
            except (IndexError, RuntimeError):
                with pytest.raises(Error):
                    net(x.numpy(), k.numpy())
            else:
                compare(net, function, [x, k])


def test_gradients_of_pads_and_parts() -> None:
    def gradient(x: Any, dy: Any) -> Any:
        return (
            torch.ops.aten.reflection_pad1d_backward(dy, x, [2, 1]),
            torch.ops.aten.replication_pad1d_backward(dy, x, [2, 1]),
            torch.ops.aten.slice_backward(dy[:, :, :2], [2, 3, 4], 2, -3, 9, 2),
            torch.ops.aten.select_backward(dy[:, :, 0], [2, 3, 4], 2, -1),
            torch.ops.aten.unfold_backward(dy[:, :2, :3], [2, 2, 5], 2, 3, 2)
            if dy.dim() == 4 else dy,
        )  # fmt: skip

    check(gradient, torch.randn(2, 3, 4), torch.randn(2, 3, 7))
