"""Dropout by torch.compile: PyTorch's own masks, drawn before one compiled program."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
FakeTensorMode = pytest.importorskip("torch._subclasses.fake_tensor").FakeTensorMode
make_fx = pytest.importorskip("torch.fx.experimental.proxy_tensor").make_fx

from modelcc.torch.dropout import masks_apart  # noqa: E402
from modelcc.torch.partition import Parted, parted  # noqa: E402
from tests.traced_graphs import compiled  # noqa: E402

nn: Any = torch.nn
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_dynamo")]


def test_a_layer_stays_one_program() -> None:
    """With the masks, results and gradients of eager execution."""
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(16, 2, 32, 0.3, batch_first=True)
    x = torch.randn(2, 8, 16)
    seen: list[tuple[str, Parted]] = []
    results: list[list[Any]] = []
    y: Any = None
    for model in (compiled(layer, seen), layer):
        torch.manual_seed(0)
        for _ in range(2):  # other masks each time
            layer.zero_grad()
            y = model(x)
            y.square().sum().backward()
        results.append([y.detach(), *(p.grad for p in layer.parameters()), torch.rand(3)])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
    (kind, forward), _ = seen
    assert kind == "forward" and len(forward.parts) == 1 and len(forward.problems) == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_products_are_rounded_as_eager_execution_does(share: float, dtype: Any) -> None:
    def dropped(x: Any) -> Any:
        return torch.native_dropout(x.exp(), share, True)

    x = torch.randn(40).to(dtype)
    results: list[Any] = []
    for function in (compiled(dropped), dropped):
        torch.manual_seed(0)
        results.append(function(x))
    torch.testing.assert_close(*results, rtol=1e-6 if dtype == torch.float32 else 1e-2, atol=0)
    assert torch.equal(results[0][1], results[1][1])


def test_other_random_numbers_come_in_their_order() -> None:
    def drawn(x: Any) -> Any:
        first = nn.functional.dropout(x.exp(), 0.5)
        more = torch.rand_like(first)
        return nn.functional.dropout((first * more).sin(), 0.25), more

    x, results = torch.randn(5, 6), list[Any]()
    for function in (compiled(drawn), drawn):
        torch.manual_seed(0)
        results.append(function(x))
    torch.testing.assert_close(*results)


def test_a_result_lies_in_memory_of_its_own() -> None:
    """Of an argument, which whoever has the result does not write to."""
    fast, x = compiled(lambda x: nn.functional.dropout(x, 0.5)), torch.randn(8)
    torch.manual_seed(0)
    y = fast(x)
    torch.manual_seed(0)
    torch.testing.assert_close(y, nn.functional.dropout(x, 0.5))
    assert y.data_ptr() != x.data_ptr()


def test_named_extents_stay_pytorchs() -> None:
    def dropped(x: Any) -> Any:
        return nn.functional.dropout(x.exp(), 0.5).sin()

    fast = compiled(dropped, dynamic=True)
    for size in (4, 7, 4):
        x, results = torch.randn(size, 3), list[Any]()
        for function in (fast, dropped):
            torch.manual_seed(0)
            results.append(function(x))
        torch.testing.assert_close(*results)


def test_on_a_gpu_nothing_is_computed_before_masks_are_drawn() -> None:
    """Traced there: PyTorch makes an empty tensor on the GPU, and draws for that."""

    def layers(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = torch.native_dropout((x @ w).relu(), 0.1, True)[0]
        return x

    with FakeTensorMode():
        given = (torch.empty(s, device="cuda:0", dtype=torch.float16) for s in ((8, 16), (16, 16)))
        graph = make_fx(layers)(*given)
    found = parted(masks_apart(graph), device="cuda")
    assert len(found.parts) == 1 and len(found.problems) == 3
    blanks = [n for n in found.module.graph.nodes if "empty_strided" in str(n.target)]
    assert [n.kwargs["device"].type for n in blanks] == ["cuda"] * 3
