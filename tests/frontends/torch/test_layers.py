"""Products, convolutions, poolings, resizing, attention and recurrent layers of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from modelcc.frontends.kit.errors import UnsupportedModel  # noqa: E402
from modelcc.ops.attention import Attention  # noqa: E402
from modelcc.ops.matmul import Gemm  # noqa: E402
from modelcc.ops.recurrent import GRU, LSTM, RNN  # noqa: E402
from tests.frontends.torch.eager import agree  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)
F, aten = torch.nn.functional, torch.ops.aten
r = torch.randn


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


PRODUCTS: list[tuple[Callable[..., Any], tuple[tuple[int, ...], ...], tuple[int, ...]]] = [
    (torch.matmul, ((3, 1, 2, 4), (5, 4, 6)), (0,)),
    (torch.matmul, ((4,), (2, 4, 3)), ()),
    (lambda a, b: a.long() @ b.long(), ((3, 4), (4, 2)), (0,)),
    (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), ((3, 5), (3, 4), (4, 5)), ()),
    (lambda a, b: torch.addmm(a[0] / 0, a, b, beta=0), ((3, 4), (4, 4)), (0,)),
    (lambda c, a, b: torch.addmv(c, a, b, alpha=-1), ((3,), (3, 4), (4,)), ()),
    (lambda c, a, b: torch.baddbmm(c, a, b, beta=2), ((2, 3, 5), (2, 3, 4), (2, 4, 5)), ()),
    (lambda c, a, b: torch.addbmm(c, a, b, beta=2), ((3, 5), (2, 3, 4), (2, 4, 5)), ()),
    (lambda c, a, b: torch.addr(c, a, b, alpha=3), ((3, 5), (3,), (5,)), ()),
    (F.linear, ((2, 3, 4), (5, 4), (5,)), (0, 1)),
    (F.bilinear, ((2, 3, 4), (2, 3, 5), (6, 4, 5), (6,)), ()),
    (lambda a, b: torch.einsum("b...i,bij", a, b), ((2, 3, 4), (2, 4, 5)), ()),
    (torch.outer, ((3,), (4,)), (0,)),
]


@pytest.mark.parametrize("function, shapes, named", PRODUCTS)
def test_products(function: Any, shapes: Any, named: tuple[int, ...]) -> None:
    agree(function, *(r(shape) for shape in shapes), named=named)


@pytest.mark.parametrize("ends", [[2, 2, 7], [0, 3, 5]])
def test_groups_of_rows_have_matrices_of_their_own(ends: list[int]) -> None:
    def product(x: Any, weight: Any, ends: Any) -> Any:
        rows = torch.arange(len(x)).unsqueeze(1) < ends[-1]  # the others are left undefined
        found = torch._grouped_mm(x.bfloat16(), weight.bfloat16(), offs=ends).float()
        return torch.where(rows, found, 0.0)

    agree(product, r(7, 8), r(3, 8, 16), torch.tensor(ends, dtype=torch.int32), tolerance=1e-2)


def test_experts_of_transformers_are_groups_of_rows() -> None:
    pytest.importorskip("transformers.integrations.moe")

    def product(x: Any, weight: Any, ends: Any) -> Any:
        return torch.ops.transformers.grouped_mm_fallback(x, weight, ends)

    agree(product, r(6, 4), r(3, 4, 5), torch.tensor([1, 1, 4], dtype=torch.int32))


def test_a_layer_of_rows_is_one_product() -> None:
    graph = agree(torch.nn.Linear(4, 3), r(2, 4), named=(0,))
    assert [type(node.op) for node in graph.nodes] == [Gemm]


CONVOLUTIONS: list[tuple[Callable[..., Any], tuple[tuple[int, ...], ...], tuple[int, ...]]] = [
    (lambda x, w, b: F.conv2d(x, w, b, 2, 1), ((2, 3, 8, 7), (4, 3, 3, 3), (4,)), (0,)),
    (lambda x, w: F.conv1d(x, w, padding="same", dilation=3), ((2, 3, 9), (4, 3, 2)), (2,)),
    (lambda x, w: F.conv2d(x, w, groups=4), ((4, 6, 5), (8, 1, 3, 2)), ()),
    (lambda x, w: F.conv3d(x, w, stride=(1, 2, 1)), ((1, 2, 4, 5, 6), (3, 2, 2, 3, 3)), ()),
    (
        lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, (1, 0), 2, (1, 2)),
        ((1, 4, 4, 5), (4, 3, 3, 3)),
        (2,),
    ),
    (lambda x: F.unfold(x, (2, 3), (2, 1), (1, 0), (1, 2)), ((2, 3, 6, 7),), (0,)),
    (lambda x: F.fold(x, (5, 6), (2, 3), 1, (1, 0), 2), ((2, 18, 6),), (0,)),
]


@pytest.mark.parametrize("function, shapes, named", CONVOLUTIONS)
def test_convolutions(function: Any, shapes: Any, named: tuple[int, ...]) -> None:
    agree(function, *(r(shape) for shape in shapes), named=named, tolerance=1e-4)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("mask", [[True, True, True], [False, True, False]])
def test_gradients_of_a_convolution(transposed: bool, mask: list[bool]) -> None:
    x, w = r(2, 4, 6, 5), r(4, 3, 3, 2) if transposed else r(6, 2, 3, 2)
    options = ([6], [2, 1], [1, 0], [1, 2], transposed, [1, 0] if transposed else [0, 0], 2)
    dy = aten.convolution(x, w, None, *options[1:])

    def gradients(dy: Any, x: Any, w: Any) -> Any:
        found = aten.convolution_backward(dy, x, w, *options, mask)
        return [g for g, wanted in zip(found, mask, strict=True) if wanted]

    agree(gradients, r(dy.shape), x, w, tolerance=1e-4)


POOLINGS: list[tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = [
    (lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), (2, 3, 8, 7), (0,)),
    (lambda x: F.max_pool2d(x, (2, 3), 1, (1, 0), 2, False, True), (2, 3, 8, 7), (0,)),
    (lambda x: F.max_pool1d(x, 2, return_indices=True), (3, 8), ()),
    (lambda x: F.max_pool3d(x, 2, return_indices=True), (1, 2, 4, 5, 6), ()),
    (lambda x: F.avg_pool2d(x, 3, 2, 1, True, True), (2, 3, 8, 7), (0,)),
    (lambda x: F.avg_pool2d(x, 9, ceil_mode=True), (2, 3, 4, 9), (0,)),
    (lambda x: F.avg_pool2d(x, 9, 8, 1, True, False), (2, 3, 4, 6), (0,)),
    (lambda x: F.avg_pool2d(x, 9, 8, 1, True, True), (2, 3, 4, 6), (0,)),
    (lambda x: F.max_pool2d(x, 3, 2, 0, 2, True), (2, 3, 4, 9), (0,)),
    (lambda x: F.avg_pool2d(x, 9, 8, 1, True, True, 5), (2, 3, 4, 6), ()),
    (lambda x: F.max_pool2d(x, 9, ceil_mode=True, return_indices=True), (2, 3, 4, 9), ()),
    (lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), (2, 3, 8, 7), (0,)),
    (lambda x: F.avg_pool2d(x, 3, 2, 1, True, True, 5), (2, 3, 8, 7), (0,)),
    (lambda x: F.avg_pool3d(x, 2), (2, 4, 5, 6), ()),
    (lambda x: F.adaptive_avg_pool2d(x, 1), (2, 3, 8, 7), (0, 2, 3)),
    (lambda x: F.adaptive_avg_pool2d(x, (4, None)), (2, 3, 8, 7), (0,)),
    (lambda x: F.adaptive_avg_pool2d(x, (3, 5)), (2, 3, 8, 7), (0, 2, 3)),
    (lambda x: F.adaptive_avg_pool3d(x, 3), (2, 3, 4, 5, 6), ()),
    (lambda x: F.adaptive_max_pool2d(x, (4, 7), True), (2, 3, 8, 7), (0,)),
    (lambda x: F.adaptive_max_pool2d(x, (3, 5), True), (2, 3, 8, 7), (0,)),
    (lambda x: F.adaptive_max_pool1d(x, 3), (3, 8), ()),
]


@pytest.mark.parametrize("function, shape, named", POOLINGS)
def test_poolings(function: Any, shape: tuple[int, ...], named: tuple[int, ...]) -> None:
    agree(function, r(shape), named=named)


def test_gradients_of_poolings() -> None:
    x = r(2, 3, 8, 7)
    y, places = aten.max_pool2d_with_indices(x, [3], [2], [1])
    back = aten.max_pool2d_with_indices_backward

    def greatest(dy: Any, x: Any, places: Any) -> Any:
        return back(dy, x, [3], [2], [1], [1], False, places)

    agree(greatest, r(y.shape), x, places)
    for divisor in (None, 4):
        args = ([3], [2], [1], True, False, divisor)
        y = aten.avg_pool2d(x, *args)
        agree(lambda dy, x, a=args: aten.avg_pool2d_backward(dy, x, *a), r(y.shape), x)
    for size in (1, 4, 3):
        agree(aten._adaptive_avg_pool2d_backward, r(2, 3, size, size), x)


@pytest.mark.parametrize("shape, size", [((3, 8, 7), (3, 5)), ((2, 3, 4, 6), (2, 3))])
def test_gradients_of_the_greatest_of_each_part(shape: Any, size: Any) -> None:
    x = r(shape)
    y, places = aten.adaptive_max_pool2d(x, size)
    agree(aten.adaptive_max_pool2d_backward, r(y.shape), x, places)
    wide = r(2, *shape[-3:])
    y, places = aten.adaptive_max_pool3d(wide, [3, *size])
    agree(aten.adaptive_max_pool3d_backward, r(y.shape), wide, places)


@pytest.mark.parametrize("size", [(7, 11), (4, 3), (16, 10), (1, 1)])
@pytest.mark.parametrize(
    "mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "aligned", "filtered"]
)
def test_images_of_another_size(mode: str, size: tuple[int, int]) -> None:
    names = {"aligned": "bilinear", "filtered": "bicubic"}
    given = {"align_corners": True} if mode == "aligned" else {}
    given |= {"antialias": True} if mode == "filtered" else {}

    def resized(x: Any) -> Any:
        return F.interpolate(x, size, mode=names.get(mode, mode), **given)

    agree(resized, r(2, 3, 8, 5), named=(0,), tolerance=1e-4)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_filters_take_the_ratio_of_aligned_corners(mode: str) -> None:
    def resized(x: Any) -> list[Any]:
        given = {"mode": mode, "align_corners": True, "antialias": True}
        some = [F.interpolate(x, size, **given) for size in ((3, 3), (1, 9), (8, 2), (12, 4))]
        return [*some, F.interpolate(x[..., :1], (5, 4), **given)]

    agree(resized, r(1, 2, 8, 5), tolerance=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("factor", [2.0, 2.3, 0.6])
def test_images_by_a_factor(mode: str, factor: float) -> None:
    agree(lambda x: F.interpolate(x, scale_factor=factor, mode=mode), r(1, 2, 8, 5), tolerance=1e-4)


def test_nearest_elements_are_those_of_the_arithmetic_in_f32() -> None:
    x = torch.arange(40.0).view(1, 1, 40)
    agree(lambda x: [F.interpolate(x, count) for count in range(1, 200, 7)], x, tolerance=0)


def test_gradients_of_resizing() -> None:
    for back in (aten.upsample_bilinear2d_backward, aten.upsample_nearest2d_backward):
        rest = (False,) if back is aten.upsample_bilinear2d_backward else ()
        agree(lambda dy, b=back, o=rest: b(dy, [7, 4], [2, 3, 5, 6], *o), r(2, 3, 7, 4))


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grids(mode: str, padding: str) -> None:
    def sampled(x: Any, grid: Any) -> Any:
        return F.grid_sample(x, grid, mode, padding, align_corners=False)

    agree(sampled, r(2, 3, 4, 5), torch.rand(2, 3, 4, 2) * 3 - 1.5, tolerance=1e-4)


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("align", [False, True])
def test_gradients_of_grids(mode: int, padding: int, align: bool) -> None:
    def gradients(dy: Any, x: Any, grid: Any) -> Any:
        return aten.grid_sampler_2d_backward(dy, x, grid, mode, padding, align, [True, True])

    grid = torch.rand(2, 3, 4, 2) * 3 - 1.5
    agree(gradients, r(2, 3, 3, 4), r(2, 3, 4, 5), grid, tolerance=1e-4)


@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("align", [False, True])
def test_gradients_of_a_grid_that_moves_nothing(padding: int, align: bool) -> None:
    def gradients(dy: Any, x: Any, grid: Any) -> Any:
        return aten.grid_sampler_2d_backward(dy, x, grid, 0, padding, align, [True, True])

    grid = F.affine_grid(torch.eye(2, 3).expand(2, 2, 3), [2, 3, 4, 5], align_corners=align)
    agree(gradients, r(2, 3, 4, 5), r(2, 3, 4, 5), grid, tolerance=1e-4)


def test_gradients_of_a_grid_of_volumes() -> None:
    def gradient(dy: Any, x: Any, grid: Any) -> Any:
        return aten.grid_sampler_3d_backward(dy, x, grid, 0, 0, False, [False, True])[1]

    grid = torch.rand(1, 2, 2, 3, 3) * 2 - 1
    agree(gradient, r(1, 2, 2, 2, 3), r(1, 2, 3, 4, 5), grid, tolerance=1e-4)


@pytest.mark.parametrize("causal, scale", [(False, None), (True, 0.3)])
def test_attention(causal: bool, scale: float | None) -> None:
    def attended(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)

    graph = agree(attended, r(2, 4, 3, 8), r(2, 4, 5, 8), r(2, 4, 5, 6), named=(2,))
    assert any(isinstance(node.op, Attention) for node in graph.nodes)


def test_masks_of_attention_and_groups_of_heads() -> None:
    q, k, mask = r(2, 4, 3, 8), r(2, 2, 5, 8), torch.rand(2, 1, 3, 5) > 0.5
    mask[0, 0, 1] = False  # a query that sees no key
    attention = F.scaled_dot_product_attention
    agree(lambda q, k, m: attention(q, k, k, m, enable_gqa=True), q, k, mask)
    agree(lambda q, k, m: attention(q, k, k, m), q[:, :2], k, r(3, 5))
    agree(lambda q, k: attention(q, k, k), r(3, 8), r(5, 8))


def test_fewer_heads_of_keys_and_values_have_gradients() -> None:
    flash = aten._scaled_dot_product_flash_attention_for_cpu
    q, k, v = r(2, 4, 3, 8), r(2, 2, 7, 8), r(2, 2, 7, 8)
    agree(lambda q, k, v: flash(q, k, v, 0.0, False), q, k, v)
    y, sums = flash(q, k, v, 0.0, False)
    back = aten._scaled_dot_product_flash_attention_for_cpu_backward
    agree(lambda *xs: back(*xs, 0.0, False), r(2, 4, 3, 8), q, k, v, y, sums)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_as_trained(causal: bool) -> None:
    flash = aten._scaled_dot_product_flash_attention_for_cpu
    back = aten._scaled_dot_product_flash_attention_for_cpu_backward
    q, k, v = r(2, 2, 5, 8), r(2, 2, 5, 8), r(2, 2, 5, 8)
    agree(lambda q, k, v: flash(q, k, v, 0.0, causal), q, k, v)
    y, sums = flash(q, k, v, 0.0, causal)
    agree(lambda *a: back(*a, 0.0, causal), r(y.shape), q, k, v, y, sums)


class WithStates(torch.nn.Module):
    """A recurrent layer whose first states are inputs."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any, *states: Any) -> Any:
        first, *more = states
        return self.layer(x, states if more else first)


@pytest.mark.parametrize("kind", [LSTM, GRU, RNN])
@pytest.mark.parametrize("options", [{"batch_first": True, "bidirectional": True}, {"bias": False}])
def test_recurrent_layers_stay_whole(kind: type, options: dict[str, Any]) -> None:
    layer = WithStates(getattr(torch.nn, kind.__name__)(5, 7, 2, **options))
    states = [r(4 if "bidirectional" in options else 2, 3, 7)] * (2 if kind is LSTM else 1)
    x = r(3, 4, 5) if "batch_first" in options else r(4, 3, 5)
    graph = agree(layer, x, *states)
    assert sum(isinstance(node.op, kind) for node in graph.nodes) == 2


def test_a_recurrent_layer_of_relu_without_a_batch() -> None:
    agree(WithStates(torch.nn.RNN(5, 7, 1, "relu")), r(4, 5), r(1, 7))


def test_projections_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedModel, match="projections of its states"):
        agree(WithStates(torch.nn.LSTM(5, 7, proj_size=3)), r(4, 3, 5), r(1, 3, 3), r(1, 3, 7))
