"""Losses and functions beside PyTorch's of the same name, in f64, with their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from modelcc import Tensor, nn
from modelcc.ir.types import Array

torch: Any = pytest.importorskip("torch")
against: Any = pytest.importorskip("tests.nn.against_torch")
normal = against.normal

Case = tuple[str, Mapping[str, Array], Mapping[str, Any]]


def case(name: str, *arrays: Array, **kwargs: Any) -> Case:
    """Arrays are arguments by place; those among ``kwargs`` are made tensors."""
    return name, {f"input{i}": a for i, a in enumerate(arrays)}, kwargs


def chances(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).uniform(0.02, 0.98, shape)


def distribution(*shape: int) -> Array:
    drawn = chances(*shape)
    return drawn / drawn.sum(1, keepdims=True)


def classes(count: int, *shape: int) -> Array:
    return np.random.default_rng(shape).integers(0, count, shape)


LOGITS, PLANE = normal(5, 4), normal(2, 4, 3, 2)
SOME = np.array([0, 3, -100, 1, 3])
WEIGHT = np.array([0.5, 1.0, 2.0, 0.25])

CLASSES = [
    case("cross_entropy", LOGITS, classes(4, 5)),
    case("cross_entropy", LOGITS, SOME),
    case("cross_entropy", LOGITS, SOME, weight=WEIGHT),
    case("cross_entropy", LOGITS, SOME, weight=WEIGHT, label_smoothing=0.2),
    case("cross_entropy", LOGITS, SOME, label_smoothing=0.2, reduction="sum"),
    case("cross_entropy", LOGITS, classes(4, 5), reduction="none", ignore_index=2),
    case("cross_entropy", PLANE, classes(4, 2, 3, 2)),
    case("cross_entropy", PLANE, classes(4, 2, 3, 2), weight=WEIGHT, label_smoothing=0.1),
    case("cross_entropy", normal(4), np.array(2)),
    case("cross_entropy", LOGITS, distribution(5, 4)),
    case("cross_entropy", LOGITS, distribution(5, 4), weight=WEIGHT, label_smoothing=0.1),
    case("cross_entropy", PLANE, distribution(2, 4, 3, 2), reduction="none"),
    case("nll_loss", LOGITS, SOME, weight=WEIGHT),
    case("nll_loss", PLANE, classes(4, 2, 3, 2), reduction="sum"),
]

PAIR = (normal(3, 4), normal(3, 4, seed=1))

NUMBERS = [
    *(case(f"{name}_loss", *PAIR) for name in ("mse", "l1", "huber", "smooth_l1")),
    *(case("mse_loss", *PAIR, reduction=reduction) for reduction in ("sum", "none")),
    case("huber_loss", *PAIR, delta=0.4),
    case("smooth_l1_loss", *PAIR, beta=0.4),
    case("smooth_l1_loss", *PAIR, beta=0.0),
    case("binary_cross_entropy", chances(3, 4), chances(3, 4, seed=1)),
    case("binary_cross_entropy", chances(3, 4), chances(3, 4, seed=1), weight=chances(4)),
    case("binary_cross_entropy_with_logits", normal(3, 4) * 9, chances(3, 4)),
    case("binary_cross_entropy_with_logits", normal(3, 4), chances(3, 4), pos_weight=WEIGHT),
    case("kl_div", normal(3, 4), chances(3, 4)),
    case("kl_div", normal(3, 4), chances(3, 4), reduction="batchmean"),
    case("kl_div", normal(3, 4), normal(3, 4, seed=1), log_target=True, reduction="sum"),
    case("poisson_nll_loss", normal(3, 4), chances(3, 4) * 5),
    case("poisson_nll_loss", chances(3, 4), chances(3, 4) * 5, log_input=False, full=True),
]

VECTORS = [
    case("cosine_similarity", *PAIR),
    case("cosine_similarity", normal(2, 3, 4), normal(3, 4), dim=-1),
    case("pairwise_distance", *PAIR),
    case("pairwise_distance", *PAIR, p=1.0, keepdim=True),
    case("normalize", normal(3, 4)),
    case("normalize", normal(3, 4), p=1.0, dim=0),
    case("normalize", normal(3, 4), p=3.0),
    case("triplet_margin_loss", *PAIR, normal(3, 4, seed=2)),
    case("triplet_margin_loss", *PAIR, normal(3, 4, seed=2), swap=True, margin=3.0),
    case("cosine_embedding_loss", *PAIR, np.array([1, -1, -1])),
    case("margin_ranking_loss", normal(5), normal(5, seed=1), np.array([1, -1, -1, 1, 1])),
]

HEADS = (normal(2, 3, 4, 5), normal(2, 3, 6, 5), normal(2, 3, 6, 7))
SEEN = np.random.default_rng(0).uniform(size=(4, 6)) > 0.5
SEEN[:, 0] = True

ATTENTION = [
    case("scaled_dot_product_attention", *HEADS),
    case("scaled_dot_product_attention", *HEADS, SEEN),
    case("scaled_dot_product_attention", *HEADS, normal(2, 1, 4, 6)),
    case("scaled_dot_product_attention", *HEADS, scale=0.3, is_causal=True),
    case("scaled_dot_product_attention", *(x[0, 0] for x in HEADS)),
    case("scaled_dot_product_attention", *(x[0] for x in HEADS), is_causal=True),
    case(
        "scaled_dot_product_attention", normal(2, 4, 3, 5), normal(2, 2, 6, 5), normal(2, 2, 6, 5),
        enable_gqa=True,
    ),
]  # fmt: skip

OTHERS = [
    case("interpolate", normal(1, 2, 6, 7), size=(3, 4), mode="bilinear", antialias=True),
    case("interpolate", normal(1, 2, 6, 7), scale_factor=0.6, mode="bicubic"),
    case(
        "interpolate", normal(1, 2, 6, 7), scale_factor=1.3, mode="bilinear",
        recompute_scale_factor=True,
    ),
    case("pad", normal(2, 3, 4), pad=(1, -1, 0, 2), value=2.0),
    case("pad", normal(2, 3, 4), pad=(1, 2), mode="reflect"),
    case("glu", normal(2, 6)),
]  # fmt: skip


def label(case: Case) -> str:
    name, arrays, kwargs = case
    parts = [a.dtype.kind + "x".join(map(str, a.shape)) for a in arrays.values()]
    given = (f"{k}={v if not isinstance(v, np.ndarray) else '…'}" for k, v in kwargs.items())
    return f"{name}({', '.join([*parts, *given])})"


@pytest.mark.parametrize("case", [*CLASSES, *NUMBERS, *VECTORS, *ATTENTION, *OTHERS], ids=label)
def test_functions_and_their_gradients(case: Case) -> None:
    name, arrays, kwargs = case
    fixed = {k: v for k, v in kwargs.items() if isinstance(v, np.ndarray)}
    rest = {k: v for k, v in kwargs.items() if k not in fixed}

    def mine(**tensors: Any) -> Any:
        given = {k: Tensor(v) for k, v in fixed.items()}
        return getattr(nn.functional, name)(*tensors.values(), **given, **rest)

    def theirs(**tensors: Any) -> Any:
        given = {k: torch.tensor(v) for k, v in fixed.items()}
        return getattr(torch.nn.functional, name)(*tensors.values(), **given, **rest)

    against.check(mine, theirs, arrays)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("blank", [0, 2])
def test_ctc_loss(reduction: str, blank: int) -> None:
    """By logits: PyTorch's gradient by logarithms is that of what makes them."""
    targets = np.array([[1, 3, 3, 1], [3, 1, 1, 1], [1, 1, 1, 3], [3, 3, 3, 3]])
    inputs, lengths = np.array([9, 7, 8, 5]), np.array([4, 1, 3, 0])

    def ours(x: Any) -> Any:
        logarithms = nn.functional.log_softmax(x, 2)
        return nn.functional.ctc_loss(
            logarithms,
            targets,
            inputs,
            lengths,
            blank,
            reduction=reduction,  # type: ignore[arg-type]
        )

    def theirs(x: Any) -> Any:
        others = (torch.tensor(a) for a in (targets, inputs, lengths))
        logarithms = torch.nn.functional.log_softmax(x, 2)
        return torch.nn.functional.ctc_loss(logarithms, *others, blank, reduction)

    against.check(ours, theirs, {"x": normal(9, 4, 5)})


