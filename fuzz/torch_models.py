"""Individual torch layers and functions, with named dimensions, as .onnx files.

    python -m fuzz.torch_models --out models

Wants torch and onnx, but nothing of modelcc.  Cases that torch's exporter rejects are reported and
skipped.  Weights and inputs are deterministic.
"""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Case:
    """A layer or function with operands of ``shapes``; the axes in ``named`` of every operand are
    symbolic."""

    name: str
    function: Callable[..., Any]
    shapes: Sequence[Sequence[int]]
    named: Sequence[int] = (0,)


class Applied(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *operands: Tensor) -> Any:
        return self.function(*operands)


PLANES = {1: (2, 6, 11), 2: (2, 6, 9, 12), 3: (2, 6, 5, 6, 7)}
X = PLANES[1]


def cases() -> Iterator[Case]:
    """All cases."""
    for rank, shape in PLANES.items():
        axes = (0, *range(2, rank + 2))
        for name, layer in (*_windows(rank), *_norms(rank)):
            yield Case(f"{name}{rank}d", layer, (shape,), axes)
        for name, function in _resized(rank):
            yield Case(f"{name}{rank}d", function, (shape,), axes)
    for name, layer in _recurrent():
        yield Case(name, layer, ((4, 3, 6),), (0, 1))
    for name, function in FUNCTIONS.items():
        yield Case(name, function, (X,), (0, 2))
    for function in (_rows, _halved):
        yield Case(function.__name__.strip("_"), torch.jit.script(function), (X,), (0, 2))
    for name, function in PAIRS.items():
        yield Case(name, function, (X, (2, 1, 11)), (0,))


def _windows(rank: int) -> Iterator[tuple[str, nn.Module]]:
    for kernel, stride, padding in ((2, 2, 0), (3, 2, 1), (3, 1, 1)):
        text = f"{kernel}{stride}{padding}_"
        for ceil in (False, True):
            for kind in ("Max", "Avg"):
                pool = getattr(nn, f"{kind}Pool{rank}d")
                yield f"{kind}Pool{text}{ceil}_", pool(kernel, stride, padding, ceil_mode=ceil)
        for groups in (1, 2, 6):
            for kind in ("Conv", "ConvTranspose"):
                layer = getattr(nn, f"{kind}{rank}d")
                made = layer(6, 12, kernel, stride, padding, groups=groups)
                yield f"{kind}{text}{groups}_", made
    yield "MaxPool_indices_", getattr(nn, f"MaxPool{rank}d")(2, return_indices=True)
    yield "AdaptiveAvgPool_", getattr(nn, f"AdaptiveAvgPool{rank}d")(1)
    for mode in ("reflect", "replicate", "circular"):
        yield f"Conv_{mode}_", getattr(nn, f"Conv{rank}d")(6, 3, 3, padding=1, padding_mode=mode)


def _norms(rank: int) -> Iterator[tuple[str, nn.Module]]:
    yield "BatchNorm", getattr(nn, f"BatchNorm{rank}d")(6)
    yield "InstanceNorm", getattr(nn, f"InstanceNorm{rank}d")(6, affine=True)
    yield "GroupNorm", nn.GroupNorm(3, 6)
    yield "LocalResponseNorm", nn.LocalResponseNorm(3)


def _resized(rank: int) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    modes = ("nearest", {1: "linear", 2: "bilinear", 3: "trilinear"}[rank])
    for mode, factor in itertools.product((*modes, *(("bicubic",) * (rank == 2))), (0.5, 1.5, 2.0)):
        for corners in (None,) if mode == "nearest" else (False, True):
            resized = partial(
                functional.interpolate, scale_factor=factor, mode=mode, align_corners=corners
            )
            yield f"interpolate_{mode}_{factor}_{corners}_", resized


def _recurrent() -> Iterator[tuple[str, nn.Module]]:
    for kind, both in itertools.product((nn.RNN, nn.LSTM, nn.GRU), (False, True)):
        yield f"{kind.__name__}_{both}", kind(6, 5, 2, bidirectional=both)


def _marked(x: Tensor) -> Tensor:
    x = x.clone()
    x[x > 0.5] = -1
    x[:, 1:3] = x[:, 2:4] * 2
    return x


