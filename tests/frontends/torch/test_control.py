"""torch.cond, while_loop, scan and map become branches and loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

operators: Any = pytest.importorskip("torch._higher_order_ops")

import modelcc  # noqa: E402
from modelcc.frontends.torch import import_exported  # noqa: E402
from modelcc.ops.control import If, Loop  # noqa: E402
from tests.machines import chosen_options  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Branches(torch.nn.Module):
    """A layer where the first element is positive, else ``x - 1``."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return torch.cond(x[0, 0] > 0, self.layer, lambda x: x - 1, (x,))


class While(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        offset = x.abs() + 1  # so that y grows, whatever x is

        def going(i: Any, y: Any) -> Any:
            return y[0, 0] < 100

        def step(i: Any, y: Any) -> Any:
            return i + 1, y * 2 + offset

        return operators.while_loop(going, step, (torch.tensor(0), x))


class Scan(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return operators.scan(lambda c, y: (c + y, c * y), x[0] * 0, x, dim=0)


class Map(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return operators.map(lambda y, w: torch.relu(y) * w, x, x[0] * 2)


@pytest.mark.parametrize(
    "module, kind", [(Branches(), If), (While(), Loop), (Scan(), Loop), (Map(), Loop)]
)
def test_graphs_of_operators_with_a_named_extent(module: Any, kind: type) -> None:
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(module, (torch.rand(3, 4),), dynamic_shapes=({0: batch},))
    graph = import_exported(program)
    assert any(isinstance(node.op, kind) for node in graph.nodes)
    net = modelcc.compile(graph, cache=None, optimize=0)
    for x in (torch.rand(3, 4) + 0.1, -torch.rand(5, 4)):
        with torch.no_grad():
            theirs = module(x)
        ours = net(x.numpy())
        pairs = zip(*(v if isinstance(v, tuple) else (v,) for v in (ours, theirs)), strict=True)
        for a, b in pairs:
            np.testing.assert_allclose(a, b.numpy(), rtol=1e-5, atol=1e-6)


class OfSizes(torch.nn.Module):
    """A branch that depends on sizes alone."""

    def __init__(self, taken: Callable[[Any], Any]) -> None:
        super().__init__()
        self.taken = taken

    def forward(self, x: Any) -> Any:
        return torch.cond(self.taken(x.shape[0]), torch.sin, torch.cos, (x,))


@pytest.mark.parametrize(
    "taken",
    [
        lambda n: n > 4,
        lambda n: 2 * n <= 7,
        lambda n: n % 3 == 0,
        lambda n: torch.sym_not(n // 2 != 2),
        lambda n: (n > 2) & (n < 6),
        lambda n: (n < 3) | (n > 5),
    ],
)
def test_branches_by_sizes(taken: Callable[[Any], Any]) -> None:
    module, rows = OfSizes(taken), torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(module, (torch.rand(3, 4),), dynamic_shapes=({0: rows},))
    net = modelcc.compile(program, cache=None, options=chosen_options(threads=1))
    for n in range(2, 8):
        x = torch.rand(n, 4)
        wanted = torch.sin(x) if taken(n) else torch.cos(x)
        np.testing.assert_allclose(net(x), wanted, rtol=1e-5, atol=1e-6)
