"""Softmax, normalisations and their gradients give what PyTorch gives."""

from __future__ import annotations

from typing import Any

import pytest

from modelcc.ops.attention import Softmax
from modelcc.ops.channel_norm import BatchNorm, GroupNorm
from modelcc.ops.layer_norm import LayerNorm, RMSNorm
from tests.frontends.torch.comparison import (
    Function,
    check,
    compare,
    compiled,
    import_exported,
    torch,
)

F, aten = torch.nn.functional, torch.ops.aten
X, SCALE, BIAS = torch.randn(2, 6, 4), torch.randn(6), torch.randn(6)
ROW = torch.randn(4)
pytestmark = pytest.mark.filterwarnings("ignore")

CASES: dict[str, tuple[Any, ...]] = {
    "softmax": (lambda x: (x.softmax(1), F.log_softmax(x, -1), x.softmax(0, torch.float64)), X),
    "softmax of a scalar": (lambda x: (x.softmax(0), x.log_softmax(-1)), torch.tensor(2.0)),
    "layer": (lambda x, s: (F.layer_norm(x, (4,), s), F.layer_norm(x, (6, 4), eps=0.1)), X, ROW),
    "layer and statistics": (lambda x, s: aten.native_layer_norm(x, [4], s, None, 1e-3), X, ROW),
    "root mean square": (lambda x, s: (F.rms_norm(x, (4,), s), F.rms_norm(x, (6, 4), None, 0.1)),
                         X, ROW),
    "groups": (lambda x, s, b: F.group_norm(x, 3, s, b, 1e-3), X, SCALE, BIAS),
    "groups and statistics": (lambda x, s: aten.native_group_norm(x, s, None, 2, 6, 4, 2, 1e-5),
                              X, SCALE),
    "instances": (lambda x, s, b: F.instance_norm(x, weight=s, bias=b), X, SCALE, BIAS),
    "batch": (lambda x, s, b: F.batch_norm(x, b, s * s, s, b, eps=1e-3), X, SCALE, BIAS),
    "batch in training": (lambda x, s, b: aten._native_batch_norm_legit_functional(
        x, s, b, b, s * s, True, 0.3, 1e-3), X, SCALE, BIAS),
    "batch of no statistics": (lambda x, s, b: aten._native_batch_norm_legit.no_stats(
        x, s, b, True, 0.1, 1e-3), X, SCALE, BIAS),
    "batch without statistics": (lambda x: F.batch_norm(x, None, None, training=True), X),
    "neighbours": (lambda x: F.local_response_norm(x, 3, 0.5), X),
    "similarity": (lambda x: F.cosine_similarity(x[0], x[1], -1), X),
    "renorm": (lambda x: x.renorm(2, 1, 0.5), X),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_as_eager(case: tuple[Any, ...]) -> None:
    check(*case)


GRADIENTS: dict[str, Any] = {
    "softmax": lambda x, s, b: x.softmax(1),
    "log_softmax": lambda x, s, b: F.log_softmax(x, 0),
    "layer": lambda x, s, b: F.layer_norm(x, (4,), x[0, 0], x[1, 1]),
    "root mean square": lambda x, s, b: F.rms_norm(x, (4,), x[0, 0]),
    "groups": lambda x, s, b: F.group_norm(x, 3, s, b),
    "batch in training": lambda x, s, b: F.batch_norm(x, None, None, s, b, training=True),
    "batch": lambda x, s, b: F.batch_norm(x, b.detach(), s.detach() ** 2, s, b),
    "weights": lambda x, s, b: torch._weight_norm(x.mT, (s * b)[None, None], 2).mT * x,
    "weights by rows": lambda x, s, b: torch._weight_norm(x, s[:2, None, None]),
}


@pytest.mark.parametrize("function", GRADIENTS.values(), ids=GRADIENTS.keys())
def test_gradients(function: Any) -> None:
    """Traced with PyTorch's own rules of differentiation."""

    def gradients(x: Any, s: Any, b: Any, dy: Any) -> Any:
        xs = [v.detach().requires_grad_() for v in (x, s, b)]
        found = torch.autograd.grad(function(*xs), xs, dy, allow_unused=True)
        return tuple(g for g in found if g is not None)

    dy = torch.randn(2, 6, 4)
    graph = torch.fx.experimental.proxy_tensor.make_fx(gradients)(X, SCALE, BIAS, dy)
    check(graph, X, SCALE, BIAS, dy, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        (Softmax, lambda x: x.softmax(-1)),
        (LayerNorm, lambda x: F.layer_norm(x, (4,))),
        (RMSNorm, lambda x: F.rms_norm(x, (4,))),
        (GroupNorm, lambda x: F.group_norm(x, 3)),
        (BatchNorm, lambda x: F.batch_norm(x, x[0, :, 0], x[1, :, 1])),
    ],
)
def test_stays_whole(kind: type, function: Any) -> None:
    graph = import_exported(torch.export.export(Function(function), (X,)))
    assert any(isinstance(node.op, kind) for node in graph.nodes)


def test_named_extents() -> None:
    def function(x: Any) -> Any:
        return F.layer_norm(x, (4,)), x.softmax(0), F.batch_norm(x, None, None, training=True)

    batch = torch.export.Dim("batch", min=2, max=64)
    net = compiled(function, [X], [{0: batch}])
    for n in (2, 5):
        compare(net, function, [torch.randn(n, 6, 4)])
