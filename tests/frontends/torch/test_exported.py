"""Programs of torch.export compute what PyTorch computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

import modelcc  # noqa: E402
from modelcc.frontends.kit.errors import UnsupportedModel  # noqa: E402
from modelcc.frontends.torch import import_exported  # noqa: E402
from modelcc.ir.errors import ModelError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Parts(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        z = torch.relu(x.transpose(0, 1) + y[:, None]) * 2.5
        z = torch.cat([z, z[1:]]).flatten()
        z[2:5] += 1
        z[1::3] = 0.5
        return z.view(-1, x.shape[0]), x > 0


def test_views_that_are_written_to_and_a_named_extent() -> None:
    example = (torch.randn(3, 4), torch.randn(4))
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(Parts(), example, dynamic_shapes=({0: batch}, None))
    graph = import_exported(program)
    assert list(graph.dims) == ["x_d0"]
    assert (graph.dims["x_d0"].lo, graph.dims["x_d0"].hi) == (2, 64)
    net = modelcc.compile(graph, cache=None)
    for n in (2, 7):
        x, y = torch.randn(n, 4), torch.randn(4)
        for ours, theirs in zip(net(x.numpy(), y.numpy()), Parts()(x, y), strict=True):
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-6)


def test_all_operators_that_there_are_not_are_named_with_their_lines() -> None:
    class Unknown(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            factors, pivots, _ = torch.linalg.ldl_factor_ex(x)
            return torch.linalg.ldl_solve(factors, pivots, x)

    program = torch.export.export(Unknown(), (torch.randn(3, 3),))
    with pytest.raises(UnsupportedModel) as caught:
        import_exported(program)
    assert len(caught.value.nodes) >= 2
    assert all("test_exported.py:" in node.node for node in caught.value.nodes)


def test_outputs_that_are_inputs_parameters_or_each_other() -> None:
    class Same(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(3))

        def forward(self, x: Any) -> Any:
            return x, self.weight, x, x.float(), self.weight

    module, x = Same(), torch.randn(4)
    net = modelcc.compile(module, (x,), cache=None)
    for ours, theirs in zip(net(x.numpy()), module(x), strict=True):
        np.testing.assert_array_equal(ours, theirs.detach().numpy())


class Weighted(torch.nn.Module):
    """Changes a buffer; gives a number of its choice among tensors."""

    def __init__(self, number: Any) -> None:
        super().__init__()
        self.number = number
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: Any) -> Any:
        self.calls.add_(1)
        return {"y": x + 1, "number": self.number, "rest": [x * self.calls, None]}


@pytest.mark.parametrize("number", [None, 3])
def test_outputs_that_are_no_tensors_are_as_they_were_exported(number: int | None) -> None:
    net = modelcc.compile(Weighted(number), (torch.ones(2),), cache=None, optimize=1)
    for calls in (1, 2):
        found = net(np.ones(2, np.float32))
        np.testing.assert_array_equal([found["y"], found["rest"][0]], [[2, 2], [calls, calls]])
        assert found["number"] == number and found["rest"][1] is None


def test_inputs_of_a_type_that_there_is_not_are_named() -> None:
    example = torch.empty(2, dtype=torch.float8_e8m0fnu)
    program = torch.export.export(torch.nn.Identity(), (example,))
    with pytest.raises(ModelError, match=r"input 'input'.*float8_e8m0fnu"):
        import_exported(program)


class Halves(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.reshape(-1, 2).sum(1)


def test_an_extent_that_is_a_multiple_of_what_no_input_has(tmp_path: Path) -> None:
    half = torch.export.Dim("half", min=1, max=64)
    program = torch.export.export(Halves(), (torch.randn(8),), dynamic_shapes=({0: 2 * half},))
    torch.export.save(program, tmp_path / "halves.pt2")
    for source in (program, tmp_path / "halves.pt2"):
        net = modelcc.compile(source, cache=None, optimize=1)
        for n in (8, 12):
            x = torch.randn(n)
            np.testing.assert_allclose(net(x.numpy()), Halves()(x).numpy(), rtol=1e-6)
    with pytest.raises(modelcc.InputError, match="axis 0"):
        net(np.ones(7, np.float32))