def test_what_cannot_be_aligned_costs_infinity_or_nothing() -> None:
    x, targets = normal(3, 1, 4), np.array([[1, 1, 2]])  # 3 steps, and 4 are needed
    arguments = (targets, np.array([3]), np.array([3]))
    found = nn.functional.ctc_loss(nn.functional.log_softmax(x, 2), *arguments)
    assert np.isinf(found.item())

    def ours(x: Any) -> Any:
        logarithms = nn.functional.log_softmax(x, 2)
        return nn.functional.ctc_loss(logarithms, *arguments, zero_infinity=True)

    def theirs(x: Any) -> Any:
        others = (torch.tensor(a) for a in arguments)
        logarithms = torch.nn.functional.log_softmax(x, 2)
        return torch.nn.functional.ctc_loss(logarithms, *others, zero_infinity=True)

    against.check(ours, theirs, {"x": x})


def test_focal_losses() -> None:
    vision: Any = pytest.importorskip("torchvision.ops")
    x, target = normal(3, 4), (chances(3, 4) > 0.5).astype(np.float64)
    for alpha, reduction in ((0.25, "none"), (-1.0, "mean"), (0.6, "sum")):

        def ours(x: Any, *, alpha: Any = alpha, reduction: Any = reduction) -> Any:
            return nn.functional.sigmoid_focal_loss(x, target, alpha, 1.5, reduction)

        def theirs(x: Any, *, alpha: Any = alpha, reduction: Any = reduction) -> Any:
            return vision.sigmoid_focal_loss(x, torch.tensor(target), alpha, 1.5, reduction)

        against.check(ours, theirs, {"x": x})


def test_focal_loss_without_focus_is_cross_entropy() -> None:
    def ours(x: Any) -> Any:
        return nn.functional.focal_loss(x, SOME, Tensor(WEIGHT), gamma=0.0)

    def theirs(x: Any) -> Any:
        costs = torch.nn.functional.cross_entropy(
            x, torch.tensor(SOME), torch.tensor(WEIGHT), reduction="sum"
        )
        return costs / 4

    against.check(ours, theirs, {"x": LOGITS})