def _rows(x: Tensor) -> Tensor:
    rows = [x[0]]
    for i in range(x.size(0)):
        if bool(x[i].sum() > 0):
            rows.append(x[i] * i)
    return torch.stack(rows)


def _halved(x: Tensor) -> Tensor:
    while bool(x.abs().max() > 0.1):
        x = x * 0.5
    return x


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "softmax": lambda x: functional.softmax(x, 1),
    "std": lambda x: torch.std(x, 1),
    "cumsum": lambda x: torch.cumsum(x, 2),
    "topk": lambda x: torch.topk(x, 3, dim=1),
    "sort": lambda x: torch.sort(x, dim=2, descending=True),
    "unique": lambda x: torch.unique((x * 2).long(), return_inverse=True, return_counts=True),
    "nonzero": lambda x: torch.nonzero(x > 0),
    "where": lambda x: torch.where(x > 0, x, -1.0),
    "masked": lambda x: x[x > 0.5],
    "marked": _marked,
    "first": lambda x: x - x[:, :, :1],
    "last": lambda x: (x[-1], x[:, -3:-1], x[:, ::2]),
    "chunks": lambda x: x.chunk(3, 1),
    "flip": lambda x: x.flip(1, 2),
    "roll": lambda x: x.roll((2, -1), (1, 2)),
    "tril": torch.tril,
    "repeat": lambda x: x.repeat(2, 1, 3),
    "view": lambda x: x.view(x.shape[0], 2, 3, -1).transpose(1, 2).reshape(x.shape[0], -1),
    "range": lambda x: torch.arange(x.shape[2]) * 2 + x.sum(),
    "one_hot": lambda x: functional.one_hot(x.abs().long().clamp(max=4), 5),
    "bag": lambda x: functional.embedding_bag(
        x.abs().long().clamp(max=4)[:, 0], torch.eye(5), mode="mean"
    ),
    "casts": lambda x: (x.to(torch.uint8), x.to(torch.int8), x.half(), x.double(), x.bool()),
    "normalize": functional.normalize,
    "gelu": functional.gelu,
    "glu": lambda x: functional.glu(x, 1),
    "linear": nn.Linear(11, 4),
    "layer_norm": nn.LayerNorm(11),
}

PAIRS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "pow": lambda x, y: x.abs() ** y,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "atan2": torch.atan2,
    "floor_divide": torch.floor_divide,
    "matmul": lambda x, y: x @ y.transpose(1, 2),
    "einsum": lambda x, y: torch.einsum("bij,bkj->bik", x, y),
    "cdist": torch.cdist,
    "attention": lambda x, y: functional.scaled_dot_product_attention(x, y, y),
    "scatter_add": lambda x, y: x.scatter_add(1, y.abs().long().clamp(max=5), y),
    "gather": lambda x, y: torch.gather(x, 1, y.abs().long().clamp(max=5)),
    "mse": functional.mse_loss,
    "cosine": lambda x, y: functional.cosine_similarity(x, y, 2),
}


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder.")
@click.option("--opset", default=17, show_default=True, help="Version of the operator set.")
@click.option("--dynamo", is_flag=True, help="By torch's newer exporter.")
def main(out: Path, opset: int, dynamo: bool) -> None:
    """Write NAME.onnx for each case."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    made = [written(case, out / f"{case.name}.onnx", opset, dynamo) for case in cases()]
    click.echo(f"{sum(made)} of {len(made)} models are in {out}")


def written(case: Case, path: Path, opset: int, dynamo: bool) -> bool:
    """Whether torch exports the case."""
    function = case.function
    module: Any = function if isinstance(function, nn.Module) else Applied(function)
    module.eval()
    operands = tuple(torch.randn(*shape) for shape in case.shapes)
    names = [f"x{n}" for n in range(len(operands))]
    axes = {axis: f"d{axis}" for axis in case.named}
    options: dict[str, Any] = {"external_data": False} if dynamo else {}
    try:
        torch.onnx.export(
            module, operands, str(path), input_names=names, opset_version=opset, dynamo=dynamo,
            dynamic_axes=dict.fromkeys(names, axes), **options,
        )  # fmt: skip
    except Exception as error:
        click.echo(f"{case.name}: {type(error).__name__}: {str(error)[:80]!r}", err=True)
        return False
    return True


if __name__ == "__main__":
    main()
